"""Arguments of programs that are also commands of `sparklag`."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Final, NoReturn

from sparklag_schemas.text.printable import printable

_MAX_WIDTH: Final = 120
_MIN_WIDTH: Final = 50
_MAX_OPTION_WIDTH: Final = 30


class CommandParser(argparse.ArgumentParser):
    """A parser whose help and errors look like those of the typer commands. typer may not be
    installed where spark-submit runs a program."""

    def __init__(self, command: str, description: str) -> None:
        """`description`: paragraphs, separated by an empty line."""
        super().__init__(prog=f"sparklag {command}", description=description, add_help=False)
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def format_help(self) -> str:
        """Usage, description and options, wrapped to the terminal's width."""
        columns = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
        wrapper = textwrap.TextWrapper(
            max(columns - 2, _MIN_WIDTH),
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        lines = [f"Usage: {self.prog} [OPTIONS]", ""]
        for paragraph in (self.description or "").split("\n\n"):
            lines += [*wrapper.wrap(paragraph), ""]
        lines.append("Options:")
        help_option, *options = self._actions
        rows = [(_option(action), _text(action)) for action in (*options, help_option)]
        indent = min(max(len(option) for option, _ in rows), _MAX_OPTION_WIDTH) + 4
        wrapper.subsequent_indent = " " * indent
        for option, text in rows:
            begin = f"  {option}"
            if len(begin) > indent - 2:
                lines.append(begin)
                begin = ""
            wrapper.initial_indent = begin.ljust(indent)
            lines += wrapper.wrap(text)
        return "\n".join([*lines, ""])

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"sparklag: {printable(message)}: see `{self.prog} --help`\n")


def _option(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    if action.choices is not None:
        return f"{names} <{'|'.join(action.choices)}>"
    type_name: str = getattr(action.type, "__name__", "str")
    return f"{names} <{type_name.strip('_').lower()}>"


def _text(action: argparse.Action) -> str:
    has_default = action.default not in (None, False, argparse.SUPPRESS)
    return f"{action.help}{f'  [default: {action.default}]' if has_default else ''}"
