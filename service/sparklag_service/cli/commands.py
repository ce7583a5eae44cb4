"""The commands by name, their help, and usage errors. Each command is imported when it runs:
`--help` is fast, and `sparklag lag`, a frequent probe, does not load the server. Help is plain
text, like that of `sparklag_jobs.arguments`, which does not need typer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

USAGE_ERROR: Final[type[Any]] = typer.BadParameter.__bases__[0]
"""typer has no public name for it."""
PASS_ON: Final[Mapping[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""The context of a command that passes all its arguments to another program."""
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_WHOLE: Final = 1_000


class CommandGroup(TyperGroup):
    """A group whose help shows the whole first sentence of each command; typer would cut it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        write_commands(
            formatter,
            [(name, command.get_short_help_str(_WHOLE)) for name, command in commands if command],
        )


def write_commands(formatter: Any, commands: Sequence[tuple[str, str]]) -> None:
    with formatter.section("Commands"):
        formatter.write_dl(commands)


class _Entry(NamedTuple):
    """The module of a command: it has a function or a typer app with the command's name."""

    module: str
    help: str
    """The first sentence of the command's help."""
    context: Mapping[str, Any] = {}


_COMMANDS: Final[Mapping[str, _Entry]] = {
    "serve": _Entry(
        "programs",
        "Run the service: read observations, measure lag, publish it, serve it over REST.",
    ),
    "demo": _Entry(
        "programs",
        "Start Kafka, a producer, Spark queries and the service, and watch the lag.",
        PASS_ON,
    ),
    "report": _Entry(
        "programs",
        "Report past lag: how often each query was within target, its worst hours, and the trend.",
        PASS_ON,
    ),
    "lag": _Entry("lag", "Show how far behind a query is, whether that gets better, and why."),
    "queries": _Entry(
        "queries", "List all queries: their lag, time lag and trend, and the reason of a status."
    ),
    "forget": _Entry(
        "lag", "Forget a query that has no driver: it leaves every list, metric and alarm."
    ),
    "top": _Entry(
        "top", "Show all queries live, the worst first; the keys are shown at the bottom."
    ),
    "tail": _Entry("tail", "Follow lag events as they are published."),
    "checkpoint": _Entry(
        "checkpoint", "Show the position of a query from its checkpoint, without the query."
    ),
    "check": _Entry(
        "check",
        "Check Kafka, topics, rights, clocks, versions and the running service, and what to do.",
    ),
    "tokens": _Entry("tokens", "Tokens for the REST interface."),
    "topics": _Entry("topics", "sparklag's own topics."),
    "offsets": _Entry("offsets", "Where queries were, from the offset store."),
    "history": _Entry("programs", "The history of lag."),
}


class LazyCommands(CommandGroup):
    def __init__(self, **attributes: Any) -> None:
        # Names alone, which typer lists and suggests.
        super().__init__(**{**attributes, "commands": dict.fromkeys(_COMMANDS)})

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command, which is imported now."""
        if name not in _COMMANDS:
            return None
        module, _, context = _COMMANDS[name]
        loaded = getattr(import_module(f"sparklag_service.cli.{module}"), name)
        # typer needs a group to build the command with the group's defaults.
        group = typer.Typer(rich_markup_mode=None)
        if isinstance(loaded, typer.Typer):
            group.add_typer(loaded, name=name)
        else:
            group.command(name, context_settings={**context})(loaded)
        return typer.main.get_group(group).commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        write_commands(formatter, [(name, command.help) for name, command in _COMMANDS.items()])


def print_usage_error(error: Any) -> None:
    """Print the error in one line; for a group without a command, print its help."""
    from sparklag_service.cli.terminal import print_error

    text = error.format_message()
    if error.ctx is None:
        print_error(text)
    elif text == error.ctx.get_help():
        typer.echo(text, err=True)
    else:
        print_error(f"{text.rstrip('.')}: see `{error.ctx.command_path} --help`")
