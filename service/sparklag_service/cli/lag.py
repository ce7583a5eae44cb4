"""`sparklag lag` and `forget`: one query of a running service, for people and probes."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table

from sparklag_schemas import LagEvent, PartitionLag, TopicLag, decode_lag_event
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.rest_interface import path_segment
from sparklag_schemas.text.formatting import ago, mark, records, span
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.requests import not_sparklag, request
from sparklag_service.cli.terminal import (
    COLOURS,
    DEFAULT_URL,
    Column,
    FittedTable,
    Interval,
    Json,
    Url,
    ascii_json,
    console,
    escape,
    plain,
    print_error,
)
from sparklag_service.cli.watch import Read, Reading, print_changes, refresh_in_place
from sparklag_service.errors import RequestRefused
from sparklag_service.view import lag_text

_SHOWN = 20
_MEASURED_MAX_AGE_MS = 60_000
"""Queries are measured each second and published each ten; an older lag may have changed."""
_PARTITION_COLUMNS = (
    Column("topic", "name", 2),
    Column("partition", "number", 0),
    Column("processed", "number", 6),
    Column("latest", "number", 5),
    Column("lag", "number", 1),
    Column("oldest", "number", 3),
    Column("reason", "text", 4),
)


def lag(
    query: Annotated[
        str, typer.Argument(help="Name, id or first characters of the id of a query.")
    ],
    url: Url = DEFAULT_URL,
    max_lag: Annotated[
        int | None,
        typer.Option(min=0, help="Exit with 1 if the lag is more records, or unknown."),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Exit with 1 if the oldest unprocessed record is older (seconds), or its age is"
            " unknown.",
        ),
    ] = None,
    every_partition: Annotated[
        bool, typer.Option("--all", help=f"Every partition, not the {_SHOWN} that lag most.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again when it changes, until Ctrl-C.")
    ] = False,
    interval: Interval = 2.0,
    json: Json = False,
) -> None:
    """Show how far behind a query is, whether that gets better, and why.

    As a probe, with --max-lag or --max-age, it exits with 0 if the query is within both; with 1 if
    it is not, or if the value is unknown or older than a minute (one line on standard error says
    which); with 2 if there is no result: no service, no such query, a wrong option.

    With --watch it waits for a service that goes away, and --interval counts. A terminal has the
    newest lag in place; otherwise each change is a block of text, or with --json a line. --watch is
    no probe: it takes neither --max-lag nor --max-age.
    """
    if max_age is not None and isnan(max_age):
        # No age is higher than that: the probe would always succeed.
        raise typer.BadParameter("expected a number of seconds", param_hint="--max-age")
    most = None if every_partition else _SHOWN
    if watch:
        if max_lag is not None or max_age is not None:
            raise typer.BadParameter("excludes --max-lag and --max-age", param_hint="--watch")
        _watch(lambda: _get_lag(url, query), interval, most, json)
        return
    event, document = _get_lag(url, query)
    now_ms = epoch_ms()
    if json:
        typer.echo(ascii_json(document))
    else:
        console(wrap=True).print(render(event, now_ms, most))
    why = objection(event, now_ms, max_lag=max_lag, max_age_s=max_age)
    if why is not None:
        print_error(f"{event.display_name}: {why}")
        raise typer.Exit(1)


def _watch(read: Read, interval_s: float, most: int | None, json: bool) -> None:
    screen = console(wrap=True)
    if json:
        print_changes(read, interval_s, lambda reading: typer.echo(ascii_json(reading.document)))
    elif screen.is_interactive:
        refresh_in_place(read, interval_s, screen, lambda event: render(event, epoch_ms(), most))
    else:
        print_changes(
            read,
            interval_s,
            lambda reading: screen.print(render(reading.event, epoch_ms(), most), ""),
        )


def render(event: LagEvent, now_ms: int, most: int | None = _SHOWN) -> Group:
    """The query's lag, the facts that explain it, and its partitions: `most` of them, or all."""
    return Group(headline(event, now_ms), facts(event, now_ms), _table(event, most))


def headline(event: LagEvent, now_ms: int) -> str:
    """Name, status, since when and why, as rich markup."""
    colour = COLOURS[mark(event.status)]
    name, status = escape(event.display_name), escape(lag_text.status(event, now_ms))
    return f"[bold]{name}[/bold]  [{colour}]{status}[/{colour}]"


def facts(event: LagEvent, now_ms: int) -> Table:
    """How far behind it is, how fast, and why."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim")
    grid.add_column()
    for heading, text in lag_text.lines(event, now_ms):
        grid.add_row(heading, escape(text))
    return grid


def _table(event: LagEvent, most: int | None) -> FittedTable:
    count = sum(len(topic.partitions) for topic in event.topics)
    if most is None or count <= most:
        return partition_table(
            [(topic, each) for topic in event.topics for each in topic.partitions]
        )
    caption = f"{count - most:,} more partitions; all with --all"
    return partition_table(worst_first(event)[:most], caption)


def worst_first(event: LagEvent) -> list[tuple[TopicLag, PartitionLag]]:
    """Its partitions, those of unknown lag first: one of them may be the worst."""
    partitions = [(topic, each) for topic in event.topics for each in topic.partitions]
    return sorted(partitions, key=lambda pair: (pair[1].lag is not None, -(pair[1].lag or 0)))


def partition_table(
    partitions: Iterable[tuple[TopicLag, PartitionLag]], caption: str = ""
) -> FittedTable:
    """A row for each of them."""
    return FittedTable(
        _PARTITION_COLUMNS,
        [
            (
                plain(topic.topic),
                str(partition.partition),
                records(partition.processed_offset),
                records(partition.latest_offset),
                records(partition.lag),
                lag_text.oldest(partition),
                plain(partition.reason or ""),
            )
            for topic, partition in partitions
        ],
        caption=caption,
    )


def objection(
    event: LagEvent, now_ms: int, *, max_lag: int | None, max_age_s: float | None
) -> str | None:
    """Why the query is not within these, in a line. None: it is. An unknown lag is not. Pure."""
    if max_lag is None and max_age_s is None:
        return None
    if now_ms - event.measured_at > _MEASURED_MAX_AGE_MS:
        return f"its lag is unknown: last measured {ago(event.measured_at, now_ms)}"
    if event.total_lag is None:
        return f"its lag is unknown{f': {event.reason}' if event.reason else ''}"
    if event.unknown_partitions:
        return f"the lag of {event.unknown_partitions} partitions is not known"
    if max_lag is not None and event.total_lag > max_lag:
        return f"its lag is {event.total_lag:,} records, {max_lag:,} are allowed"
    return _too_old(event, max_age_s) if max_age_s is not None else None


def _too_old(event: LagEvent, max_age_s: float) -> str | None:
    worst_s = event.max_time_lag_s or 0.0
    if worst_s > max_age_s:
        allowed = span(max_age_s)
        return f"its oldest unprocessed record is {span(worst_s)} old, {allowed} is allowed"
    for partition in (each for topic in event.topics for each in topic.partitions if each.lag):
        if partition.time_lag_s is None:
            return "the age of its oldest unprocessed record is not known"
        if partition.time_lag_method == "floor":
            # It may be far older: the service has not seen that record arrive.
            least = span(partition.time_lag_s)
            return (
                f"its oldest unprocessed record is at least {least} old, the exact age is unknown"
            )
    return None


def forget(
    query_id: Annotated[str, typer.Argument(help="Id of a query, or its first characters.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Forget a query that has no driver: it leaves every list, metric and alarm.

    Exit code 0 when it is forgotten, 1 when it is live, 2 when there is no result: no service, no
    such query, a name in place of an id, or the service does not take it from here (http_forget).
    """
    try:
        request("DELETE", url, f"/lag/{path_segment(query_id)}")
    except RequestRefused as error:
        if error.kind != "query-is-live":
            raise
        print_error(str(error))
        raise typer.Exit(1) from None
    typer.echo(f"forgotten: {printable(query_id)}")


def _get_lag(url: str, query: str) -> Reading:
    """Raises ServiceError."""
    document = request("GET", url, f"/lag/{path_segment(query)}")
    try:
        return Reading(decode_lag_event(document), document)
    except MalformedMessage as error:
        raise not_sparklag(url) from error
