"""The service keeps every batch's offsets: on a real broker, whatever the store does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparklag_offsets.errors import UnusableStore
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_schemas import Batch, Observation, Settings, StoreSettings
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.recording import store_group
from tests.databases.postgresql import PostgreSQLServer
from tests.logged import logged
from tests.messages import OTHER_RUN, position, seen
from tests.second_client import SecondClient
from tests.service.conftest import running
from tests.service.pipelines import pipeline_of
from tests.waiting import eventually, holds

kafka = pytest.mark.kafka


def storing(settings: Settings, url: str) -> Settings:
    return replace(settings, store=StoreSettings(url=url))


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/offsets.db"


@pytest.fixture
def topic(second_client: SecondClient, topic_name: str) -> str:
    """A topic with 70 records: a position beyond the log end is no query's."""
    second_client.create(topic_name)
    second_client.produce(topic_name, [b"x"] * 70)
    return topic_name


async def kept(url: str, query_id: str) -> list[BatchRecord]:
    store = open_store(url, create=True)
    records = []
    try:
        await store.prepare()
        record = await store.as_of(query_id, None)
        while record is not None:
            records.append(record)
            record = await store.as_of(query_id, record.processed_at - 1)
    finally:
        await store.aclose()
    return records


async def has_batch(url: str, query_id: str, batch_id: int) -> bool:
    records = await kept(url, query_id)
    return bool(records) and records[0].batch_id == batch_id


def batches(topic: str, count: int) -> list[Observation]:
    # Not long ago: what is past `store.keep_s` is pruned, at any moment of the first minutes.
    first_ms = epoch_ms() - 1_000 * count
    first = seen(topic, {0: 10}, batch_id=0, processed_at=first_ms)
    return [first] + [
        replace(
            first,
            batch_id=number,
            processed_at=first_ms + 1_000 * number,
            observed_at=first.observed_at + number,
            sources=[position({topic: {0: 10 * (number + 1)}}, began={topic: {0: 10 * number}})],
        )
        for number in range(1, count)
    ]


@kafka
async def test_every_batch_is_recorded_and_committed_after_that(
    service_settings: Settings, second_client: SecondClient, topic: str, sqlite: str
) -> None:
    settings = storing(service_settings, sqlite)
    message = batches(topic, 5)
    query_id = message[0].query_id
    async with running(settings, second_client) as service:
        service.observe(*message, message[2], message[4])
        await eventually(lambda: has_batch(sqlite, query_id, 4), "the last batch is recorded")

        def is_committed() -> bool:
            committed = second_client.committed(store_group(settings), settings.offsets_topic)
            return sum(committed.values()) == 7

        await holds(is_committed, "all that was read is committed")
        assert service.pipeline.counters.batches_recorded == 5
    records = await kept(sqlite, query_id)
    assert [record.batch_id for record in records] == [4, 3, 2, 1, 0]
    assert [record.topics[0].ranges for record in reversed(records)] == [
        [(0, None, 10)],
        *([(0, 10 * number, 10 * number + 10)] for number in range(1, 5)),
    ]
    topic_id = records[0].topics[0].topic_id
    assert topic_id is not None
    # What Kafka calls it: the two ids are of one length.
    assert len(topic_id) == 22


@kafka
async def test_what_another_driver_writes_in_its_name_does_not_move_a_query_ahead(
    service_settings: Settings, second_client: SecondClient, topic: str, sqlite: str
) -> None:
    message = batches(topic, 5)
    query_id = message[0].query_id
    async with running(storing(service_settings, sqlite), second_client) as service:
        service.observe(message[0])
        await eventually(lambda: has_batch(sqlite, query_id, 0), "the first is recorded")
        beyond = [position({topic: {0: 71}})]
        forged = (
            replace(message[1], batch_id=10**15),
            replace(message[1], sources=beyond),
            replace(message[1], run_id=OTHER_RUN, sources=beyond),
        )
        service.observe(*forged)
        counters = service.pipeline.counters
        await holds(lambda: counters.batches_refused == len(forged), "they are refused")
        # In bounds, it is contradicted by the next of the query's own.
        service.observe(replace(message[2], run_id=OTHER_RUN, sources=[position({topic: {0: 70}})]))
        await eventually(lambda: has_batch(sqlite, query_id, 2), "the forged one is recorded")
        later_ms = message[2].observed_at + 1_000
        for number in (3, 4):
            own = replace(message[number], observed_at=later_ms + number)
            service.observe(replace(own, batch=Batch(started_at=later_ms, rows=10)))
            await eventually(partial(has_batch, sqlite, query_id, number), "its own")
        assert counters.batches_refused == len(forged)
    assert (await kept(sqlite, query_id))[0].topics[0].ranges == [(0, 40, 50)]


@kafka
async def test_a_store_that_is_away_holds_up_its_own_progress_alone(
    service_settings: Settings,
    second_client: SecondClient,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with PostgreSQLServer() as database:
        settings = storing(service_settings, database.url)
        message = batches(topic, 7)
        query_id = message[0].query_id
        async with running(settings, second_client) as service:
            service.observe(*message[:2])
            await eventually(
                lambda: has_batch(database.url, query_id, 1), "the second batch is recorded"
            )
            database.kill()
            service.observe(*message[2:6])
            # The lag is right all the same, and goes on being so.
            await service.shows(query_id, lambda e: e.total_lag == 10, "lag 10")
            await holds(
                lambda: "offset store" in service.state.degraded(), "it reports what is away"
            )
            assert service.state.not_ready() == {}
            service.observe(message[6])
            await service.shows(query_id, lambda e: e.total_lag == 0, "lag 0")
            committed = second_client.committed(store_group(settings), settings.offsets_topic)
            assert sum(committed.values()) <= 2
            database.start()
            await eventually(
                lambda: has_batch(database.url, query_id, 6), "the last batch is recorded"
            )
            await holds(lambda: service.state.degraded() == {}, "nothing is away")
        records = await kept(database.url, query_id)
    assert [record.batch_id for record in records] == [6, 5, 4, 3, 2, 1, 0]
    assert not any(record.is_inferred for record in records)
    output = [line for line in logged(caplog) if "offsets are not recorded" in line]
    assert len(output) == 1
    assert "\n" not in output[0]


@kafka
async def test_a_service_that_comes_later_records_what_was_reported_before(
    service_settings: Settings, second_client: SecondClient, topic: str, sqlite: str
) -> None:
    message = batches(topic, 4)
    async with running(service_settings, second_client) as service:
        service.observe(*message[:2])
        await service.shows(message[0].query_id, lambda e: e.batch_id == 1, "the second batch")
    async with running(storing(service_settings, sqlite), second_client) as service:
        await eventually(lambda: has_batch(sqlite, message[0].query_id, 1), "both are recorded")
        service.observe(*message[2:])
        await eventually(lambda: has_batch(sqlite, message[0].query_id, 3), "all are recorded")
    # And one that comes again goes on where that one was.
    async with running(storing(service_settings, sqlite), second_client) as service:
        later = replace(
            message[3],
            batch_id=4,
            processed_at=epoch_ms(),
            observed_at=epoch_ms(),
            sources=[position({topic: {0: 50}})],
        )
        service.observe(later)
        await eventually(lambda: has_batch(sqlite, message[0].query_id, 4), "the next is recorded")
    assert len(await kept(sqlite, message[0].query_id)) == 5


@kafka
async def test_two_services_share_the_recording_and_a_batch_is_there_once(
    service_settings: Settings, second_client: SecondClient, topic: str, sqlite: str
) -> None:
    settings = storing(service_settings, sqlite)
    queries = [batches(topic, 6) for _ in range(6)]
    async with running(settings, second_client) as first:
        first.observe(*(query[0] for query in queries))
        async with running(settings, second_client):
            for number in range(1, 4):
                first.observe(*(query[number] for query in queries))
        # The second has left: what was its falls to the first.
        for number in range(4, 6):
            first.observe(*(query[number] for query in queries))
        for query in queries:
            last = partial(has_batch, sqlite, query[0].query_id, 5)
            await eventually(last, "the last batch is recorded")
    for query in queries:
        records = await kept(sqlite, query[0].query_id)
        assert [record.batch_id for record in records] == [5, 4, 3, 2, 1, 0]


@kafka
async def test_a_checkpoint_that_nobody_speaks_for_is_recorded_too(
    service_settings: Settings, second_client: SecondClient, topic: str, sqlite: str
) -> None:
    looked_at = seen(
        topic, {0: 10}, run_id=None, origin="checkpoint", cause="checkpoint", batch_id=3
    )
    async with running(storing(service_settings, sqlite), second_client) as service:
        recording = service.pipeline.recording
        assert recording is not None
        recording.record(looked_at)
        await eventually(lambda: has_batch(sqlite, looked_at.query_id, 3), "it is recorded")


async def test_a_store_that_cannot_be_one_is_reported_at_the_start() -> None:
    with pytest.raises(UnusableStore, match=r"'redis://h/0' is not the URL of an offset store"):
        pipeline_of(Settings(store=StoreSettings(url="redis://h/0")))
