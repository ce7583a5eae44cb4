"""Help and usage errors of the commands: plain text, as `sparklag_pipeline.arguments` writes it
for programs that run where typer is not installed."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

from sparklag_service.cli.terminal import print_error

USAGE_ERROR: Final[type[Any]] = typer.BadParameter.__bases__[0]
"""Has no public name in typer."""
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_WHOLE: Final = 1_000


class CommandGroup(TyperGroup):
    """Its help has the whole first sentence of each command, which typer would cut to a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See typer."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each]
            )


def print_usage_error(error: Any) -> None:
    """In one line; for a group without a command, its help."""
    text = error.format_message()
    if error.ctx is None:
        print_error(text)
    elif text == error.ctx.get_help():
        typer.echo(text, err=True)
    else:
        print_error(f"{text.rstrip('.')}: see `{error.ctx.command_path} --help`")
