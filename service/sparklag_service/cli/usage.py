"""Help and usage errors of the commands: plain text, as `sparklag_jobs.arguments` writes it
for programs that run where typer is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup

USAGE_ERROR: Final[type[Any]] = typer.BadParameter.__bases__[0]
"""Has no public name in typer."""
PASS_ON: Final = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Of a command whose arguments are all another program's."""
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_WHOLE: Final = 1_000


class CommandGroup(TyperGroup):
    """Its help has the whole first sentence of each command, which typer would cut to a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See typer."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        write_commands(
            formatter, [(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each]
        )


def write_commands(formatter: Any, commands: Sequence[tuple[str, str]]) -> None:
    """The section of a group's help: names, and what each is for."""
    with formatter.section("Commands"):
        formatter.write_dl(commands)


def print_usage_error(error: Any) -> None:
    """In one line; for a group without a command, its help."""
    from sparklag_service.cli.terminal import print_error

    text = error.format_message()
    if error.ctx is None:
        print_error(text)
    elif text == error.ctx.get_help():
        typer.echo(text, err=True)
    else:
        print_error(f"{text.rstrip('.')}: see `{error.ctx.command_path} --help`")
