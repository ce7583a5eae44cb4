"""`sparklag lag QUERY --watch`: reads a query's lag again and again, and shows what changed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NamedTuple

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sparklag_schemas import LagEvent, SparklagError
from sparklag_schemas.text.formatting import ago
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.publishing.published_query import has_changed


class Reading(NamedTuple):
    """An event, and the JSON it came as."""

    event: LagEvent
    document: bytes


Read = Callable[[], Reading]
"""Raises ServiceError."""


def refresh_in_place(
    read: Read, interval_s: float, console: Console, render: Callable[[LagEvent], RenderableType]
) -> None:
    """Keep the newest event on the terminal until Ctrl-C, and say since when there is none.

    Raises ServiceError where the first request fails.
    """
    signal.signal(signal.SIGTERM, _exit)  # the terminal's cursor is hidden meanwhile
    shown: LagEvent | None = None
    read_at_ms = 0
    with Live(console=console, auto_refresh=False) as live:
        for reading in _readings(read, interval_s):
            parts: list[RenderableType] = []
            if isinstance(reading, Reading):
                shown, read_at_ms = reading.event, epoch_ms()
            else:
                age = ago(read_at_ms, epoch_ms())
                parts = [Text(f"\nNO ANSWER, shown as of {age}: {_line(reading)}", "bold red")]
            if shown is not None:
                live.update(Group(render(shown), *parts), refresh=True)


def print_changes(read: Read, interval_s: float, show: Callable[[Reading], None]) -> None:
    """Show the first event, and each that differs by more than its age, until Ctrl-C.

    Standard error says once that there is no answer. Raises ServiceError where the first request
    fails.
    """
    shown: LagEvent | None = None
    error: str | None = None
    for reading in _readings(read, interval_s):
        if not isinstance(reading, Reading):
            if error is None:
                typer.echo(f"sparklag: no answer, waiting: {_line(reading)}", err=True)
            error = str(reading)
            continue
        if error is not None:
            typer.echo("sparklag: the service answers again", err=True)
            error = None
        if shown is None or has_changed(shown, reading.event):
            shown = reading.event
            show(reading)


def _readings(read: Read, interval_s: float) -> Iterator[Reading | SparklagError]:
    """One after the other; an error where there is no answer, but for the first: then the name or
    the address may be wrong."""
    yield read()
    while True:
        time.sleep(interval_s)
        yield _attempt(read)


def _attempt(read: Read) -> Reading | SparklagError:
    try:
        return read()
    except SparklagError as error:
        return error


def _line(error: SparklagError) -> str:
    return printable(str(error), 2_000)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
