"""The writer: from what is heard to what is in the store, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from sparklag_offsets.errors import StoreAway
from sparklag_offsets.store import writer as writer_module
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.offset_store import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Batch, Observation, Settings
from tests.logged import logged
from tests.messages import OTHER_RUN, QUERY_ID, RUN_ID
from tests.offsets.store.batches import at_ms, check_whole, new_query, spans, told
from tests.waiting import DEADLINE_S, holds


class FailingStore:
    """Not a store: passes what it is asked on to one, and fails at keeping when it is told to:
    before it has kept them, or after."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self.fails: str | None = None
        self.asked: list[set[str]] = []
        self.shown = store.shown
        self.as_of, self.queries, self.prune = store.as_of, store.queries, store.prune
        self.prepare, self.aclose = store.prepare, store.aclose

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        self.asked.append(set(query_ids))
        return await self._store.newest(query_ids)

    async def write(self, records: Sequence[BatchRecord]) -> None:
        if self.fails != "before":
            await self._store.write(records)
        if self.fails is not None:
            raise StoreAway("it went away")


async def of(store: OffsetStore, query_id: str = QUERY_ID) -> list[BatchRecord]:
    """All records of a query, of which no two completed at once."""
    found: list[BatchRecord] = []
    newest = await store.as_of(query_id, None)
    while newest is not None:
        found.insert(0, newest)
        newest = await store.as_of(query_id, newest.processed_at - 1)
    return found


async def record(writer: StoreWriter, *observations: Observation) -> int:
    """How many records they add."""
    before = writer.counts.batches
    await asyncio.wait_for(writer.write(observations), DEADLINE_S)
    return writer.counts.batches - before


async def test_a_run_goes_on_after_batches_nobody_told_of(sqlite_store: OffsetStore) -> None:
    writer = StoreWriter(sqlite_store, Settings())

    assert await record(writer, told(0), told(3)) == 3
    assert await record(writer, told(4), told(5)) == 2

    assert spans(await of(sqlite_store)) == [(0, 0, 0), (0, 1, 2), (0, 3, 3), (0, 4, 4), (0, 5, 5)]


async def test_after_a_restart_it_goes_on_from_what_is_in_the_store(
    sqlite_store: OffsetStore,
) -> None:
    await record(StoreWriter(sqlite_store, Settings()), *(told(n) for n in range(4)))

    added = await record(StoreWriter(sqlite_store, Settings()), *(told(n) for n in range(6)))

    assert added == 2
    records = await of(sqlite_store)
    check_whole(records)
    assert spans(records) == [(0, n, n) for n in range(6)]


async def test_what_was_missed_while_it_was_away_is_known_all_the_same(
    sqlite_store: OffsetStore,
) -> None:
    await record(StoreWriter(sqlite_store, Settings()), told(0))

    await record(StoreWriter(sqlite_store, Settings()), told(7), told(8))

    assert spans(await of(sqlite_store)) == [(0, 0, 0), (0, 1, 6), (0, 7, 7), (0, 8, 8)]


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_what_failed_is_repeated_and_is_there_once(
    sqlite_store: OffsetStore, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_FIRST_PAUSE_S", 0.01)
    failing = FailingStore(sqlite_store)
    writer = StoreWriter(failing, Settings())
    await record(writer, told(0))
    failing.fails = fails
    writing = asyncio.create_task(record(writer, told(1), told(4)))
    await holds(lambda: writer.counts.failures >= 2, "it fails again")
    failing.fails = None
    await writing

    await record(writer, told(1), told(4), told(5))

    records = await of(sqlite_store)
    check_whole(records)
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (0, 2, 3), (0, 4, 4), (0, 5, 5)]


async def test_the_store_is_asked_once_of_each_query(sqlite_store: OffsetStore) -> None:
    asked = FailingStore(sqlite_store)
    writer = StoreWriter(asked, Settings())
    other = new_query()
    await record(writer, told(0))
    await record(writer, told(1), told(0, query_id=other))
    await record(writer, told(2), told(1, query_id=other))

    assert asked.asked == [{QUERY_ID}, {other}]


async def test_of_the_queries_it_forgot_it_asks_again(
    sqlite_store: OffsetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_CACHED_QUERIES", 2)
    writer = StoreWriter(sqlite_store, Settings())
    query_ids = [new_query() for _ in range(5)]
    for batch_id in range(3):
        for query_id in query_ids:
            await record(writer, told(batch_id, query_id=query_id))

    for query_id in query_ids:
        assert spans(await of(sqlite_store, query_id)) == [(0, n, n) for n in range(3)]


async def test_two_drivers_of_a_query_are_told_of_once(
    sqlite_store: OffsetStore, caplog: pytest.LogCaptureFixture
) -> None:
    writer = StoreWriter(sqlite_store, Settings())
    await record(writer, told(0), told(1, run_id=OTHER_RUN))
    for n in range(2, 5):
        beside = told(n, batch=Batch(started_at=at_ms(n + 10), rows=1))
        assert await record(writer, beside, told(n, run_id=OTHER_RUN)) == 1

    (said,) = logged(caplog)
    assert said == (
        f"query orders is run by two drivers: run {RUN_ID} continues beside run {OTHER_RUN}, which"
        " began later; sparklag does not record the earlier run"
    )
    assert spans(await of(sqlite_store)) == [(0, n, n) for n in range(5)]


async def test_nothing_to_add_writes_nothing(sqlite_store: OffsetStore) -> None:
    failing = FailingStore(sqlite_store)
    writer = StoreWriter(failing, Settings())
    await record(writer, told(0))
    failing.fails = "before"

    assert await record(writer, told(0), told(None)) == 0
    assert await record(writer) == 0
