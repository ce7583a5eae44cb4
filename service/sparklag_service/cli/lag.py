"""`sparklag lag` and `sparklag forget`: one query of a running service, for people and probes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sparklag_schemas import LagEvent, SparklagError, decode_lag_event
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.presentation.rows import partitions_of
from sparklag_schemas.presentation.tables import SHOWN_PARTITIONS, event_view
from sparklag_schemas.rest_interface import path_segment
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.text.formatting import ago, span
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.requests import not_sparklag, request, service_at
from sparklag_service.cli.terminal import (
    DEFAULT_URL,
    Config,
    Interval,
    Json,
    Query,
    Url,
    ascii_json,
    console,
    print_error,
    refuse_nan,
)
from sparklag_service.errors import RequestRefused
from sparklag_service.publishing.published_query import has_changed

_MEASURED_MAX_AGE_MS: Final = 30_000
"""Queries are measured each second and published every ten; an older lag may have changed."""
_ALARMS: Final = ("STOP", "STALL", "FAILED", "DATA_LOSS", "GONE", "CONFLICT")


class Reading(NamedTuple):
    """An event, and its JSON as received."""

    event: LagEvent
    document: bytes


Read = Callable[[], Reading]
"""Reads the query's event. Raises ServiceError."""


def lag(
    query: Query,
    url: Url = DEFAULT_URL,
    max_lag: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 if the lag is more records, or unknown.")
    ] = None,
    max_time_lag: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=refuse_nan,
            help="Exit with 1 if the time lag is longer (seconds), or unknown.",
        ),
    ] = None,
    any_status: Annotated[
        bool,
        typer.Option("--any-status", help="Only the limits count for the exit code, no status."),
    ] = False,
    every_partition: Annotated[
        bool,
        typer.Option("--all", help=f"Every partition, not the {SHOWN_PARTITIONS} that lag most."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again when it changes, until Ctrl-C.")
    ] = False,
    interval: Interval = 2.0,
    json: Json = False,
    config: Config = None,
) -> None:
    """Show how far behind a query is, whether that gets better, and why.

    As a probe, with --max-lag or --max-time-lag, it exits with 0 if the query is within both; with
    1 if it is not, if the value is unknown or was last measured over 30 s ago, or if the status is
    STOP, STALL, FAILED, DATA_LOSS, GONE or CONFLICT, whatever the lag is (one line on standard
    error says which); with 2 if there is no result: no service, no such query, a wrong option.

    With --watch it waits for a service that goes away, and --interval counts. A terminal has the
    newest lag in place; otherwise each change is a block of text, or with --json a line. --watch is
    no probe: it takes neither --max-lag nor --max-time-lag.
    """
    service = service_at(url, config)
    most = None if every_partition else SHOWN_PARTITIONS
    if watch:
        if max_lag is not None or max_time_lag is not None:
            raise typer.BadParameter("excludes --max-lag and --max-time-lag", param_hint="--watch")
        _watch(lambda: _get_lag(service, query), interval, most, json)
        return
    event, document = _get_lag(service, query)
    now_ms = epoch_ms()
    if json:
        typer.echo(ascii_json(document))
    else:
        console(wrap=True).print(event_view(event, now_ms, most))
    why = objection(
        event, now_ms, max_lag=max_lag, max_time_lag_s=max_time_lag, any_status=any_status
    )
    if why is not None:
        print_error(f"{event.display_name}: {why}")
        raise typer.Exit(1)


def _watch(read: Read, interval_s: float, most: int | None, json: bool) -> None:
    screen = console(wrap=True)

    def show(reading: Reading) -> None:
        if json:
            typer.echo(ascii_json(reading.document))
        else:
            screen.print(event_view(reading.event, epoch_ms(), most), "")

    if screen.is_interactive and not json:
        _refresh_in_place(read, interval_s, screen, most)
    else:
        print_changes(read, interval_s, show)


def _refresh_in_place(read: Read, interval_s: float, screen: Console, most: int | None) -> None:
    # The terminal's cursor is hidden meanwhile.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    shown: LagEvent | None = None
    read_at_ms = 0
    with Live(console=screen, auto_refresh=False) as live:
        for reading in _readings(read, interval_s):
            parts: list[RenderableType] = []
            if isinstance(reading, Reading):
                shown, read_at_ms = reading.event, epoch_ms()
            else:
                age, why = ago(read_at_ms, epoch_ms()), printable(str(reading), 2_000)
                parts = [Text(f"\nNO ANSWER, shown as of {age}: {why}", "bold red")]
            if shown is not None:
                live.update(Group(event_view(shown, epoch_ms(), most), *parts), refresh=True)


def print_changes(read: Read, interval_s: float, show: Callable[[Reading], None]) -> None:
    """Show the first event, and each event that differs by more than its age, until Ctrl-C.

    Prints one line on standard error when the service does not respond. Raises ServiceError if the
    first request fails.
    """
    shown: LagEvent | None = None
    is_unavailable = False
    for reading in _readings(read, interval_s):
        if not isinstance(reading, Reading):
            if not is_unavailable:
                print_error(f"no answer, waiting: {reading}")
            is_unavailable = True
            continue
        if is_unavailable:
            print_error("the service answers again")
            is_unavailable = False
        if shown is None or has_changed(shown, reading.event):
            shown = reading.event
            show(reading)


def _readings(read: Read, interval_s: float) -> Iterator[Reading | SparklagError]:
    # An error of the first request is raised: the name or the address may be wrong.
    yield read()
    while True:
        time.sleep(interval_s)
        try:
            reading: Reading | SparklagError = read()
        except SparklagError as error:
            reading = error
        yield reading


def objection(
    event: LagEvent,
    now_ms: int,
    *,
    max_lag: int | None,
    max_time_lag_s: float | None,
    any_status: bool = False,
) -> str | None:
    """Why the query exceeds a limit, in a line, or None. An unknown lag exceeds any limit, and so
    does a query with a status of `_ALARMS`, unless `any_status`."""
    if max_lag is None and max_time_lag_s is None:
        return None
    if now_ms - event.measured_at > _MEASURED_MAX_AGE_MS:
        return f"its lag is unknown: last measured {ago(event.measured_at, now_ms)}"
    if event.status in _ALARMS and not any_status:
        return f"its status is {event.status}{f': {event.reason}' if event.reason else ''}"
    if event.total_lag is None:
        return f"its lag is unknown{f': {event.reason}' if event.reason else ''}"
    if event.unknown_partitions:
        return f"the lag of {event.unknown_partitions} partitions is not known"
    if max_lag is not None and event.total_lag > max_lag:
        return f"its lag is {event.total_lag:,} records, {max_lag:,} are allowed"
    return _time_lag_objection(event, max_time_lag_s) if max_time_lag_s is not None else None


def _time_lag_objection(event: LagEvent, max_time_lag_s: float) -> str | None:
    worst_s = event.max_time_lag_s or 0.0
    if worst_s > max_time_lag_s:
        allowed = span(max_time_lag_s)
        return f"its time lag is {span(worst_s)}, {allowed} is allowed"
    for _, partition in partitions_of(event):
        if not partition.unread:
            continue
        if partition.time_lag_s is None:
            return "its time lag is not known"
        if partition.time_lag_method == "floor":
            # The record may be far older: the service did not observe its arrival.
            least = span(partition.time_lag_s)
            return f"its time lag is at least {least}, and not known exactly"
    return None


def forget(
    query_id: Annotated[str, typer.Argument(help="Id of a query, or its first characters.")],
    url: Url = DEFAULT_URL,
    config: Config = None,
) -> None:
    """Forget a query that has no driver: it leaves every list, metric and alarm.

    Exit code 0 when it is forgotten, 1 when it is live, 2 when there is no result: no service, no
    such query, a name in place of an id, or the service does not take it from here (http_forget).
    """
    try:
        request("DELETE", service_at(url, config), f"/lag/{path_segment(query_id)}")
    except RequestRefused as error:
        if error.kind != "query-is-live":
            raise
        print_error(str(error))
        raise typer.Exit(1) from None
    typer.echo(f"forgotten: {printable(query_id)}")


def _get_lag(service: ServiceAccess, query: str) -> Reading:
    document = request("GET", service, f"/lag/{path_segment(query)}")
    try:
        return Reading(decode_lag_event(document), document)
    except MalformedMessage as error:
        raise not_sparklag(service.url) from error
