"""The report in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from sparklag_pipeline.report import formatting
from sparklag_pipeline.report.query_report import QueryReport

_WIDE: Final = 130
_EPISODES: Final = 10


def print_report(
    console: Console, reports: Sequence[QueryReport], since_ms: int, until_ms: int
) -> None:
    """Queries, the worst first, then the longest episodes of all."""
    console.print(
        f"Lag from {formatting.utc(since_ms)} to {formatting.utc(until_ms)} UTC,"
        f" {len(reports)} {'query' if len(reports) == 1 else 'queries'}, the worst first"
    )
    console.print(Group(*_tables(reports, wide=console.width >= _WIDE)))


def _tables(reports: Sequence[QueryReport], *, wide: bool) -> Iterator[RenderableType]:
    queries = [_overview(report) for report in reports]
    outlooks = [{**_name(report), **formatting.outlook(report)} for report in reports]
    if wide:
        queries = [query | outlook for query, outlook in zip(queries, outlooks, strict=True)]
    yield _table(queries)
    episodes = [(report, episode) for report in reports for episode in report.episodes]
    episodes.sort(key=lambda pair: -pair[1].duration_s)
    if episodes:
        count = len(episodes)
        longest = f" (the {_EPISODES} longest of {count})" if count > _EPISODES else ""
        yield _table(
            [
                {**_name(report), **formatting.episode_cells(episode)}
                for report, episode in episodes[:_EPISODES]
            ],
            f"Target missed{longest}",
        )
    if not wide:
        yield _table(outlooks, "Outlook")


def _overview(report: QueryReport) -> dict[str, str]:
    cells = {**_name(report), **formatting.overview(report)}
    share = report.share_within_target
    if share is not None:
        style = "green" if share >= 0.999 else "yellow" if share >= 0.95 else "red"
        cells["in target"] = f"[{style}]{cells['in target']}[/]"
    return cells


def _name(report: QueryReport) -> dict[str, str]:
    return {"query": report.display_name}


def _table(rows: Sequence[dict[str, str]], title: str | None = None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.title = title and f"\n{title}"
    for name in rows[0]:
        # Text goes left and may wrap; numbers go right and may not.
        is_text = name in formatting.TEXT_COLUMNS
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    for row in rows:
        cells = (
            escape(cell) if name in formatting.TEXT_COLUMNS else cell for name, cell in row.items()
        )
        table.add_row(*cells)
    return table
