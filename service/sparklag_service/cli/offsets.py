"""`sparklag offsets`"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from sparklag_kafka.access import quiet_client_logs
from sparklag_offsets.restore.positions import Comparison, compare
from sparklag_offsets.restore.restoration import RestoreOptions, find_record, from_store
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import BatchRecord, OffsetStore, RecordedQuery
from sparklag_schemas import Settings, SettingsError, load_settings
from sparklag_schemas.messages.query_names import shown_prefixes
from sparklag_schemas.presentation.tables import Column, FittedTable, escape, plain
from sparklag_schemas.text.formatting import ago, records, when
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms, timestamp_ms
from sparklag_service.cli.commands import CommandGroup
from sparklag_service.cli.terminal import (
    BootstrapServers,
    Config,
    Json,
    Query,
    console,
    print_error,
    print_json,
)

offsets = typer.Typer(
    help="Where queries were, from the offset store.", no_args_is_help=True, cls=CommandGroup
)

_LONGEST_HEADING: Final = 20
_Result = TypeVar("_Result")
_Store = Annotated[
    str | None,
    typer.Option("--store", help="URL of the offset store. [default: setting store.url]"),
]
_At = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="As of a time: ISO 8601 (without a zone: UTC), epoch milliseconds, or an age: -2h."
        " [default: after the last batch]",
    ),
]


@offsets.command("list")
def list_queries(store: _Store = None, config: Config = None, json: Json = False) -> None:
    """List the queries of the offset store: the newest batch of each, and since when."""
    listed = _run(_settings(config, store), _read_queries)
    if json:
        print_json(
            [
                {**query._asdict(), "batch_id": record.batch_id if record else None}
                for query, record in listed
            ]
        )
        return
    if not listed:
        print_error("the offset store has no query")
    console(wrap=True).print(_queries(listed, epoch_ms()))


@offsets.command()
def show(
    query: Query, store: _Store = None, at: _At = None, config: Config = None, json: Json = False
) -> None:
    """Show the last stored batch of a query: its ranges, by partition."""
    settings = _settings(config, store)
    at_ms = _at_ms(at)
    record = _run(settings, lambda opened: find_record(opened, query, at_ms))
    if json:
        print_json(_document(record))
        return
    console(wrap=True).print(_headline(record), _ranges(record), sep="\n")


@offsets.command()
def diff(
    first: Annotated[str, typer.Argument(help="The query to compare with.")],
    second: Annotated[str, typer.Argument(help="Another query that reads the same topics.")],
    store: _Store = None,
    at: _At = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show how far the second query is behind the first: whether it has caught up with it.

    Exits with 0 if it is behind in no partition, else with 1; a partition that it lacks counts.
    """
    settings = _settings(config, store)
    at_ms = _at_ms(at)
    compared = compare(*_run(settings, lambda opened: _find_both(opened, first, second, at_ms)))
    if json:
        partitions = [{**p._asdict(), "behind": p.behind} for p in compared.partitions]
        summary = {"behind": compared.behind, "caught_up": compared.caught_up}
        print_json({**summary, "partitions": partitions})
    else:
        summary_line = escape(compared.summary(first, second))
        console(wrap=True).print(_comparison(compared, first, second), summary_line)
    if not compared.caught_up:
        raise typer.Exit(1)


@offsets.command()
def restore(
    query: Query,
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
            help="If retention has deleted the next records: error, earliest (of those left), or"
            " unchecked (without Kafka)."
        ),
    ] = "error",
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Print the position of a query as Spark's startingOffsets, checked against the topics.

    With --json, nothing but that, for `.option("startingOffsets", …)`. A new checkpoint begins with
    it; an existing one ignores it.
    """
    if on_deleted not in ("error", "earliest", "unchecked"):
        raise typer.BadParameter("expected error, earliest or unchecked", param_hint="--on-deleted")
    settings = _settings(config, store)
    options = RestoreOptions(
        "ending" if ending else "starting",
        on_deleted,  # type: ignore[arg-type]  # checked above
        source,
        bootstrap_servers=bootstrap_servers,
    )
    at_ms = _at_ms(at)
    restored = _run(settings, lambda opened: from_store(opened, query, at_ms, options, settings))
    for warning in restored.warnings:
        typer.echo(f"sparklag: {warning}", err=True)
    if json:
        typer.echo(restored.json)
        return
    position, option = restored.position, "endingOffsets" if ending else "startingOffsets"
    console().print(
        f"[bold]{escape(position.query or position.query_id)}[/bold] after batch"
        f" {position.batch_id}, {when(position.processed_at, epoch_ms())}"
    )
    console().print(f""".option("{option}", '{escape(restored.json)}')""")


def _settings(config: Path | None, store: str | None) -> Settings:
    url = {"url": store} if store is not None else None
    settings = load_settings(config=config, overrides={"store": url})
    if settings.store.url is None:
        raise SettingsError(
            "setting store.url is not set: where offsets are kept"
            " (--store, SPARKLAG_STORE__URL or sparklag.toml)"
        )
    return settings


def _run(settings: Settings, read: Callable[[OffsetStore], Awaitable[_Result]]) -> _Result:
    quiet_client_logs()

    async def run() -> _Result:
        async with aclosing(open_store(settings.store.url or "")) as store:
            return await read(store)

    return asyncio.run(run())


async def _read_queries(store: OffsetStore) -> list[tuple[RecordedQuery, BatchRecord | None]]:
    queries = await store.queries()
    newest = await store.newest([query.query_id for query in queries])
    return [(query, newest.get(query.query_id)) for query in queries]


async def _find_both(
    store: OffsetStore, first: str, second: str, at_ms: int | None
) -> tuple[BatchRecord, BatchRecord]:
    # Read the second first: a later read of the first can only increase the difference.
    behind = await find_record(store, second, at_ms)
    return await find_record(store, first, at_ms), behind


def _at_ms(at: str | None) -> int | None:
    if at is None:
        return None
    try:
        return timestamp_ms(at, epoch_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from error


def _headline(record: BatchRecord) -> str:
    name = f"[bold]{escape(record.query or record.query_id)}[/bold]"
    batch = f"batch {record.batch_id}"
    if record.first_batch_id != record.batch_id:
        batch = f"batches {record.first_batch_id} to {record.batch_id}, together"
    source = ", inferred from the next one" if record.is_inferred else ""
    run = f"run {escape(record.run_id)}" if record.run_id is not None else "run unknown"
    completed = when(record.processed_at, epoch_ms())
    return f"{name}  query {escape(record.query_id)}, {run}\n{batch}, {completed}{source}"


def _queries(
    listed: Sequence[tuple[RecordedQuery, BatchRecord | None]], now_ms: int
) -> FittedTable:
    prefixes = shown_prefixes(query.query_id for query, _ in listed)
    return FittedTable(
        (
            Column("query", "name", 0),
            Column("id", "word", 1),
            Column("batch", "number", 2),
            Column("completed", "number", 3),
            Column("first", "number", 5),
            Column("topic", "name", 4),
        ),
        [
            (
                plain(query.query or "-"),
                printable(prefixes[query.query_id]),
                str(record.batch_id) if record else "unknown",
                ago(query.last_at, now_ms),
                ago(query.first_at, now_ms),
                plain(", ".join(sorted({each.topic for each in record.topics}) if record else ())),
            )
            for query, record in listed
        ],
    )


def _ranges(record: BatchRecord) -> FittedTable:
    return FittedTable(
        (
            Column("source", "number", 5),
            Column("topic", "name", 2),
            Column("partition", "number", 0),
            Column("from", "number", 3),
            Column("until", "number", 1),
            Column("offsets", "number", 4),
        ),
        [
            (
                str(topic.source),
                plain(topic.topic),
                str(partition),
                records(begin),
                records(until),
                records(until - begin if begin is not None else None),
            )
            for topic in record.topics
            for partition, begin, until in topic.ranges
        ],
    )


def _comparison(compared: Comparison, first: str, second: str) -> FittedTable:
    return FittedTable(
        (
            Column("topic", "name", 2),
            Column("partition", "number", 0),
            Column(printable(first, _LONGEST_HEADING), "number", 3),
            Column(printable(second, _LONGEST_HEADING), "number", 4),
            Column("behind", "number", 1),
        ),
        [
            (
                plain(partition.topic),
                str(partition.partition),
                *map(records, (partition.first, partition.second, partition.behind)),
            )
            for partition in compared.partitions
        ],
    )


def _document(record: BatchRecord) -> dict[str, Any]:
    batch = ("query_id", "query", "run_id", "generation", "first_batch_id", "batch_id")
    topics = [
        {
            **{name: getattr(topic, name) for name in ("source", "topic", "topic_id")},
            "partitions": [
                {"partition": partition, "from": begin, "until": until}
                for partition, begin, until in topic.ranges
            ],
        }
        for topic in record.topics
    ]
    fields = (*batch, "processed_at", "is_inferred")
    return {name: getattr(record, name) for name in fields} | {"topics": topics}
