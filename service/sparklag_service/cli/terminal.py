"""Common parts of the commands: options, the console, JSON and errors as lines."""

from __future__ import annotations

import json
import re
import sys
from math import isnan
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from sparklag_schemas import ResolvedSettings, load_settings
from sparklag_schemas.presentation.tables import width_of
from sparklag_schemas.text.printable import printable


def refuse_nan(seconds: float | None) -> float | None:
    if seconds is not None and isnan(seconds):  # no bound excludes NaN
        raise typer.BadParameter("expected a number of seconds")
    return seconds


Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file. [default: sparklag.toml, if there]")
]
BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", help="Kafka, as host:port[,host:port].")
]
Query = Annotated[str, typer.Argument(help="Name, id or first characters of the id of a query.")]
Url = Annotated[str, typer.Option("--url", envvar="SPARKLAG_URL", help="A running service.")]
Interval = Annotated[
    float,
    typer.Option(min=0.5, max=3_600, callback=refuse_nan, help="Seconds between two requests."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for a program.")]
DEFAULT_URL = "http://127.0.0.1:8085"
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_LONGEST_ERROR: Final = 2_000


def kafka_settings(config: Path | None, bootstrap_servers: str | None) -> ResolvedSettings:
    """Returns the settings. Raises SettingsError without bootstrap servers."""
    return load_settings(
        config=config, overrides={"bootstrap_servers": bootstrap_servers}
    ).resolved()


def console(*, wrap: bool = False, stderr: bool = False) -> Console:
    """A console on standard output or standard error. `wrap`: wrap lines in a terminal."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Console(highlight=False, emoji=False, soft_wrap=not wrap, stderr=stderr, width=width)


def ascii_json(document: bytes) -> str:
    """Returns the JSON on one line in ASCII, without control sequences for a terminal."""
    line = msgspec.json.format(document, indent=0).decode(errors="replace")
    return _NOT_ASCII.sub(lambda text: json.dumps(text[0])[1:-1], line)


def print_error(text: str) -> None:
    """Print a line on standard error. A terminal wraps it between words."""
    line = f"sparklag: {printable(text, _LONGEST_ERROR)}"
    if sys.stderr.isatty():
        width = get_terminal_size().columns
        line = fill(line, width, break_long_words=False, break_on_hyphens=False)
    typer.echo(line, err=True)


def print_json(document: object) -> None:
    typer.echo(json.dumps(document))
