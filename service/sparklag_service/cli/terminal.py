"""What several commands take and print. Text of others must neither mark up the terminal nor
control it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isnan
from pathlib import Path
from typing import Annotated

import rich.markup
import typer
from rich.console import Console
from rich.table import Table

from sparklag_schemas import ResolvedSettings, load_settings
from sparklag_schemas.printable import printable


def _refuse_nan(seconds: float) -> float:
    if isnan(seconds):  # no bound refuses it
        raise typer.BadParameter("it takes a number of seconds")
    return seconds


Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file. [default: sparklag.toml, if there]")
]
BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", help="Kafka, as host:port[,host:port].")
]
Url = Annotated[
    str,
    typer.Option("--url", envvar="SPARKLAG_URL", help="A running service."),
]
Interval = Annotated[
    float,
    typer.Option(min=0.5, max=3_600, callback=_refuse_nan, help="Seconds between two requests."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for a program.")]

DEFAULT_URL = "http://127.0.0.1:8085"


def kafka_settings(config: Path | None, bootstrap_servers: str | None) -> ResolvedSettings:
    """The settings. Raises SettingsError where nothing says where Kafka is."""
    return load_settings(
        config=config, overrides={"bootstrap_servers": bootstrap_servers}
    ).resolved()


def console(*, wrap: bool = False, stderr: bool = False) -> Console:
    """On standard output, or on standard error; lines are not broken unless `wrap`."""
    return Console(highlight=False, soft_wrap=not wrap, stderr=stderr)


def table(headings: Iterable[str], *, left: Iterable[str] = ("topic", "")) -> Table:
    """Without borders; columns are aligned right, but those in `left`."""
    plain = Table(box=None, pad_edge=False)
    for heading in headings:
        plain.add_column(heading, justify="left" if heading in left else "right")
    return plain


def escape(text: str) -> str:
    """`text` as rich prints it on one line: neither its markup nor the terminal obeys it."""
    return rich.markup.escape(printable(text, len(text)))


def ascii_json(document: bytes | str) -> str:
    """The same JSON on one line and in ASCII: the terminal obeys nothing in it either."""
    return json.dumps(json.loads(document))


def print_json(document: object) -> None:
    """On one line and in ASCII."""
    typer.echo(json.dumps(document))
