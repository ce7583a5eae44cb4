"""The writer: from observations to the records in the store, also after a restart."""

from __future__ import annotations

import asyncio

import pytest

from sparklag_offsets.store import writer as writer_module
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Batch, Observation, Settings
from tests.logged import logged
from tests.messages import OTHER_RUN, QUERY_ID, RUN_ID
from tests.offsets.store.batches import at_ms, check_whole, new_query, output, records_of, spans
from tests.offsets.store.faulty_store import FaultyStore
from tests.waiting import DEADLINE_S, holds


async def record(writer: StoreWriter, *observations: Observation) -> int:
    before = writer.counts.batches
    await asyncio.wait_for(writer.write(observations), DEADLINE_S)
    return writer.counts.batches - before


async def test_a_run_continues_after_unobserved_batches(sqlite_store: OffsetStore) -> None:
    writer = StoreWriter(sqlite_store, Settings())
    assert await record(writer, output(0), output(3)) == 3
    assert await record(writer, output(4), output(5)) == 2
    records = await records_of(sqlite_store)
    assert spans(records) == [(0, 0, 0), (0, 1, 2), (0, 3, 3), (0, 4, 4), (0, 5, 5)]


async def test_after_a_restart_it_goes_on_from_the_store(sqlite_store: OffsetStore) -> None:
    await record(StoreWriter(sqlite_store, Settings()), *(output(n) for n in range(4)))
    added = await record(StoreWriter(sqlite_store, Settings()), *(output(n) for n in range(6)))
    assert added == 2
    records = await records_of(sqlite_store)
    check_whole(records)
    assert spans(records) == [(0, n, n) for n in range(6)]


@pytest.mark.parametrize("fault", ["away", "loses_answers"])
async def test_a_failed_write_is_repeated_and_recorded_once(
    sqlite_store: OffsetStore, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_FIRST_PAUSE_S", 0.01)
    failing = FaultyStore(sqlite_store)
    writer = StoreWriter(failing, Settings())
    await record(writer, output(0))
    setattr(failing, fault, True)
    writing = asyncio.create_task(record(writer, output(1), output(4)))
    await holds(lambda: writer.counts.failures >= 2, "it fails again")
    setattr(failing, fault, False)
    await writing
    await record(writer, output(1), output(4), output(5))
    records = await records_of(sqlite_store)
    check_whole(records)
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (0, 2, 3), (0, 4, 4), (0, 5, 5)]


async def test_the_store_is_read_once_for_each_query(sqlite_store: OffsetStore) -> None:
    store = FaultyStore(sqlite_store)
    writer = StoreWriter(store, Settings())
    other = new_query()
    await record(writer, output(0))
    await record(writer, output(1), output(0, query_id=other))
    await record(writer, output(2), output(1, query_id=other))
    assert store.requested == [{QUERY_ID}, {other}]


async def test_queries_that_left_the_cache_are_read_again(
    sqlite_store: OffsetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_CACHED_QUERIES", 2)
    writer = StoreWriter(sqlite_store, Settings())
    query_ids = [new_query() for _ in range(5)]
    for batch_id in range(3):
        for query_id in query_ids:
            await record(writer, output(batch_id, query_id=query_id))
    for query_id in query_ids:
        assert spans(await records_of(sqlite_store, query_id)) == [(0, n, n) for n in range(3)]


async def test_two_drivers_of_a_query_are_reported_once(
    sqlite_store: OffsetStore, caplog: pytest.LogCaptureFixture
) -> None:
    writer = StoreWriter(sqlite_store, Settings())
    await record(writer, output(0), *(output(n, run_id=OTHER_RUN) for n in (1, 2)))
    for n in range(3, 6):
        beside = output(n, batch=Batch(started_at=at_ms(n + 10), rows=1))
        assert await record(writer, beside, output(n, run_id=OTHER_RUN)) == 1
    (line,) = logged(caplog)
    assert line == (
        f"query orders is run by two drivers: run {RUN_ID} continues beside run {OTHER_RUN}, and"
        " sparklag records the latter alone"
    )
    assert spans(await records_of(sqlite_store)) == [(0, n, n) for n in range(6)]


async def test_nothing_to_add_writes_nothing(sqlite_store: OffsetStore) -> None:
    failing = FaultyStore(sqlite_store)
    writer = StoreWriter(failing, Settings())
    await record(writer, output(0))
    failing.away = True
    assert await record(writer, output(0), output(None)) == 0
    assert await record(writer) == 0
