"""`sparklag lag`"""

from __future__ import annotations

from math import isnan
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.formatting import mark, records
from sparklag_schemas.printable import printable
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.cli import lag_text
from sparklag_service.cli.markup import ascii_json, escape
from sparklag_service.cli.options import DEFAULT_URL, Json, Url
from sparklag_service.cli.probe import objection
from sparklag_service.cli.service_client import get_lag

_SHOWN = 20
_COLOURS = {"bad": "red", "warn": "yellow", "ok": "green"}


def lag(
    query: Annotated[str, typer.Argument(help="Name or id of a query.")],
    url: Url = DEFAULT_URL,
    max_lag: Annotated[
        int | None,
        typer.Option(min=0, help="Exit with 1 when it lags by more records, or nobody knows."),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Exit with 1 when its oldest unprocessed record is older than so many seconds,"
            " or nobody knows.",
        ),
    ] = None,
    every_partition: Annotated[
        bool, typer.Option("--all", help=f"Every partition, not the {_SHOWN} that lag most.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how far behind a query is, whether that gets better, and why.

    As a probe, with --max-lag or --max-age: exit code 0 when it is within both, 1 when it is not
    or that is not known, as when it was measured more than a minute ago (one line on standard error
    says which), 2 when there is no answer: no service, no such query, a wrong option.
    """
    if max_age is not None and isnan(max_age):
        # Nothing is older than that, so that all would be well.
        raise typer.BadParameter("it takes a number of seconds", param_hint="--max-age")
    event, document = get_lag(url, query)
    now_ms = epoch_ms()
    if json:
        typer.echo(ascii_json(document))
    else:
        console = Console(highlight=False)
        console.print(_headline(event, now_ms))
        console.print(_facts(event, now_ms))
        console.print(_table(event, _SHOWN if not every_partition else None))
    why = objection(event, now_ms, max_lag=max_lag, max_age_s=max_age)
    if why is not None:
        typer.echo(f"sparklag: {printable(event.display_name)}: {why}", err=True)
        raise typer.Exit(1)


def _headline(event: LagEvent, now_ms: int) -> str:
    colour = _COLOURS[mark(event.status)]
    name, status = escape(event.display_name), escape(lag_text.status(event, now_ms))
    return f"[bold]{name}[/bold]  [{colour}]{status}[/{colour}]"


def _facts(event: LagEvent, now_ms: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim")
    table.add_column()
    for heading, text in lag_text.lines(event, now_ms):
        table.add_row(heading, escape(text))
    return table


def _table(event: LagEvent, most: int | None) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "partition", "processed", "latest", "lag", "oldest"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    table.add_column("")
    every = [(topic, one) for topic in event.topics for one in topic.partitions]
    shown = every if most is None or len(every) <= most else _worst(every, most)
    for topic, partition in shown:
        table.add_row(
            escape(topic.topic),
            str(partition.partition),
            records(partition.processed_offset),
            records(partition.latest_offset),
            records(partition.lag),
            lag_text.oldest(partition),
            escape(partition.reason or ""),
        )
    if len(shown) < len(every):
        table.caption = f"{len(every) - len(shown):,} more partitions; all with --all"
        table.caption_justify = "left"
    return table


def _worst(
    partitions: list[tuple[TopicLag, PartitionLag]], most: int
) -> list[tuple[TopicLag, PartitionLag]]:
    """What is not known first: it may be the worst."""
    return sorted(partitions, key=lambda one: (one[1].lag is not None, -(one[1].lag or 0)))[:most]
