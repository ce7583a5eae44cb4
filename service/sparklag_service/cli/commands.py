"""The commands by name, their help and usage errors. Each command is imported when it is run:
`--help` answers at once, and `sparklag lag`, a probe that runs every few seconds, does not load the
server. Help is plain text, as `sparklag_jobs.arguments` writes it where typer is not installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

USAGE_ERROR: Final[type[Any]] = typer.BadParameter.__bases__[0]
"""Has no public name in typer."""
PASS_ON: Final = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""The context of a command whose arguments are all another program's."""
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


class _Entry(NamedTuple):
    module: str
    attribute: str
    """A function, or a typer app."""
    help: str
    """The first sentence of its help."""
    passes_on: bool = False
    """Whether all its arguments go to a program that has options of its own."""


_COMMANDS: Final[Mapping[str, _Entry]] = {
    "serve": _Entry(
        *("programs", "serve"),
        "Run the service: read observations, measure lag, publish it, serve it over REST.",
    ),
    "demo": _Entry(
        *("programs", "demo"),
        "Start Kafka, a producer, Spark queries and the service, and watch the lag.",
        passes_on=True,
    ),
    "report": _Entry(
        *("programs", "report"),
        "Report past lag: how often each query was within target, its worst hours, and the trend.",
        passes_on=True,
    ),
    "lag": _Entry(
        *("lag", "lag"),
        "Show how far behind a query is, whether that gets better, and why.",
    ),
    "queries": _Entry(
        *("queries", "queries"),
        "List all queries: their lag, its age and trend, and the reason of a status.",
    ),
    "forget": _Entry(
        *("lag", "forget"),
        "Forget a query that has no driver: it leaves every list, metric and alarm.",
    ),
    "top": _Entry(
        *("top", "top"),
        "Show all queries live, the worst first; the keys are shown at the bottom.",
    ),
    "tail": _Entry("tail", "tail", "Follow lag events as they are published."),
    "checkpoint": _Entry(
        *("checkpoint", "checkpoint"),
        "Show the position of a query from its checkpoint, without the query.",
    ),
    "check": _Entry(
        *("check", "check"),
        "Check Kafka, topics, rights, clocks, versions and the running service, and what to do.",
    ),
    "topics": _Entry("topics", "topics_app", "sparklag's own topics."),
    "offsets": _Entry("offsets", "app", "Where queries were, from the offset store."),
    "history": _Entry("programs", "history_app", "The history of lag."),
}


class LazyCommands(CommandGroup):
    """See typer."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        commands: Any = _LoadedCommands()
        self.commands = commands

    def list_commands(self, ctx: Any) -> list[str]:
        """See typer."""
        return list(_COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See typer."""
        write_commands(formatter, [(name, command.help) for name, command in _COMMANDS.items()])


class _LoadedCommands(Mapping[str, Any]):
    """By name, each imported when it is taken out."""

    def __getitem__(self, name: str) -> Any:
        command = _COMMANDS[name]
        loaded = getattr(import_module(f"sparklag_service.cli.{command.module}"), command.attribute)
        # A group of one command, for what it takes from its group.
        group = typer.Typer(rich_markup_mode=None)
        if isinstance(loaded, typer.Typer):
            group.add_typer(loaded, name=name)
        else:
            group.command(name, context_settings=PASS_ON if command.passes_on else None)(loaded)
        return typer.main.get_group(group).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


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
