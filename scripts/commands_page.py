"""The page of all commands, from their docstrings and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from scripts.markdown_tables import row
from sparklag_service.cli import app
from sparklag_service.cli.commands import PASS_ON

_INTRODUCTION: Final = """\
# Commands
The text of `sparklag COMMAND --help`. Every command takes `-h` and `--help`; `sparklag --version`
shows the version. All exit codes, and how programs use the commands:
[commands in programs](../program/commands.md)."""


def commands_page() -> list[str]:
    """Its lines."""
    group = typer.main.get_command(app)
    return [*_INTRODUCTION.split("\n"), *_commands("sparklag", group)]


def _commands(name: str, command: object) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for sub_name in command.commands:
            sub_command = command.get_command(typer.Context(command), sub_name)
            yield from _commands(f"{name} {sub_name}", sub_command)
    elif isinstance(command, TyperCommand):
        yield from _command(name, command)


def _command(name: str, command: TyperCommand) -> Iterator[str]:
    yield ""
    yield f"## `{name}`"
    yield " ".join((command.help or "").split())
    if PASS_ON.items() <= command.context_settings.items():
        yield f"`{name} --help` lists its options. What it runs on Spark needs `sparklag[demo]`."
    if not command.params:
        return
    yield ""
    yield from ("| argument or option | takes | default | |", "| --- | --- | --- | --- |")
    for parameter in command.params:
        if isinstance(parameter, TyperArgument | TyperOption):
            yield row(*_cells(parameter))


def _cells(parameter: TyperArgument | TyperOption) -> tuple[str, str, str, str]:
    is_option = isinstance(parameter, TyperOption)
    names = parameter.opts if is_option else [(parameter.name or "").upper()]
    is_flag = isinstance(parameter, TyperOption) and parameter.is_flag
    takes = "" if is_flag else _type(parameter)
    default = "required" if parameter.required else ""
    if not parameter.required and not is_flag and parameter.default is not None:
        default = f"`{parameter.default}`"
    text = " ".join((parameter.help or "").split())
    if parameter.envvar:
        text += f" Variable: `{parameter.envvar}`."
    return ", ".join(f"`{name}`" for name in names), takes, default, text


def _type(parameter: TyperArgument | TyperOption) -> str:
    lowest = f" ≥ {parameter.min:g}" if parameter.min is not None else ""
    highest = f" ≤ {parameter.max:g}" if parameter.max is not None else ""
    annotation = parameter.type_descriptor.annotation
    return {str: "text", int: "integer", float: "number"}.get(annotation, "path") + lowest + highest
