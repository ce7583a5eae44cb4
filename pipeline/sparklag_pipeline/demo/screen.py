"""Shows the demo's state: live in a terminal, line by line in a file or a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sparklag_pipeline.demo.state import DemoState, Step, StepState
from sparklag_schemas.formatting import per_second, records, span
from sparklag_schemas.lag_event import LagEvent, PartitionLag
from sparklag_schemas.timestamps import epoch_ms

_STATUS_STYLES: Final = {"OK": "green", "WARN": "yellow", "FINISHED": "blue", "UNKNOWN": "dim"}
_MARKS: Final[dict[StepState, Text]] = {
    "waiting": Text("·", style="dim"),
    "done": Text("✓", style="green"),
    "failed": Text("✗", style="bold red"),
}
_DIRECTIONS: Final = {
    "rising": Text("rising: orders outrun the query", style="yellow"),
    "falling": Text("falling: the query catches up", style="green"),
    "steady": Text("steady", style="dim"),
}
_STEP_LINES: Final = {"busy": "...", "done": "ready", "failed": "FAILED"}
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_CHART_S: Final = 90.0
_MAX_WIDTH: Final = 96
_BAR_WIDTH: Final = 24
_LINE_EVERY_S: Final = 3.0


@contextmanager
def showing(state: DemoState, console: Console) -> Iterator[Callable[[], None]]:
    """Show the state while the block runs, and leave its end on the screen.

    Yields what must be called when the state has changed.
    """
    if console.is_terminal:

        def picture() -> RenderableType:
            size = console.size
            return draw(state, time.monotonic(), epoch_ms(), size.width, size.height)

        # It draws from a thread of its own: during the start the main thread is blocked.
        with Live(console=console, get_renderable=picture, refresh_per_second=8):
            yield lambda: None
    else:
        lines = _Lines(state, console)
        try:
            yield lines.refresh
        finally:
            lines.refresh()


def print_line(console: Console, text: str) -> None:
    console.print(text, markup=False, emoji=False, soft_wrap=True)


class _Lines:
    def __init__(self, state: DemoState, console: Console) -> None:
        self._state = state
        self._console = console
        self._states: dict[str, StepState] = {}
        self._address_is_shown = False
        self._last_line_at = 0.0

    def refresh(self) -> None:
        """Print what has changed, and the lag every few seconds."""
        state, now = self._state, time.monotonic()
        for step in state.steps:
            if step.state != self._states.get(step.title, "waiting"):
                self._states[step.title] = step.state
                text = f"{step.title}: {step.note} {_STEP_LINES[step.state]}"
                print_line(self._console, f"{now - state.started_at:6.1f} s  {text}")
        if state.event is not None and not self._address_is_shown:
            self._address_is_shown = True
            print_line(self._console, f"          curl {state.http_url}/lag/{state.query}")
        if now - self._last_line_at >= _LINE_EVERY_S:
            self._last_line_at = now
            print_line(self._console, plain_line(state, now))


def plain_line(state: DemoState, now: float) -> str:
    """The lag, or what is being started, in one line."""
    elapsed = f"{now - state.started_at:6.1f} s"
    event = state.event
    if event is None or state.first_lag_s is None:
        busy = [f"{step.title} ({step.note})" for step in state.steps if step.state == "busy"]
        return f"{elapsed}  starting: {', '.join(busy) or 'waiting for the first lag event'}"
    partitions = " ".join(
        f"{partition.partition}:{records(partition.lag)}" for _, partition in _partitions(event)
    )
    return (
        f"{elapsed}  {event.display_name}  {event.status:<7}  lag {records(event.total_lag):>7}"
        f"  arriving {per_second(event.input_rate):>7}"
        f"  processed {per_second(event.processed_rate):>7}  by partition {partitions}"
    )


def draw(state: DemoState, now: float, wall_ms: int, width: int, height: int) -> RenderableType:
    """The whole screen. `now` is on the monotonic clock, `wall_ms` in epoch milliseconds."""
    elapsed = int(now - state.started_at)
    title = Table.grid(expand=True)
    title.add_column()
    title.add_column(justify="right", style="dim")
    title.add_row(
        Text.assemble(("sparklag demo", "bold"), (f"  {elapsed // 60}:{elapsed % 60:02}", "dim")),
        "Ctrl-C ends everything",
    )
    about = Text("How far a PySpark query is behind the Kafka topic it reads, live.", style="dim")
    parts: list[RenderableType] = [title, about]
    width = min(width - 2, _MAX_WIDTH)
    if state.event is not None and all(step.state == "done" for step in state.steps):
        titles = (step.title.lower() for step in state.steps[1:])
        parts.append(
            Text("   ").join(Text.assemble(_MARKS["done"], f" {title}") for title in titles)
        )
        parts.append(_lag_panel(state, state.event, now, wall_ms, width, height))
    else:
        parts.append(_start_up(state.steps, now))
    if state.http_url is not None:
        parts += [Text(), _addresses(state)]
    frame = Table.grid(padding=(0, 1))
    frame.add_column(width=width)
    frame.add_row(Group(*parts))
    return frame


def _start_up(steps: Sequence[Step], now: float) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=2)
    table.add_column(style="bold")
    table.add_column()
    table.add_column(justify="right", style="dim")
    for step in steps:
        busy = step.state == "busy"
        seconds = step.seconds(now)
        table.add_row(
            Spinner("dots", style="cyan") if busy else _MARKS[step.state],
            Text(step.title, style="" if step.state != "waiting" else "dim"),
            Text(step.note, style="" if busy else "dim"),
            "" if seconds is None else f"{seconds:.0f} s",
        )
    return table


def _lag_panel(
    state: DemoState, event: LagEvent, now: float, wall_ms: int, width: int, height: int
) -> RenderableType:
    style = _STATUS_STYLES.get(event.status, "bold red")
    rows = max(2, min(6, height - 17 - len(_partitions(event))))
    headline = Text.assemble(
        ("lag ", "dim"),
        (records(event.total_lag), f"bold {style}"),
        ("" if event.total_lag is None else " records", "dim"),
        "   ",
        _DIRECTIONS[state.direction()],
    )
    if event.reason:
        headline.append(f"   {event.reason}", style)
    return Panel(
        Group(
            headline,
            _trend(state.columns(now, width - 16, _CHART_S), rows),
            _rates(event),
            Text(),
            _partition_table(event),
            Text(),
            _ages(event, wall_ms),
        ),
        title=Text.assemble(
            " query ", (event.display_name, "bold"), "  ", (f"{event.status} ", style)
        ),
        title_align="left",
        subtitle=Text(f" {state.events:,} lag events ", style="dim"),
        subtitle_align="right",
        border_style=style,
        box=box.ROUNDED,
        padding=(0, 2),
    )


def chart(columns: Sequence[int | None], rows: int) -> list[str]:
    """The numbers as bars of `rows` lines, top line first; the highest fills them all."""
    top = max((value for value in columns if value is not None), default=0)
    heights = [
        0 if not value or not top else max(1, round(value / top * rows * 8)) for value in columns
    ]
    return [
        "".join(_EIGHTHS[min(8, max(0, height - row * 8))] for height in heights)
        for row in reversed(range(rows))
    ]


def _trend(columns: Sequence[int | None], rows: int) -> Text:
    top = max((value for value in columns if value is not None), default=0)
    labels = [records(top), *[""] * (rows - 2), "0"]
    width = len(labels[0])
    lines = [
        Text.assemble((f"{label:>{width}} ", "dim"), (bars, "cyan"))
        for label, bars in zip(labels, chart(columns, rows), strict=True)
    ]
    return Text("\n", no_wrap=True).join(lines)


def _rates(event: LagEvent) -> Text:
    """The figures that are known."""
    line = Text(no_wrap=True)
    for title, value, formatted in (
        ("arriving", event.input_rate, per_second),
        ("processed", event.processed_rate, per_second),
        ("oldest", event.max_time_lag_s, span),
        ("caught up in", event.catch_up_s, span),
    ):
        if value is not None:
            line.append(f"{title} ", style="dim")
            line.append(f"{formatted(value)}  ")
    return line


def _partitions(event: LagEvent) -> list[tuple[str, PartitionLag]]:
    return [(topic.topic, partition) for topic in event.topics for partition in topic.partitions]


def _partition_table(event: LagEvent) -> Table:
    rows = _partitions(event)
    worst = max((partition.lag or 0 for _, partition in rows), default=0)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("partition", no_wrap=True)
    for title in ("processed", "latest", "lag"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", width=_BAR_WIDTH)
    has_ages = any(partition.time_lag_s is not None for _, partition in rows)
    table.add_column("oldest" if has_ages else "", justify="right", no_wrap=True)
    for topic, partition in rows:
        age_s = partition.time_lag_s
        table.add_row(
            Text.assemble((f"{topic} ", "dim"), str(partition.partition)),
            records(partition.processed_offset),
            records(partition.latest_offset),
            Text(records(partition.lag), style="bold"),
            _bar(partition, worst),
            "" if age_s is None else span(age_s),
        )
    return table


def _bar(partition: PartitionLag, worst: int) -> RenderableType:
    if partition.lag is None:
        return Text(partition.reason or "", style="dim", overflow="ellipsis")
    style = _STATUS_STYLES.get(partition.status, "red")
    return ProgressBar(
        total=max(worst, 1),
        completed=partition.lag,
        width=_BAR_WIDTH,
        complete_style=style,
        finished_style=style,
    )


def _ages(event: LagEvent, wall_ms: int) -> Text:
    batch = "no batch yet" if event.batch_id is None else f"batch {event.batch_id:,}"
    if event.batch is not None and event.batch.duration_ms is not None:
        batch += f": {event.batch.rows:,} orders in {span(event.batch.duration_ms / 1000)}"
    if event.processed_at is not None:
        batch += f", {_age(event.processed_at, wall_ms)}"
    measured = f"measured {_age(event.measured_at, wall_ms)}"
    return Text(f"{batch} · {measured}", style="dim", no_wrap=True)


def _addresses(state: DemoState) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("the lag, over REST", f"curl {state.http_url}/lag/{state.query}")
    table.add_row("every REST call", f"{state.http_url}/docs")
    table.add_row(
        "the lag events", f"{state.command} tail --bootstrap-servers {state.bootstrap_servers}"
    )
    return table


def _age(at_ms: int, wall_ms: int) -> str:
    return f"{span(max(0, wall_ms - at_ms) / 1000)} ago"
