"""`sparklag queries`: all queries of a running service, as a table or as lines for programs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
import typer
from rich.text import Text

from sparklag_schemas.messages.query_names import shown_prefixes
from sparklag_schemas.presentation.rows import CELLS, Summary
from sparklag_schemas.presentation.tables import Column, FittedTable, escape, plain, status_cell
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.requests import decoded, request, service_at
from sparklag_service.cli.terminal import (
    DEFAULT_URL,
    Config,
    Json,
    Url,
    ascii_json,
    console,
    print_error,
)

_COLUMNS: Final = (
    Column("query", "name", 0),
    Column("id", "word", 1),
    Column("topic", "name", 4),
    Column("status", "name", 2),
    Column("lag", "number", 3),
    Column("time lag", "number", 5),
    Column("trend", "number", 6),
    Column("catch-up", "number", 8),
    Column("last batch", "number", 7),
    Column("last measured", "number", 9),
    Column("by", "name", 10),
)


class _Page(msgspec.Struct):
    queries: list[msgspec.Raw]
    next_cursor: str | None
    failing: dict[str, str] = {}


def queries(
    url: Url = DEFAULT_URL,
    status: Annotated[
        str | None, typer.Option(help="Only queries in this state, in any case: stall.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only queries that read it.")] = None,
    every_query: Annotated[
        bool, typer.Option("--all", help="Include queries whose name belongs to another query now.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """List all queries: their lag, time lag and trend, and the reason of a status.

    A terminal shows as many columns as it is wide. A pipe or a file gets all of them: one query on
    a line, separated by tabs, under the names of the fields of GET /lag.

    Exit code 2 where a part of the service fails, which standard error names: queries may be
    missing, and lags old.
    """
    listed, failing = _list_lag(
        service_at(url, config),
        status=None if status is None else status.upper(),
        topic=topic,
        superseded="true" if every_query else None,
    )
    if json:
        typer.echo(ascii_json(msgspec.json.encode(listed)))
    else:
        summaries = [decoded(summary, Summary, url) for summary in listed]
        if not sys.stdout.isatty():
            typer.echo("\n".join(tab_separated(summaries)))
        elif summaries:
            console(wrap=True).print(table(summaries, epoch_ms()))
        if not listed and not failing:
            print_error(
                "no query" + (" like this" if status or topic else " has been observed yet")
            )
    for part, reason in failing.items():
        console(stderr=True).print(f"[red]{escape(f'{part}: {reason}')}[/red]")
    if failing:
        raise typer.Exit(2)


def table(summaries: Sequence[Summary], now_ms: int) -> FittedTable:
    """The table for people, with the reason of each status below its row. Pure."""
    prefixes = shown_prefixes(query.query_id for query in summaries)
    names = Counter(query.query for query in summaries)
    rows: list[Sequence[str | Text]] = [
        (
            plain(_name(query, names)),
            printable(prefixes[query.query_id]),
            plain(", ".join(query.topics)),
            status_cell(query),
            *(CELLS[column.heading](query, now_ms) for column in _COLUMNS[4:-1]),
            plain(query.origin),
        )
        for query in summaries
    ]
    return FittedTable(_COLUMNS, rows, details=[plain(query.reason or "") for query in summaries])


def _name(query: Summary, names: Counter[str | None]) -> str:
    """The name; with the application, if several queries have the name."""
    if query.query and query.application and names[query.query] > 1:
        return f"{query.query} ({query.application})"
    return query.query or "-"


def tab_separated(summaries: Iterable[Summary]) -> list[str]:
    """The lines for programs: headings, then each query. No field is empty: `unknown` is for a
    missing number, `-` for a missing text. Pure."""
    fields = (
        *("query", "query_id", "topics", "status", "total_lag", "max_time_lag_s", "lag_trend"),
        *("catch_up_s", "processed_at", "observed_at", "origin", "reason"),
    )
    lines = ["\t".join(fields)]
    lines += (
        "\t".join(_field(getattr(query, name), name) for name in fields) for query in summaries
    )
    return lines


def _field(value: object, name: str) -> str:
    if value is None:
        return "-" if name in ("query", "reason") else "unknown"
    if isinstance(value, float):
        return str(round(value, 3))
    return plain(",".join(value) if isinstance(value, list) else str(value)) or "-"


def _list_lag(
    service: ServiceAccess, **filters: str | None
) -> tuple[list[msgspec.Raw], dict[str, str]]:
    """All queries that match `filters`, and the failing parts of the service with their reasons."""
    parameters = {name: value for name, value in filters.items() if value is not None}
    summaries: list[msgspec.Raw] = []
    while True:
        page = decoded(request("GET", service, "/lag", parameters), _Page, service.url)
        summaries += page.queries
        if page.next_cursor is None:
            return summaries, page.failing
        parameters["cursor"] = page.next_cursor
