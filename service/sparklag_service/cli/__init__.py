"""The command line. Most commands have their own file, which is imported when the command runs.

Exit codes: 0 success; 1 a negative result (behind, something to repair); 2 no result (a wrong
setting, no service, an unknown query).
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

import typer

from sparklag_service.cli.commands import CONTEXT, USAGE_ERROR, LazyCommands, print_usage_error

app = typer.Typer(
    name="sparklag",
    help="Consumer lag of Spark Structured Streaming queries.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=LazyCommands,
    context_settings=CONTEXT,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from sparklag_service import VERSION

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
    """Run the command. A SparklagError or a wrong argument prints one line and exits with 2."""
    if isinstance(sys.stdout, TextIOWrapper):  # a file on Windows takes only its code page
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.exit(app(prog_name="sparklag", standalone_mode=False))
    except USAGE_ERROR as error:
        print_usage_error(error)
        sys.exit(2)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
    except Exception as error:
        # The command has imported this already; `--help` does not need it.
        from sparklag_schemas import SparklagError
        from sparklag_service.cli.terminal import print_error

        if not isinstance(error, SparklagError):
            raise
        print_error(str(error))
        sys.exit(2)
