"""Where a query was at some moment, among 10 million ranges: 100 queries, 2,000 batches of 50
partitions each.

The tables are filled past the store. Beside each lookup: a bare SELECT of one row by its primary
key, through the driver that the store uses, on a connection of the same age.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from inspect import isawaitable
from itertools import chain
from statistics import median, quantiles
from typing import Any, Final

from benchmarks import kept_batches
from benchmarks.comparison import Row, ms, say, times
from benchmarks.store_databases import Database, insertion, with_first_batches
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import OffsetStore

REACH_MS: Final = 20.0
"""99 of 100 lookups."""
_QUERIES: Final = 100
_BATCHES: Final = 2_000
_STATEMENT_ROWS: Final = 400
_WARM: Final = 1_000
_COLD: Final = 200
_WARM_UP: Final = 20

Ask = Callable[[], Awaitable[float]]
"""How long one lookup took, milliseconds."""


async def lookup(database: Database) -> list[Row]:
    """Rows for one kind of database."""
    ranges = _QUERIES * _BATCHES * kept_batches.PARTITIONS
    say(f"offset_store: {database.name}, writing {ranges:,} ranges")
    url, keys = await with_first_batches(database, _QUERIES)
    _fill(database, url, keys)
    say(f"offset_store: {database.name}, looking up")
    what = f"{database.name}, {ranges // 1_000_000} million ranges"
    async with AsyncExitStack() as stack:
        store = open_store(url)
        stack.push_async_callback(store.aclose)
        ours, plain = _Ours(store), _Plain(database, url, keys)
        stack.push_async_callback(plain.aclose)
        rows = [
            _row(f"{what}: where a query was", *await _in_turn(_WARM, ours.as_of, plain.select)),
            _row(
                f"{what}: … on a cold connection",
                *await _in_turn(_COLD, lambda: _first_question(url), plain.connect_and_select),
            ),
        ]
        for name, ask in (
            (f"the last records of {_QUERIES} queries", ours.newest),
            ("a query by its name", ours.named),
            (f"all {_QUERIES} queries", ours.listed),
        ):
            rows.append(_row(f"{what}: {name}", *await _in_turn(_COLD, ask, plain.select)))
    return rows


def _fill(database: Database, url: str, keys: Sequence[int]) -> None:
    columns = kept_batches.COLUMNS
    with closing(database.plain(url)) as connection:
        cursor = connection.cursor()
        for query, key in enumerate(keys):
            kept = kept_batches.records(kept_batches.batches(query), _BATCHES)
            rows = [kept_batches.row(record, key) for record in kept][1:]
            for first in range(0, len(rows), _STATEMENT_ROWS):
                some = rows[first : first + _STATEMENT_ROWS]
                statement = insertion(database, "sparklag_batches", columns, len(some))
                cursor.execute(statement, tuple(chain.from_iterable(some)))
            connection.commit()


class _Ours:
    """What is asked of the store."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    async def as_of(self) -> float:
        query, batch_id = _somewhere()
        start_s = time.perf_counter()
        # Between two batches, as a moment is that somebody names.
        at_ms = kept_batches.completed_at(batch_id) + kept_batches.STEP_MS // 2
        found = await self._store.as_of(kept_batches.query_id(query), at_ms)
        taken_ms = _since(start_s)
        _check(found is not None and found.batch_id == batch_id)
        return taken_ms

    async def newest(self) -> float:
        start_s = time.perf_counter()
        found = await self._store.newest(list(map(kept_batches.query_id, range(_QUERIES))))
        taken_ms = _since(start_s)
        _check([record.batch_id for record in found.values()] == [_BATCHES - 1] * _QUERIES)
        return taken_ms

    async def named(self) -> float:
        query, _ = _somewhere()
        start_s = time.perf_counter()
        found = await self._store.queries(kept_batches.query_name(query))
        taken_ms = _since(start_s)
        _check([each.query_id for each in found] == [kept_batches.query_id(query)])
        return taken_ms

    async def listed(self) -> float:
        start_s = time.perf_counter()
        found = await self._store.queries()
        taken_ms = _since(start_s)
        _check(len(found) == _QUERIES)
        return taken_ms


async def _first_question(url: str) -> float:
    start_s = time.perf_counter()
    store = open_store(url)
    try:
        return _since(start_s) + await _Ours(store).as_of()
    finally:
        await store.aclose()


class _Plain:
    """The row of a random batch, by its key."""

    def __init__(self, database: Database, url: str, keys: Sequence[int]) -> None:
        self._database = database
        self._url = url
        self._keys = keys
        self._connection: Any = None

    async def select(self) -> float:
        if self._connection is None:
            self._connection = await self._database.plain_async(self._url)
        return await self._select(self._connection)

    async def connect_and_select(self) -> float:
        start_s = time.perf_counter()
        connection = await self._database.plain_async(self._url)
        connected_ms = _since(start_s)
        try:
            return connected_ms + await self._select(connection)
        finally:
            await _disconnect(connection)

    async def aclose(self) -> None:
        if self._connection is not None:
            await _disconnect(self._connection)

    async def _select(self, connection: Any) -> float:
        query, batch_id = _somewhere()
        mark = self._database.mark
        statement = (
            f"SELECT {', '.join(kept_batches.COLUMNS)} FROM sparklag_batches"
            f" WHERE query_key = {mark} AND generation = {mark} AND batch_id = {mark}"
        )
        start_s = time.perf_counter()
        cursor = await _answer(connection.cursor())
        await cursor.execute(statement, (self._keys[query], 0, batch_id))
        row = await cursor.fetchone()
        taken_ms = _since(start_s)
        await cursor.close()
        await connection.rollback()
        _check(row is not None)
        return taken_ms


async def _answer(what: Any) -> Any:
    """Of a method that some drivers have to wait for."""
    return await what if isawaitable(what) else what


async def _disconnect(connection: Any) -> None:
    await _answer(connection.close())


async def _in_turn(count: int, ours: Ask, plain: Ask) -> tuple[list[float], list[float]]:
    """So many samples of both, A B, B A, A B …, milliseconds."""
    taken_ms: dict[Ask, list[float]] = {ours: [], plain: []}
    gc.collect()
    for number in range(_WARM_UP + count):
        for ask in (ours, plain) if number % 2 else (plain, ours):
            sample = await ask()
            if number >= _WARM_UP:
                taken_ms[ask].append(sample)
    return taken_ms[ours], taken_ms[plain]


def _row(what: str, ours: Sequence[float], plain: Sequence[float]) -> Row:
    worst = _p99(ours)
    return Row(
        what,
        f"{ms(ours)}, p99 {worst:.1f}",
        f"{ms(plain)}, p99 {_p99(plain):.1f}, bare SELECT by key",
        times(median(ours) / median(plain)),
        f"p99 ≤ {REACH_MS:g} ms",
        worst <= REACH_MS,
    )


def _p99(samples: Sequence[float]) -> float:
    return quantiles(samples, n=100)[-1]


def _somewhere() -> tuple[int, int]:
    """A query, and one of its batches."""
    return random.randrange(_QUERIES), random.randrange(_BATCHES)


def _since(start_s: float) -> float:
    return (time.perf_counter() - start_s) * 1000


def _check(is_right: bool) -> None:
    if not is_right:
        raise RuntimeError("what was looked up is not what was written")
