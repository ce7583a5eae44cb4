"""The report in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from sparklag_jobs.report import formatting
from sparklag_jobs.report.query_report import QueryReport
from sparklag_schemas.presentation.rows import COLOURS
from sparklag_schemas.presentation.tables import Column, FittedTable
from sparklag_schemas.text.formatting import Mark

_EPISODES: Final = 10
_NAME: Final = Column("query", "name", 0)
_OVERVIEW: Final = (
    _NAME,
    Column("in target", "number", 1),
    Column("known", "number", 9),
    Column("missed", "number", 2),
    Column("longest", "number", 5),
    Column("age p95", "number", 6),
    Column("age max", "number", 4),
    Column("lag p95", "number", 7),
    Column("lag max", "number", 3),
    Column("processed", "number", 8),
)
_OUTLOOK: Final = (
    _NAME,
    Column("lag trend", "word", 1),
    Column("capacity", "text", 2),
    Column("worst partition", "text", 3),
)
_EPISODE: Final = (
    _NAME,
    Column("missed from", "number", 1),
    Column("to", "number", 4),
    Column("for", "number", 2),
    Column("lag max", "number", 3),
    Column("age max", "number", 5),
)


def print_report(
    console: Console, reports: Sequence[QueryReport], since_ms: int, until_ms: int
) -> None:
    """Queries, the worst first, then the longest episodes of all, then the outlook."""
    console.print(
        f"Lag from {formatting.utc(since_ms)} to {formatting.utc(until_ms)} UTC,"
        f" {len(reports)} {'query' if len(reports) == 1 else 'queries'}, the worst first"
    )
    _print(console, _OVERVIEW, [_overview(report) for report in reports])
    episodes = [(report, episode) for report in reports for episode in report.episodes]
    episodes.sort(key=lambda pair: -pair[1].duration_s)
    if episodes:
        count = len(episodes)
        longest = f" (the {_EPISODES} longest of {count})" if count > _EPISODES else ""
        rows = [
            {**_name(report), **formatting.episode_cells(episode)}
            for report, episode in episodes[:_EPISODES]
        ]
        _print(console, _EPISODE, rows, f"Target missed{longest}")
    outlook = [{**_name(report), **formatting.outlook(report)} for report in reports]
    _print(console, _OUTLOOK, outlook, "Outlook")


def _overview(report: QueryReport) -> dict[str, str | Text]:
    cells: dict[str, str | Text] = {**_name(report), **formatting.overview(report)}
    share = report.share_within_target
    if share is not None:
        mark: Mark = "ok" if share >= 0.999 else "warn" if share >= 0.95 else "bad"
        cells["in target"] = Text(formatting.share(share), COLOURS[mark])
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
