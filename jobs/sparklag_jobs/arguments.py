"""Arguments of programs that are also commands of `sparklag`."""

from __future__ import annotations

import argparse
from typing import NoReturn

from sparklag_schemas.text.printable import printable


class _CommandHelp(argparse.HelpFormatter):
    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        type_name: str = getattr(action.type, "__name__", "str")
        return f"<{type_name.strip('_').lower()}>"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(paragraph, width, indent) for paragraph in text.split("\n\n"))

    def _get_help_string(self, action: argparse.Action) -> str:
        has_default = action.default not in (None, False, argparse.SUPPRESS)
        return f"{action.help}{f'  [default: {action.default}]' if has_default else ''}"


class CommandParser(argparse.ArgumentParser):
    """A parser whose help and errors look like those of the typer commands. typer may not be
    installed where spark-submit runs a program."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"sparklag {command}",
            usage="%(prog)s [OPTIONS]",
            description=description,
            formatter_class=_CommandHelp,
            add_help=False,
        )
        self._optionals.title = "Options"
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def format_help(self) -> str:
        return super().format_help().replace("usage:", "Usage:", 1)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"sparklag: {printable(message)}: see `{self.prog} --help`\n")
