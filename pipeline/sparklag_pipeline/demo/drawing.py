"""Draws the demo's story: live in a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sparklag_pipeline.demo.progress import Step, StepState, Story
from sparklag_schemas.lag_event import LagEvent, PartitionLag

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
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_TREND_SHOWN_S: Final = 90.0
_MAX_WIDTH: Final = 96
_BAR_WIDTH: Final = 24


def draw(
    story: Story, *, now: float, wall_ms: int, width: int = 80, height: int = 24
) -> RenderableType:
    """The whole picture. `now` is on the monotonic clock, `wall_ms` in epoch milliseconds."""
    elapsed = int(now - story.started_at)
    title = Table.grid(expand=True)
    title.add_column()
    title.add_column(justify="right")
    title.add_row(
        Text.assemble(("sparklag demo", "bold"), (f"  {elapsed // 60}:{elapsed % 60:02}", "dim")),
        Text("Ctrl-C ends everything", style="dim"),
    )
    about = Text("How far a PySpark query is behind the Kafka topic it reads, live.")
    about.stylize("dim")
    parts: list[RenderableType] = [title, about]
    everything_is_up = all(step.state == "done" for step in story.steps)
    if story.event is not None and everything_is_up:
        parts += [_one_line(story.steps), _lag_panel(story, now, wall_ms, width, height)]
    else:
        parts.append(_start_up(story.steps, now))
    if story.http_url is not None:
        parts += [Text(), _addresses(story)]
    return _narrowed(Group(*parts), width)


def plain_line(story: Story, *, now: float) -> str:
    """The lag, or what is being waited for, in one line."""
    elapsed = f"{now - story.started_at:6.1f} s"
    event = story.event
    if event is None or story.first_lag_s is None:
        busy = [f"{step.title} ({step.note})" for step in story.steps if step.state == "busy"]
        return f"{elapsed}  starting: {', '.join(busy) or 'waiting for the first lag event'}"
    arriving, processed = story.rates()
    partitions = " ".join(
        f"{partition.partition}:{_number(partition.lag)}"
        for topic in event.topics
        for partition in topic.partitions
    )
    return (
        f"{elapsed}  {event.display_name}  {event.status:<7}  lag {_number(event.total_lag):>7}"
        f"  arriving {_rate(arriving) or '-':>7}  processed {_rate(processed) or '-':>7}"
        f"  by partition {partitions}"
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


def _narrowed(content: RenderableType, width: int) -> RenderableType:
    frame = Table.grid(padding=(0, 1))
    frame.add_column(width=min(width - 2, _MAX_WIDTH))
    frame.add_row(content)
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


def _one_line(steps: Sequence[Step]) -> Text:
    line = Text()
    for step in steps[1:]:
        line.append_text(_MARKS[step.state])
        line.append(f" {step.title.lower()}   ", style="dim")
    return line


def _lag_panel(story: Story, now: float, wall_ms: int, width: int, height: int) -> RenderableType:
    event = story.event
    assert event is not None
    style = _STATUS_STYLES.get(event.status, "bold red")
    inner = min(width - 2, _MAX_WIDTH) - 6
    partitions = sum(len(topic.partitions) for topic in event.topics)
    chart_rows = max(2, min(6, height - 17 - partitions))
    headline = Text.assemble(
        ("lag ", "dim"),
        (_number(event.total_lag), f"bold {style}"),
        (" records   ", "dim"),
        _DIRECTIONS[story.direction()],
    )
    if event.reason:
        headline = Text.assemble(headline, "   ", (event.reason, style))
    parts: list[RenderableType] = [
        headline,
        _trend(story, now, inner, chart_rows),
        _rates(story, event),
        Text(),
        _partitions(event),
        Text(),
        _ages(story, event, wall_ms),
    ]
    return Panel(
        Group(*parts),
        title=Text.assemble(
            " query ", (event.display_name, "bold"), "  ", (f"{event.status} ", style)
        ),
        title_align="left",
        border_style=style,
        box=box.ROUNDED,
        padding=(0, 2),
    )


def _trend(story: Story, now: float, width: int, rows: int) -> Text:
    scale = _number(story.highest_lag)
    columns = story.columns(now, width - len(scale) - 2, _TREND_SHOWN_S)
    top = max((value for value in columns if value is not None), default=0)
    scale = _number(top)
    text = Text()
    for index, line in enumerate(chart(columns, rows)):
        label = scale if index == 0 else "0" if index == rows - 1 else ""
        text.append(f"{label:>{len(scale)}} ", style="dim")
        text.append(line.rstrip(), style="cyan")
        text.append("\n")
    text.rstrip()
    return text


def _rates(story: Story, event: LagEvent) -> Text:
    arriving, processed = story.rates()
    line = Text(no_wrap=True)
    for title, value in (
        ("arriving", _rate(arriving)),
        ("processed", _rate(processed)),
        ("oldest waiting", _seconds(event.max_time_lag_s)),
        ("caught up in", _seconds(event.catch_up_s)),
    ):
        if value is not None:
            line.append(f"{title} ", style="dim")
            line.append(f"{value}   ")
    return line


def _partitions(event: LagEvent) -> Table:
    rows = [(topic.topic, partition) for topic in event.topics for partition in topic.partitions]
    worst = max((partition.lag or 0 for _, partition in rows), default=0)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    table.add_column("partition", no_wrap=True)
    for title in ("processed", "latest", "lag"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", width=_BAR_WIDTH)
    # The age of the first unprocessed record, where the service knows it.
    ages_known = any(partition.time_lag_s is not None for _, partition in rows)
    table.add_column("oldest" if ages_known else "", justify="right", no_wrap=True)
    for topic, partition in rows:
        table.add_row(
            Text.assemble((f"{topic} ", "dim"), str(partition.partition)),
            _number(partition.processed_offset),
            _number(partition.latest_offset),
            Text(_number(partition.lag), style="bold"),
            _bar(partition, worst),
            _seconds(partition.time_lag_s) or "",
        )
    return table


def _bar(partition: PartitionLag, worst: int) -> Text:
    if partition.lag is None:
        return Text(partition.reason or "not known", style="dim", overflow="ellipsis")
    length = round(_BAR_WIDTH * partition.lag / worst) if worst else 0
    return Text("━" * length, style=_STATUS_STYLES.get(partition.status, "red"))


def _ages(story: Story, event: LagEvent, wall_ms: int) -> Text:
    parts = ["no batch yet" if event.batch_id is None else f"batch {event.batch_id:,}"]
    if event.batch is not None and event.batch.duration_ms is not None:
        parts[0] += f": {event.batch.rows:,} orders in {event.batch.duration_ms / 1000:.1f} s"
    if event.processed_at is not None:
        parts[0] += f", {_age(event.processed_at, wall_ms)}"
    parts.append(f"measured {_age(event.measured_at, wall_ms)}")
    parts.append(f"event {story.events:,}")
    return Text(" · ".join(parts), style="dim", no_wrap=True)


def _addresses(story: Story) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("the lag, over REST", f"curl {story.http_url}/lag/{story.query}")
    table.add_row("every REST call", f"{story.http_url}/docs")
    table.add_row(
        "the lag events", f"{story.command} tail --bootstrap-servers {story.bootstrap_servers}"
    )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}/s"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f} s"


def _age(epoch_ms: int, wall_ms: int) -> str:
    return f"{max(0, wall_ms - epoch_ms) / 1000:.1f} s ago"
