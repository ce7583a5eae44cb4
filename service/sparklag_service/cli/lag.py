"""`sparklag lag`"""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparklag_schemas import LagEvent, Origin
from sparklag_service.cli.options import DEFAULT_URL, Json, Url
from sparklag_service.cli.service_client import get_lag

_BY: dict[Origin, str] = {
    "listener": "its listener",
    "connect": "its Connect client",
    "poll": "its driver, asked regularly",
    "checkpoint": "its checkpoint",
    "group": "Kafka",
}


def lag(
    query: Annotated[str, typer.Argument(help="Name or id of a query.")],
    url: Url = DEFAULT_URL,
    max_lag: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 when the lag is above, or not known.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the lag of one query."""
    event, document = get_lag(url, query)
    if json:
        typer.echo(document)
    else:
        console = Console(highlight=False)
        console.print(_headline(event))
        console.print(_table(event))
    if max_lag is not None and (
        event.total_lag is None or event.unknown_partitions or event.total_lag > max_lag
    ):
        raise typer.Exit(1)


def records(lag: int | None) -> str:
    """A number of records as a person reads it; what is not known is said, not 0."""
    return "unknown" if lag is None else f"{lag:,}"


def age(since_ms: int | None) -> str:
    """How long ago, in the largest unit that says it well."""
    if since_ms is None:
        return "never"
    seconds = max(0.0, time.time() - since_ms / 1000)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def _headline(event: LagEvent) -> str:
    why = f" ({event.reason})" if event.reason else ""
    unknown = event.unknown_partitions
    in_flight = event.in_flight
    return (
        f"[bold]{escape(event.display_name)}[/bold]  {event.status}{escape(why)}\n"
        f"lag {records(event.total_lag)} records, worst partition {records(event.max_lag)}"
        f"{f', {unknown} partitions unknown' if unknown else ''}"
        f"{f', {in_flight:,} in the batch that runs' if in_flight is not None else ''}\n"
        f"{_last_moved(event)}, heard of {age(event.observed_at)},"
        f" measured {age(event.measured_at)}, position by {_BY[event.origin]}"
    )


def _last_moved(event: LagEvent) -> str:
    if event.origin == "group":
        moved = f"committed {age(event.processed_at)}"
        return moved if event.processed_at is not None else "has not committed since it is watched"
    batch = event.batch_id if event.batch_id is not None else "none"
    return f"batch {batch} completed {age(event.processed_at)}"


def _table(event: LagEvent) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "partition", "processed", "latest", "lag"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    table.add_column("")
    for topic in event.topics:
        for partition in topic.partitions:
            table.add_row(
                escape(topic.topic),
                str(partition.partition),
                records(partition.processed_offset),
                records(partition.latest_offset),
                records(partition.lag),
                escape(partition.reason or ""),
            )
    return table
