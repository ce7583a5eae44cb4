"""The command line. Most commands have a file of their own.

Exit codes: 0 success; 1 a negative result (behind, something to repair); 2 no result (a wrong
setting, no service, an unknown query).
"""

from __future__ import annotations

import sys

import typer

from sparklag_schemas import SparklagError
from sparklag_service import VERSION
from sparklag_service.cli import checkpoint, lag, offsets, programs, queries, setup, tail
from sparklag_service.cli.terminal import print_error
from sparklag_service.cli.top.command import top
from sparklag_service.cli.usage import CONTEXT, USAGE_ERROR, CommandGroup, print_usage_error

app = typer.Typer(
    name="sparklag",
    help="Consumer lag of Spark Structured Streaming queries.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=CommandGroup,
    context_settings=CONTEXT,
)
app.command("serve")(programs.serve)
app.command("demo", context_settings=programs.PASS_ON)(programs.demo)
app.command("report", context_settings=programs.PASS_ON)(programs.report)
app.command("lag")(lag.lag)
app.command("queries")(queries.queries)
app.command("forget")(lag.forget)
app.command("top")(top)
app.command("tail")(tail.tail)
app.command("checkpoint")(checkpoint.checkpoint)
app.command("check")(setup.check)
app.add_typer(setup.topics_app, name="topics")
app.add_typer(offsets.app, name="offsets")
app.add_typer(programs.history_app, name="history")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparklag {VERSION}")
        raise typer.Exit


@app.callback()
def _sparklag(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Consumer lag of Spark Structured Streaming queries."""


def run() -> None:
    """Run the command; a SparklagError or a wrong argument is one line, and exit code 2."""
    try:
        sys.exit(app(prog_name="sparklag", standalone_mode=False))
    except USAGE_ERROR as error:
        print_usage_error(error)
        sys.exit(2)
    except SparklagError as error:
        print_error(str(error))
        sys.exit(2)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
