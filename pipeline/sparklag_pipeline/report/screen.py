"""The report in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sparklag_pipeline.report import formatting
from sparklag_pipeline.report.query_report import QueryReport
from sparklag_schemas.printable import printable

_WIDE: Final = 130
_EPISODES: Final = 10


def print_report(
    console: Console, reports: Sequence[QueryReport], since_ms: int, until_ms: int
) -> None:
    """Queries, the worst first, then the longest episodes of all."""
    console.print(
        f"Lag from {formatting.moment(since_ms)} to {formatting.moment(until_ms)} UTC,"
        f" {len(reports)} {'query' if len(reports) == 1 else 'queries'}, the worst first"
    )
    console.print(Group(*_tables(reports, wide=console.width >= _WIDE)))


def _tables(reports: Sequence[QueryReport], *, wide: bool) -> Iterator[RenderableType]:
    yield _queries(reports, wide=wide)
    if any(report.episodes for report in reports):
        yield _episodes(reports)
    if not wide:
        yield _outlook(reports)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        # Names and words go left and may be cut in two; numbers go right and may not.
        is_text = name in ("query", "lag trend", "capacity", "worst partition")
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    return table


def _queries(reports: Sequence[QueryReport], *, wide: bool) -> Table:
    columns = ["query", "in target", "known", "missed", "longest", "age p95", "age max"]
    columns += ["lag p95", "lag max", "processed"]
    if wide:
        columns += ["lag trend", "capacity", "worst partition"]
    table = _table(*columns)
    for report in reports:
        longest = report.longest
        cells: list[str | Text] = [
            escape(report.display_name),
            _coloured(report.share_within_target),
            formatting.duration(report.known_s),
            f"{len(report.episodes)}×",
            formatting.duration(longest.duration_s if longest else None),
            formatting.duration(report.time_lag_s.p95 if report.time_lag_s else None),
            formatting.duration(report.time_lag_s.max if report.time_lag_s else None),
            formatting.records(report.lag.p95 if report.lag else None),
            formatting.records(report.lag.max if report.lag else None),
            formatting.records(report.processed),
        ]
        if wide:
            cells += [formatting.trend(report), formatting.capacity(report), _worst(report)]
        table.add_row(*cells)
    return table


def _outlook(reports: Sequence[QueryReport]) -> Table:
    table = _table("query", "lag trend", "capacity", "worst partition")
    table.title = "\nOutlook"
    table.title_justify = "left"
    for report in reports:
        table.add_row(
            escape(report.display_name),
            formatting.trend(report),
            formatting.capacity(report),
            _worst(report),
        )
    return table


def _episodes(reports: Sequence[QueryReport]) -> Table:
    every = [(report, episode) for report in reports for episode in report.episodes]
    every.sort(key=lambda pair: -pair[1].duration_s)
    table = _table("query", "missed from", "to", "for", "lag max", "age max")
    left = f" (the {_EPISODES} longest of {len(every)})" if len(every) > _EPISODES else ""
    table.title = f"\nTarget missed{left}"
    table.title_justify = "left"
    for report, episode in every[:_EPISODES]:
        table.add_row(
            escape(report.display_name),
            formatting.moment(episode.from_ms),
            formatting.moment(episode.to_ms),
            formatting.duration(episode.duration_s),
            formatting.records(episode.max_lag),
            formatting.duration(episode.max_time_lag_s),
        )
    return table


def _coloured(value: float | None) -> Text:
    if value is None:
        return Text(formatting.UNKNOWN)
    style = "green" if value >= 0.999 else "yellow" if value >= 0.95 else "red"
    return Text(formatting.share(value), style=style)


def _worst(report: QueryReport) -> str:
    if not report.worst:
        return formatting.UNKNOWN
    one = report.worst[0]
    return escape(printable(f"{one.topic} {one.partition}: {formatting.records(one.max_lag)}"))
