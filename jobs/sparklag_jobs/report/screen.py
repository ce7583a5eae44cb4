"""The report's figures as text for people, and its tables in a terminal. Unknown is a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Final

from rich.console import Console
from rich.text import Text

from sparklag_jobs.report.query_report import Episode, QueryReport
from sparklag_schemas.messages.enumerations import Mark
from sparklag_schemas.presentation.rows import COLOURS
from sparklag_schemas.presentation.tables import Column, FittedTable
from sparklag_schemas.text import formatting
from sparklag_schemas.text.printable import printable

UNKNOWN: Final = "–"  # noqa: RUF001  # an en dash, as tables have it


def share(value: float | None) -> str:
    """99.95 %: rounded down, so that 100 % means the whole time."""
    return UNKNOWN if value is None else f"{int(value * 10_000) / 100:.2f} %"


def records(value: float | None) -> str:
    """1,234; 5.6 M."""
    if value is None:
        return UNKNOWN
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {letter}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Records a second."""
    return UNKNOWN if value is None else formatting.per_second(value)


def duration(seconds: float | None) -> str:
    """4.2 s, 12 min, 3.5 h, 2.1 days."""
    return UNKNOWN if seconds is None else formatting.span(seconds)


def utc(at_ms: int) -> str:
    """2026-11-22 13:05."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M")


def overview(report: QueryReport) -> dict[str, str]:
    """The cells of a query, by column title."""
    lags, ages = report.lag, report.time_lag_s
    return {
        "in target": share(report.share_within_target),
        "known": duration(report.known_s),
        "missed": f"{len(report.episodes)}×",
        "longest": duration(report.longest_episode_s),
        "time lag p95": duration(ages.p95 if ages else None),
        "time lag max": duration(ages.max if ages else None),
        "lag p95": records(lags.p95 if lags else None),
        "lag max": records(lags.max if lags else None),
        "processed": records(report.processed),
    }


def outlook(report: QueryReport) -> dict[str, str]:
    """The text cells of a query, by column title."""
    worst = report.worst[0] if report.worst else None
    return {
        "lag trend": _trend(report),
        "capacity": _capacity(report),
        "worst partition": UNKNOWN
        if worst is None
        else printable(f"{records(worst.max_lag)} in {worst.topic}[{worst.partition}]"),
    }


def episode_cells(episode: Episode) -> dict[str, str]:
    """The cells of an episode, by column title."""
    return {
        "missed from": utc(episode.from_ms),
        "to": utc(episode.to_ms),
        "for": duration(episode.duration_s),
        "lag max": records(episode.max_lag),
        "time lag max": duration(episode.max_time_lag_s),
    }


def _trend(report: QueryReport) -> str:
    """rising, +120/h."""
    if report.trend is None:
        return UNKNOWN
    if report.trend.direction == "steady":
        return "steady"
    slope = report.trend.slope
    return f"{report.trend.direction}, {slope:+,.{0 if abs(slope) >= 10 else 2}f}/h"


def _capacity(report: QueryReport) -> str:
    """The used share of the capacity, and when it is exceeded, or why that is unknown."""
    capacity = report.capacity
    if capacity.utilisation is None:
        return capacity.reason or UNKNOWN
    at_ms = capacity.passed_at_ms
    when = f"passed {utc(at_ms)[:10]}" if at_ms else capacity.reason
    return f"{capacity.utilisation:.0%}, {when}"


def _number(heading: str, rank: int) -> Column:
    return Column(heading, "number", rank)


_EPISODES: Final = 10
_NAME: Final = Column("query", "name", 0)
_OVERVIEW: Final = (
    *(_NAME, _number("in target", 1), _number("known", 9), _number("missed", 2)),
    *(_number("longest", 5), _number("time lag p95", 6), _number("time lag max", 4)),
    *(_number("lag p95", 7), _number("lag max", 3), _number("processed", 8)),
)
_OUTLOOK: Final = (
    _NAME,
    Column("lag trend", "word", 1),
    Column("capacity", "text", 2),
    Column("worst partition", "text", 3),
)
_EPISODE: Final = (
    *(_NAME, _number("missed from", 1), _number("to", 4), _number("for", 2)),
    *(_number("lag max", 3), _number("time lag max", 5)),
)


def print_report(
    console: Console, reports: Sequence[QueryReport], since_ms: int, until_ms: int
) -> None:
    """Print the queries, the worst first, then the longest episodes of all, then the outlook."""
    console.print(
        f"Lag from {utc(since_ms)} to {utc(until_ms)} UTC,"
        f" {len(reports)} {'query' if len(reports) == 1 else 'queries'}, the worst first"
    )
    _print(console, _OVERVIEW, [_overview(report) for report in reports])
    episodes = [(report, episode) for report in reports for episode in report.episodes]
    episodes.sort(key=lambda pair: -pair[1].duration_s)
    if episodes:
        count = len(episodes)
        longest = f" (the {_EPISODES} longest of {count})" if count > _EPISODES else ""
        rows = [
            {**_name(report), **episode_cells(episode)} for report, episode in episodes[:_EPISODES]
        ]
        _print(console, _EPISODE, rows, f"Target missed{longest}")
    rows = [{**_name(report), **outlook(report)} for report in reports]
    _print(console, _OUTLOOK, rows, "Outlook")


def _overview(report: QueryReport) -> dict[str, str | Text]:
    cells: dict[str, str | Text] = {**_name(report), **overview(report)}
    within = report.share_within_target
    if within is not None:
        mark: Mark = "ok" if within >= 0.999 else "warn" if within >= 0.95 else "bad"
        cells["in target"] = Text(share(within), COLOURS[mark])
    return cells


def _name(report: QueryReport) -> dict[str, str]:
    return {_NAME.heading: report.display_name}


def _print(
    console: Console,
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, str | Text]],
    title: str = "",
) -> None:
    cells = [[row[column.heading] for column in columns] for row in rows]
    if title:
        console.print()
    console.print(FittedTable(columns, cells, title=title))
