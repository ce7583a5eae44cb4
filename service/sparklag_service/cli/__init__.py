"""The command line. Each command is a file of its own.

Exit codes: 0 all is well; 1 the answer is not good (behind, something to mend); 2 there is no
answer (a wrong setting, nobody to ask, an unknown query).
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from sparklag_schemas import SparklagError
from sparklag_schemas.printable import printable
from sparklag_service.cli import (
    check,
    checkpoint,
    demo,
    lag,
    offsets,
    queries,
    report,
    serve,
    tail,
    topics,
)
from sparklag_service.version import VERSION

app = typer.Typer(
    name="sparklag",
    help="Consumer lag of Spark Structured Streaming queries.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("demo", context_settings=demo.PASS_ON)(demo.demo)
app.command("report", context_settings=report.PASS_ON)(report.report)
app.command("lag")(lag.lag)
app.command("queries")(queries.queries)
app.command("tail")(tail.tail)
app.command("checkpoint")(checkpoint.checkpoint)
app.command("check")(check.check)
app.add_typer(topics.app, name="topics")
app.add_typer(offsets.app, name="offsets")


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
    """Run the command; an error of ours is one line, and exit code 2."""
    try:
        app()
    except SparklagError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"sparklag: {printable(str(error), 2_000)}", markup=False
        )
        sys.exit(2)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
