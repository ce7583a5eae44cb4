"""`sparklag offsets`"""

from __future__ import annotations

import asyncio
import json as json_library
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from sparklag_kafka.clients.connection import quiet_client_logs
from sparklag_schemas import Settings, SettingsError, load_settings
from sparklag_schemas.formatting import records, when
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_schemas.timestamps import moment_ms
from sparklag_service.cli.markup import escape
from sparklag_service.cli.options import BootstrapServers, Config, Json

if TYPE_CHECKING:
    from sparklag_offsets.restore.restoration import RestoredOffsets
    from sparklag_offsets.store.batch_record import BatchRecord
    from sparklag_offsets.store.offset_store import OffsetStore

app = typer.Typer(help="Where queries were, from the offset store.", no_args_is_help=True)

_Answer = TypeVar("_Answer")
_Query = Annotated[str, typer.Argument(help="Name or id of a query.")]
_Store = Annotated[
    str | None,
    typer.Option("--store", help="URL of the offset store. [default: setting store.url]"),
]
_At = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="As of a moment: ISO 8601 (without a zone: UTC), epoch milliseconds, or an age: -2h."
        " [default: after the last batch]",
    ),
]


@app.command()
def show(
    query: _Query, store: _Store = None, at: _At = None, config: Config = None, json: Json = False
) -> None:
    """Show the last batch that is kept of a query: its ranges, by partition."""
    settings = _settings(config, store)
    record = _ask(settings, lambda kept: _find(kept, query, at))
    if json:
        typer.echo(json_library.dumps(_document(record)))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(_headline(record))
    console.print(_ranges(record))


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="A query, the one to be compared with.")],
    second: Annotated[str, typer.Argument(help="Another, that reads the same topics.")],
    store: _Store = None,
    at: _At = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show how far the second query is behind the first: whether it has caught up with it.

    Exit code 0 when it is behind nowhere, 1 when it is, or a partition is in the first alone.
    """
    from sparklag_offsets.restore.comparison import compare

    settings = _settings(config, store)
    one, other = _ask(settings, lambda kept: _find_both(kept, first, second, at))
    found = compare(one, other)
    if json:
        partitions = [{**place._asdict(), "behind": place.behind} for place in found.partitions]
        document = {"behind": found.behind, "caught_up": found.caught_up}
        typer.echo(json_library.dumps({**document, "partitions": partitions}))
    else:
        console = Console(highlight=False, soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        for heading in ("topic", "partition", escape(first), escape(second), "behind"):
            table.add_column(heading, justify="left" if heading == "topic" else "right")
        for place in found.partitions:
            offsets = (records(place.first), records(place.second), records(place.behind))
            table.add_row(escape(place.topic), str(place.partition), *offsets)
        console.print(table)
        console.print(escape(found.summary(first, second)))
    if not found.caught_up:
        raise typer.Exit(1)


@app.command()
def restore(
    query: _Query,
    at: _At = None,
    store: _Store = None,
    source: Annotated[
        int | None, typer.Option(min=0, help="Which of its Kafka sources, where it has several.")
    ] = None,
    ending: Annotated[
        bool, typer.Option("--ending", help="Spark's endingOffsets, of a bounded read.")
    ] = False,
    on_deleted: Annotated[
        str,
        typer.Option(
            help="Where retention has deleted what comes next: error, earliest (what is left), or"
            " unchecked (Kafka is not asked)."
        ),
    ] = "error",
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Give Spark's startingOffsets of where a query was, held against the topics as they are now.

    With --json, nothing but that, for `.option("startingOffsets", …)`. A new checkpoint begins with
    it; one that is there goes on where it is.
    """
    from sparklag_offsets.restore.restoration import RestoreOptions, from_store

    if on_deleted not in ("error", "earliest", "unchecked"):
        raise typer.BadParameter("it takes error, earliest or unchecked", param_hint="--on-deleted")
    settings = _settings(config, store)
    wanted = RestoreOptions(
        "ending" if ending else "starting",
        on_deleted,  # type: ignore[arg-type]  # it is one of them
        source,
        bootstrap_servers=bootstrap_servers,
    )
    at_ms = _at_ms(at)
    found = _ask(settings, lambda kept: from_store(kept, query, at_ms, wanted, settings))
    for warning in found.warnings:
        typer.echo(f"sparklag: {warning}", err=True)
    if json:
        typer.echo(found.json)
    else:
        _explain(found, "endingOffsets" if ending else "startingOffsets")


def _explain(found: RestoredOffsets, option: str) -> None:
    position = found.position
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(position.query or position.query_id)}[/bold] after batch"
        f" {position.batch_id}, {when(position.processed_at, epoch_ms())}"
    )
    console.print(f""".option("{option}", '{escape(found.json)}')""")


def _settings(config: Path | None, store: str | None) -> Settings:
    url = {"url": store} if store is not None else None
    settings = load_settings(config=config, overrides={"store": url})
    if settings.store.url is None:
        raise SettingsError(
            "setting store.url is not set: where offsets are kept"
            " (--store, SPARKLAG_STORE__URL or sparklag.toml)"
        )
    return settings


def _ask(settings: Settings, question: Callable[[OffsetStore], Awaitable[_Answer]]) -> _Answer:
    """The answer of the store. Raises OffsetsError."""
    # The other commands are to start without all this.
    from sparklag_offsets.store.offset_store import opened_store

    quiet_client_logs()

    async def ask() -> _Answer:
        async with opened_store(settings.store.url or "") as store:
            return await question(store)

    return asyncio.run(ask())


async def _find(store: OffsetStore, query: str, at: str | None) -> BatchRecord:
    from sparklag_offsets.restore.restoration import find_record

    return await find_record(store, query, _at_ms(at))


async def _find_both(
    store: OffsetStore, first: str, second: str, at: str | None
) -> tuple[BatchRecord, BatchRecord]:
    # What the second has is known first: it can only be said to be behind more than it is.
    other = await _find(store, second, at)
    return await _find(store, first, at), other


def _at_ms(at: str | None) -> int | None:
    if at is None:
        return None
    try:
        return moment_ms(at, epoch_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from error


def _named(record: BatchRecord) -> str:
    return record.query or record.query_id


def _headline(record: BatchRecord) -> str:
    name = f"[bold]{escape(_named(record))}[/bold]"
    batch = f"batch {record.batch_id}"
    if record.first_batch_id != record.batch_id:
        batch = f"batches {record.first_batch_id} to {record.batch_id}, together"
    told = ", which nobody told of: known by the next" if record.is_inferred else ""
    run = f"run {escape(record.run_id)}" if record.run_id is not None else "no run known"
    completed = when(record.processed_at, epoch_ms())
    return f"{name}  query {escape(record.query_id)}, {run}\n{batch}, {completed}{told}"


def _ranges(record: BatchRecord) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("source", "topic", "partition", "from", "until", "offsets"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for topic in record.topics:
        for partition, begin, until in topic.ranges:
            table.add_row(
                str(topic.source),
                escape(topic.topic),
                str(partition),
                records(begin),
                records(until),
                records(until - begin if begin is not None else None),
            )
    return table


def _document(record: BatchRecord) -> dict[str, Any]:
    return {
        "query_id": record.query_id,
        "query": record.query,
        "run_id": record.run_id,
        "generation": record.batch_key.generation,
        "first_batch_id": record.first_batch_id,
        "batch_id": record.batch_id,
        "processed_at": record.processed_at,
        "is_inferred": record.is_inferred,
        "topics": [
            {
                "source": topic.source,
                "topic": topic.topic,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition": partition, "from": begin, "until": until}
                    for partition, begin, until in topic.ranges
                ],
            }
            for topic in record.topics
        ],
    }
