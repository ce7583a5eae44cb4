"""The output of the demo: its progress, and the next steps."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sparklag_jobs.demo.processes import QueryLag
from sparklag_schemas.messages.lag_event import LagEvent
from sparklag_schemas.presentation.rows import CELLS, partitions_of, worst_partition
from sparklag_schemas.presentation.sentences import place
from sparklag_schemas.presentation.tables import Column, FittedTable, headline, plain, status_cell
from sparklag_schemas.text.formatting import per_second, records
from sparklag_schemas.text.printable import printable


def next_steps(command: str) -> str:
    """How to see the lag of one's own query. `command`: what to type for `sparklag`. Pure."""
    return f"""\
Next, a query of your own: two lines in its driver,
  import sparklag
  handle = sparklag.observe(spark)
or none, where the job starts with
  {command}-run spark-submit job.py
and then the service; or its checkpoint alone:
  {command} serve --bootstrap-servers BROKER:9092
  {command} checkpoint PATH --bootstrap-servers BROKER:9092
A broker to try with:
  {command} demo --kafka-only"""


def broker_usage(servers: str, command: str, python: str) -> str:
    """How to use a broker at `servers`. Pure."""
    options = f"--bootstrap-servers {servers}"
    return f"""\
The service, and its lag events:
  {command} serve {options}
  {command} tail {options}
Orders to read, and a query of them:
  {python} -m sparklag_jobs.demo.order_producer \\
    {options}
  {python} -m sparklag_jobs.demo.order_totals \\
    {options}
In your own query:
  .option("kafka.bootstrap.servers", "{servers}")
The broker creates no topic itself: `order_producer --topic NAME` creates one."""


def own_command() -> str:
    """What to type for `sparklag`: its path if PATH has another or none."""
    own = Path(sys.executable).with_name("sparklag")
    if shutil.which("sparklag") == str(own) or not own.exists():
        return "sparklag"
    return _shown(own)


def own_python() -> str:
    """What to type for the Python that runs the demo."""
    return _shown(Path(sys.executable))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


_LINES_EVERY_S: Final = 3.0
_HINT: Final = Text("Ctrl-C ends everything", style="dim")
_STARTING: Final = Text("starting", style="dim")
_COLUMNS: Final = (
    Column("query", "name", 0),
    Column("status", "name", 1),
    Column("lag", "number", 2),
    Column("time lag", "number", 3),
    Column("trend", "number", 5),
    Column("catch-up", "number", 6),
    Column("worst partition", "number", 4),
)


class Screen:
    """Prints lines, each with the seconds since the start.

    While `live` is entered, a terminal shows the newest lag in place below the lines. A file or a
    pipe gets it as lines every few seconds.
    """

    def __init__(self, console: Console, started_at: float) -> None:
        self.live = Live(
            _HINT, console=console, auto_refresh=False, transient=not console.is_interactive
        )
        self._console = console
        self._started_at = started_at
        self._last_lines_at = 0.0

    def print(self, text: str) -> None:
        # A pipe or a file gets lines of any length.
        soft_wrap = not self._console.is_interactive
        self._console.print(text, markup=False, emoji=False, soft_wrap=soft_wrap)

    def report(self, text: str) -> None:
        self.print(f"{time.monotonic() - self._started_at:6.1f} s  {text}")

    def announce(self, title: str, text: str) -> None:
        """Print important text: large in a terminal, otherwise as a line."""
        if self._console.is_interactive:
            shown = Text(text, style="bold")
            self._console.print(Panel(shown, title=title, padding=(1, 4), expand=False))
        else:
            self.report(f"{title}: {text}")

    def show(self, lags: Sequence[QueryLag], now_ms: int, addresses: dict[str, str]) -> None:
        """Show the lag of the queries. `addresses`: texts by title."""
        self.live.update(lag_picture(lags, now_ms, addresses), refresh=True)
        now = time.monotonic()
        if not self._console.is_interactive and now - self._last_lines_at >= _LINES_EVERY_S:
            events = [each.event for each in lags if each.event and each.first_lag_s is not None]
            if events:
                for title in () if self._last_lines_at else addresses:
                    self.report(f"{title}: {addresses[title]}")
                self._last_lines_at = now
            for event in events:
                self.report(plain_line(event))


def lag_picture(lags: Sequence[QueryLag], now_ms: int, addresses: dict[str, str]) -> RenderableType:
    """A row for each query, the reasons of those that are not OK, and the addresses."""
    rows: list[Sequence[str | Text]] = []
    reasons = []
    for lag in lags:
        if lag.event is None or lag.first_lag_s is None:
            rows.append((plain(lag.query), _STARTING, *[""] * (len(_COLUMNS) - 2)))
            continue
        rows.append(_cells(lag.event, now_ms))
        if lag.event.reason:
            reasons.append(headline(lag.event, now_ms))
    links = Table.grid(padding=(0, 2))
    links.add_column(style="dim")
    links.add_column()
    for title, address in addresses.items():
        links.add_row(title, address)
    return Group(FittedTable(_COLUMNS, rows), Text(), *reasons, Text(), links, _HINT)


def _cells(event: LagEvent, now_ms: int) -> tuple[str | Text, ...]:
    worst = worst_partition(event)
    return (
        Text(plain(event.display_name), "bold"),
        status_cell(event),
        *(CELLS[column.heading](event, now_ms) for column in _COLUMNS[2:-1]),
        f"{records(worst[1].unread)} in {plain(place(*worst))}"
        if worst and worst[1].unread
        else "",
    )


def plain_line(event: LagEvent) -> str:
    partitions = " ".join(
        f"{partition.partition}:{records(partition.unread)}"
        for _, partition in partitions_of(event)
    )
    return (
        f"{printable(event.display_name):<8}  {printable(event.status):<7}"
        f"  lag {records(event.total_lag):>7}"
        f"  input {per_second(event.input_rate):>7}"
        f"  processed {per_second(event.processed_rate):>7}  by partition {partitions}"
        + (f"  {printable(event.reason)}" if event.reason else "")
    )
