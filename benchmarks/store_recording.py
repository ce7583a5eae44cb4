"""1,000 batches of 50 partitions recorded, against the plain writing of what they become.

As the driver does it: 200 observations come together and are committed together, through
StoreWriter. The plain side gets its rows ready made, and commits them in the same portions; once
as the store packs them, into the same tables, and once as a row for each range.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from itertools import chain, islice
from statistics import median, quantiles
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from benchmarks import kept_batches
from benchmarks.comparison import Row, say, times
from benchmarks.store_databases import Database, insertion, with_first_batches
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, Settings

REACH: Final = 0.5
"""Of the plain rate, on PostgreSQL."""
RATE_REACH: Final = 1_000
"""Batches a second."""
_QUERIES: Final = 100
_BATCHES: Final = 1_000
_TOGETHER: Final = 200
_ROUNDS: Final = 12
_WARM_UP: Final = 2
_STATEMENT_ROWS: Final = 1_000
_RANGES: Final = (
    *("query_key", "generation", "batch_id", "source", "topic", "partition_id"),
    *("from_offset", "until_offset", "processed_at"),
)
_RANGES_TABLE: Final = """
    CREATE TABLE ranges (
        query_key INTEGER NOT NULL REFERENCES sparklag_queries (query_key),
        generation INTEGER NOT NULL,
        batch_id BIGINT NOT NULL,
        source INTEGER NOT NULL,
        topic VARCHAR(249) NOT NULL,
        partition_id INTEGER NOT NULL,
        from_offset BIGINT,
        until_offset BIGINT NOT NULL,
        processed_at BIGINT NOT NULL,
        PRIMARY KEY (query_key, generation, batch_id, source, topic, partition_id)
    )"""
_RANGES_INDEX: Final = (
    "CREATE INDEX ranges_by_time ON ranges (query_key, processed_at, generation, batch_id)"
)


class _Portion(NamedTuple):
    """What comes together."""

    observations: list[Observation]
    records: list[BatchRecord]


Write = Callable[[Sequence[_Portion]], Awaitable[float]]
"""Write them; how long it took, milliseconds."""
Insert = Callable[[Any, str, Sequence[str], Sequence[tuple[Any, ...]]], None]
"""With a cursor, into a table, columns and rows."""


class _Plain(NamedTuple):
    """What is written past the store."""

    what: str
    table: str
    columns: Sequence[str]
    rows_of: Callable[[BatchRecord, int], Iterable[tuple[Any, ...]]]
    """Of a record, and its query's key."""


async def recording(database: Database) -> list[Row]:
    """Rows for one kind of database."""
    say(f"offset_store: {database.name}, recording")
    is_postgresql = database.name == "PostgreSQL"
    async with AsyncExitStack() as stack:
        sides = {"ours": await _ours(database, stack)}
        inserts: dict[str, Insert] = {"COPY": _copy} if is_postgresql else {}
        inserts["multi-row INSERT"] = _multi_row(database)
        for how, insert in inserts.items():
            for plain in _PLAIN:
                sides[f"{how}, {plain.what}"] = await _plain(database, stack, plain, insert)
        samples = await _in_turn(sides)
    ours = samples.pop("ours")
    mine = _rate(ours)
    what = f"{database.name}, batches of {kept_batches.PARTITIONS} partitions recorded a second"
    rows = [
        Row(
            what,
            f"{mine:,.0f} ({_spread(ours)})",
            "",
            reach=f"≥ {RATE_REACH:,}",
            reached=mine >= RATE_REACH,
        )
    ]
    for against, theirs in samples.items():
        ratio = mine / _rate(theirs)
        rows.append(
            Row(
                what,
                f"{mine:,.0f}",
                f"{_rate(theirs):,.0f} ({_spread(theirs)}), {against}",
                times(ratio),
                f"≥ {times(REACH)}" if is_postgresql else "",
                ratio >= REACH if is_postgresql else None,
            )
        )
    return rows


async def _ours(database: Database, stack: AsyncExitStack) -> Write:
    # What Kafka says of the topics is not what is measured.
    stack.enter_context(patch("sparklag_offsets.topic_ids.read_topic_ids", _topic_ids))
    store = open_store(database.new_database(), create=True)
    writer = StoreWriter(store, Settings())
    stack.push_async_callback(writer.aclose)
    await writer.write([next(kept_batches.batches(query)) for query in range(_QUERIES)])

    async def write(portions: Sequence[_Portion]) -> float:
        before = writer.counts.batches
        with _undisturbed():
            start_s = time.perf_counter()
            for portion in portions:
                await writer.write(portion.observations)
            taken_ms = (time.perf_counter() - start_s) * 1000
        if writer.counts.batches - before != _BATCHES or writer.counts.failures:
            raise RuntimeError(f"{writer.counts.batches - before} of {_BATCHES} were recorded")
        return taken_ms

    return write


async def _topic_ids(topics: Iterable[str], *_: object) -> dict[str, str]:
    return {topic: kept_batches.topic_id(None, topic) for topic in topics}


async def _plain(database: Database, stack: AsyncExitStack, plain: _Plain, insert: Insert) -> Write:
    url, keys = await with_first_batches(database, _QUERIES)
    connection = stack.enter_context(closing(database.plain(url)))
    cursor = connection.cursor()
    cursor.execute(_RANGES_TABLE)
    cursor.execute(_RANGES_INDEX)
    connection.commit()
    key_of = {kept_batches.query_id(query): key for query, key in enumerate(keys)}

    async def write(portions: Sequence[_Portion]) -> float:
        made = [
            [
                row
                for record in portion.records
                for row in plain.rows_of(record, key_of[record.query_id])
            ]
            for portion in portions
        ]
        with _undisturbed():
            start_s = time.perf_counter()
            for rows in made:
                insert(cursor, plain.table, plain.columns, rows)
                connection.commit()
            return (time.perf_counter() - start_s) * 1000

    return write


def _packed(record: BatchRecord, key: int) -> Iterable[tuple[Any, ...]]:
    return (kept_batches.row(record, key),)


def _ranges(record: BatchRecord, key: int) -> Iterable[tuple[Any, ...]]:
    for topic in record.topics:
        for partition, begin, until in topic.ranges:
            yield (
                *(key, record.generation, record.batch_id, topic.source, topic.topic),
                *(partition, begin, until, record.processed_at),
            )


_PLAIN: Final = (
    _Plain("the same rows", "sparklag_batches", kept_batches.COLUMNS, _packed),
    _Plain("a row for each range", "ranges", _RANGES, _ranges),
)


def _copy(cursor: Any, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _multi_row(database: Database) -> Insert:
    def insert(
        cursor: Any, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        rest = iter(rows)
        while some := list(islice(rest, _STATEMENT_ROWS)):
            statement = insertion(database, table, columns, len(some))
            cursor.execute(statement, tuple(chain.from_iterable(some)))

    return insert


async def _in_turn(sides: dict[str, Write]) -> dict[str, list[float]]:
    """Samples of each side, milliseconds. The one that begins is another each time."""
    samples: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides)
    portions = _portions()
    for number in range(_WARM_UP + _ROUNDS):
        said = list(islice(portions, _BATCHES // _TOGETHER))
        for side in order:
            taken_ms = await sides[side](said)
            if number >= _WARM_UP:
                samples[side].append(taken_ms)
        order.append(order.pop(0))
    return samples


def _portions() -> Iterator[_Portion]:
    """Without an end, from the second batch of each query."""
    of_queries = [kept_batches.batches(query) for query in range(_QUERIES)]
    newest = [next(kept_batches.records(each, 1)) for each in of_queries]
    while True:
        portion = _Portion([], [])
        for _ in range(_TOGETHER // _QUERIES):
            for query, each in enumerate(of_queries):
                observation = next(each)
                newest[query] = kept_batches.record(observation, newest[query])
                portion.observations.append(observation)
                portion.records.append(newest[query])
        yield portion


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What a benchmark holds is much, and is not to be searched for garbage inside a sample."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _rate(samples_ms: Sequence[float]) -> float:
    """Batches a second."""
    return _BATCHES * 1000 / median(samples_ms)


def _spread(samples_ms: Sequence[float]) -> str:
    """The rates of the middle half."""
    slow, _, fast = (_BATCHES * 1000 / taken_ms for taken_ms in quantiles(samples_ms, n=4)[::-1])
    return f"{slow:,.0f} to {fast:,.0f}"
