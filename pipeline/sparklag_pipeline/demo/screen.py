"""The demo's output: lines, and in a terminal the newest lag below them."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparklag_schemas.formatting import per_second, records
from sparklag_schemas.lag_event import LagEvent
from sparklag_service.cli.lag import render

_LINE_EVERY_S: Final = 3.0
_HINT: Final = Text("Ctrl-C ends everything", style="dim")


class Screen:
    """Prints lines, each with the seconds since the start.

    While `live` is entered, a terminal shows the newest lag below them, in its place; a file or a
    pipe gets it as a line every few seconds.
    """

    def __init__(self, console: Console, started_at: float) -> None:
        self.live = Live(
            _HINT, console=console, auto_refresh=False, transient=not console.is_interactive
        )
        self._console = console
        self._started_at = started_at
        self._last_line_at = 0.0

    def print(self, text: str) -> None:
        self._console.print(text, markup=False, emoji=False, soft_wrap=True)

    def report(self, text: str) -> None:
        """Print what happens now."""
        self.print(f"{time.monotonic() - self._started_at:6.1f} s  {text}")

    def show(self, event: LagEvent, now_ms: int, addresses: dict[str, str]) -> None:
        """Show the lag. `addresses` are texts by their titles."""
        self.live.update(lag_picture(event, now_ms, addresses), refresh=True)
        now = time.monotonic()
        if not self._console.is_interactive and now - self._last_line_at >= _LINE_EVERY_S:
            self._last_line_at = now
            self.report(plain_line(event))


def lag_picture(event: LagEvent, now_ms: int, addresses: dict[str, str]) -> RenderableType:
    """As `sparklag lag` shows it, with the addresses."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for title, address in addresses.items():
        table.add_row(title, address)
    return Group(render(event, now_ms), Text(), table, _HINT)


def plain_line(event: LagEvent) -> str:
    """The lag in one line."""
    partitions = " ".join(
        f"{partition.partition}:{records(partition.lag)}"
        for topic in event.topics
        for partition in topic.partitions
    )
    return (
        f"{event.display_name}  {event.status:<7}  lag {records(event.total_lag):>7}"
        f"  arriving {per_second(event.input_rate):>7}"
        f"  processed {per_second(event.processed_rate):>7}  by partition {partitions}"
    )
