"""The writer: it repeats for as long as it takes, and logs a failure once."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sparklag_listener.publishing import record_offsets
from sparklag_listener.stats import Stats
from sparklag_offsets.store import writer as writer_module
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, Settings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings import StoreSettings
from sparklag_schemas.timestamps import epoch_ms
from tests.background_task import background
from tests.logged import logged
from tests.messages import QUERY_ID
from tests.offsets.conftest import open_until_end
from tests.offsets.store.batches import new_query, output, records_of, spans
from tests.offsets.store.faulty_store import FaultyStore
from tests.waiting import DEADLINE_S, eventually, holds


@pytest.fixture
async def store(tmp_path: Path, opened: AsyncExitStack) -> FaultyStore:
    return FaultyStore(open_until_end(f"sqlite:///{tmp_path}/offsets.db", opened, create=True))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(writer_module, "_MAX_PAUSE_S", 0.02)
    monkeypatch.setattr(writer_module, "_PRUNE_S", 0.05)


async def test_it_tries_until_it_is_written_and_reports_so_once_each(
    store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparklag")
    reasons: list[str] = []
    writer = StoreWriter(store, Settings(), reasons.append)
    for first in (0, 1):
        store.away = True
        writing = asyncio.create_task(writer.write([output(first)]))
        await holds(lambda: writer.counts.failures >= 3 * (first + 1), "it fails again")  # noqa: B023
        assert writer.failing == reasons[-1]
        assert not writing.done()
        store.away = False
        await asyncio.wait_for(writing, DEADLINE_S)
        assert writer.failing is None
    assert logged(caplog) == [
        "sparklag: offsets are not recorded, retrying: it cannot be prepared",
        f"sparklag: offsets are recorded again in {store.shown}",
        "sparklag: offsets are not recorded, retrying: it cannot be written",
        f"sparklag: offsets are recorded again in {store.shown}",
    ]
    assert len(reasons) == writer.counts.failures
    assert spans(await records_of(store)) == [(0, 0, 0), (0, 1, 1)]


async def test_after_another_has_written_it_goes_on_from_there(store: FaultyStore) -> None:
    writer, other = (StoreWriter(store, Settings()) for _ in range(2))
    await writer.write([output(0)])
    await other.write([output(1), output(2)])
    writer.forget()
    await writer.write([output(5)])
    assert spans(await records_of(store)) == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 4), (0, 5, 5)]


async def test_it_prunes_again_and_again(store: FaultyStore) -> None:
    settings = Settings(store=StoreSettings(keep_s=None, keep_batches=2))
    writer = StoreWriter(store, settings)
    async with background(writer.prune_regularly()):
        for batches in (range(5), range(5, 10)):
            await writer.write([output(n) for n in batches])
            await eventually(lambda: _are_left(store, 2), "the older ones are deleted")
        store.away = True
        await holds(lambda: writer.failing == "it cannot be pruned", "it cannot")
        store.away = False
        await writer.write([output(n) for n in range(10, 15)])
        await eventually(lambda: _are_left(store, 2), "the older ones are deleted")
    assert writer.counts.pruned == 13
    assert spans(await records_of(store)) == [(0, 13, 13), (0, 14, 14)]


async def test_it_prunes_what_is_older_than_it_is_to_be_kept(store: FaultyStore) -> None:
    writer = StoreWriter(store, Settings(store=StoreSettings(keep_s=3_600)))
    now_ms = epoch_ms()
    hours = [output(n, processed_at=now_ms - (3 - n) * 3_000_000) for n in range(4)]
    async with background(writer.prune_regularly()):
        await writer.write(hours)
        await eventually(lambda: _are_left(store, 2), "the older ones are deleted")
    assert spans(await records_of(store)) == [(0, 2, 2), (0, 3, 3)]


async def test_nothing_is_pruned_without_a_retention(store: FaultyStore) -> None:
    writer = StoreWriter(store, Settings(store=StoreSettings(keep_s=None)))
    await asyncio.wait_for(writer.prune_regularly(), DEADLINE_S)


async def test_a_driver_records_what_came_while_the_store_was_away(store: FaultyStore) -> None:
    queue: NewestQueue[Observation] = NewestQueue(1, key=lambda one: one.query_id)
    stats = Stats()
    other = new_query()
    async with background(record_offsets(store, Settings(), queue, stats)):
        queue.put_nowait(output(0))
        await asyncio.wait_for(queue.join(), DEADLINE_S)
        store.away = True
        for n in range(1, 30):
            queue.put_nowait(output(n, query_id=other))
        for n in range(1, 30):
            queue.put_nowait(output(n))
        await holds(lambda: stats.last_error is not None, "it fails")
        store.away = False
        await asyncio.wait_for(queue.join(), DEADLINE_S)
    records = await records_of(store)
    assert records[-1].batch_id == 29
    covered = [n for one in records for n in range(one.first_batch_id, one.batch_id + 1)]
    assert covered == list(range(30))
    newest = (await store.newest([QUERY_ID, other]))[other]
    assert newest.end_offsets() == {(0, "orders"): {0: 10 * newest.batch_id + 10}}


async def _are_left(store: OffsetStore, number: int) -> bool:
    return len(await records_of(store)) == number


@pytest.mark.packaging
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_record_that_a_database_refuses_delays_no_other(
    kind: str,
    request: pytest.FixtureRequest,
    opened: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = open_until_end(request.getfixturevalue(kind).new_database(), opened)
    writer = StoreWriter(store, Settings())
    others = [output(number, query_id=new_query()) for number in range(3)]
    too_long = output(1, query_id="x" * 300, query="long")
    await writer.write([others[0], too_long, *others[1:]])
    assert (writer.counts.batches, writer.counts.refused) == (3, 1)
    assert len(await store.newest([other.query_id for other in others])) == 3
    (complaint,) = logged(caplog, logging.ERROR)
    assert "batch 1 of query 'long' is not recorded" in complaint
    assert "\n" not in complaint
