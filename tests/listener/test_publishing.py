"""Publishing to a real broker: one that is away, comes back, freezes, or refuses."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sparklag_listener.publishing import _MAX_PAUSE_S, publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import KafkaSettings, Observation, Settings, decode_observation
from sparklag_schemas.runtime.queue import NewestQueue
from tests.background_task import background
from tests.listener.offsets_topic import OffsetsTopic
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import observation, position
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka

QUERIES = ("query-a", "query-b", "query-c")


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[LocalKafka]:
    """A broker to stop, kill and freeze. Each test leaves it running."""
    with LocalKafka() as broker:
        yield broker


class Publishing:
    def __init__(self, settings: Settings) -> None:
        self.stats = Stats()
        self.queue: NewestQueue[Observation] = NewestQueue(
            settings.queue_size, key=lambda observation: observation.query_id
        )
        self.task: asyncio.Task[object]

    def put(self, query_id: str, batch_id: int, partitions: int = 1) -> None:
        offsets = {"orders": dict.fromkeys(range(partitions), batch_id)}
        self.queue.put_nowait(
            observation(
                observation_id=f"{query_id}/{batch_id}",
                query_id=query_id,
                batch_id=batch_id,
                sources=[position(offsets)],
            )
        )

    async def published(self) -> None:
        await asyncio.wait_for(self.queue.join(), 120)

    async def failed(self, times: int = 1) -> None:
        await holds(lambda: self.stats.failed >= times, f"{times} failures")


@asynccontextmanager
async def publishing(
    servers: str, topic: str, *, request_timeout_s: float = 30.0, **settings: Any
) -> AsyncIterator[Publishing]:
    kafka = KafkaSettings(request_timeout_s=request_timeout_s)
    own = Settings(offsets_topic=topic, topic_partitions=3, kafka=kafka, **settings)
    made = Publishing(own)
    run = publish_offsets(made.queue, own.resolved(servers), made.stats)
    async with background(run) as made.task:
        yield made


def newest(topic: OffsetsTopic) -> dict[str, int | None]:
    return {query: topic.observations(query)[-1].batch_id for query in QUERIES}


async def test_messages_are_keyed_by_query_in_order_with_cloudevents_headers(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    async with publishing(kafka.bootstrap_servers, topic_name) as publisher:
        for batch in range(20):
            for query in QUERIES:
                publisher.put(query, batch)
        await publisher.published()
    assert second_client.partitions(topic_name) == 3
    topic = OffsetsTopic(second_client, topic_name)
    for query in QUERIES:
        messages = topic.messages(query)
        assert len({message.partition() for message in messages}) == 1
        assert [o.batch_id for o in topic.observations(query)] == list(range(20))
        for message in messages:
            printed = decode_observation(message.value() or b"")
            assert dict(message.headers() or []) == {
                "ce_specversion": b"1.0",
                "ce_id": printed.observation_id.encode(),
                "ce_source": f"/sparklag/default/driver/{printed.run_id}".encode(),
                "ce_type": b"sparklag.observation.v1",
                "ce_time": b"2026-09-21T14:13:20.200Z",
                "ce_subject": query.encode(),
                "content-type": b"application/json",
            }
    assert publisher.stats.published == 60
    assert publisher.stats.last_published_at_ms is not None
    assert publisher.stats.last_error is None


async def test_killed_in_the_middle_it_tries_on_keeps_the_newest_and_reports_so_twice(
    own_kafka: LocalKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparklag")
    async with publishing(own_kafka.bootstrap_servers, topic_name, queue_size=10) as publisher:
        for query in QUERIES:
            publisher.put(query, 0)
        await publisher.published()
        await asyncio.to_thread(own_kafka.kill)
        for batch in range(1, 41):
            for query in QUERIES:
                publisher.put(query, batch)
        await publisher.failed(3)
        assert publisher.queue.dropped > 0
        await asyncio.to_thread(own_kafka.restart)
        await publisher.published()
        assert publisher.queue.dropped + publisher.stats.published >= 3 * 41
    topic = OffsetsTopic(SecondClient(own_kafka.bootstrap_servers), topic_name)
    assert newest(topic) == dict.fromkeys(QUERIES, 40)
    for query in QUERIES:
        batches = [o.batch_id or 0 for o in topic.observations(query)]
        assert batches == sorted(batches), "never an older one after a newer"
    failed, works = logged(caplog, logging.INFO)
    assert "cannot publish" in failed
    assert own_kafka.bootstrap_servers in failed
    assert "the query is not affected" in failed
    assert "again" in works


@pytest.mark.slow
async def test_away_from_the_start_it_publishes_once_the_broker_is_there(
    own_kafka: LocalKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparklag")
    await asyncio.to_thread(own_kafka.stop)
    async with publishing(own_kafka.bootstrap_servers, topic_name) as publisher:
        for query in QUERIES:
            publisher.put(query, 1)
        await publisher.failed(2)
        assert "connection refused" in str(publisher.stats.last_error)
        await asyncio.to_thread(own_kafka.start)
        await publisher.published()
    topic = OffsetsTopic(SecondClient(own_kafka.bootstrap_servers), topic_name)
    assert newest(topic) == dict.fromkeys(QUERIES, 1)
    assert len(logged(caplog, logging.INFO)) == 2


async def test_it_publishes_once_kafka_is_thawed(own_kafka: LocalKafka, topic_name: str) -> None:
    servers = own_kafka.bootstrap_servers
    async with publishing(servers, topic_name, request_timeout_s=1.0) as publisher:
        publisher.put("query-a", 0)
        await publisher.published()
        own_kafka.freeze()
        try:
            for query in QUERIES:
                publisher.put(query, 1)
            await publisher.failed(2)
        finally:
            own_kafka.thaw()
        await publisher.published()
    topic = OffsetsTopic(SecondClient(servers), topic_name)
    assert newest(topic) == dict.fromkeys(QUERIES, 1)


@pytest.mark.slow
@pytest.mark.blocks_loop("the test makes an observation of 800,000 partitions")
async def test_what_is_larger_than_any_request_is_dropped_too(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    async with publishing(kafka.bootstrap_servers, topic_name) as publisher:
        publisher.put("query-a", 2, partitions=800_000)
        publisher.put("query-a", 3)
        await publisher.published()
    topic = OffsetsTopic(second_client, topic_name)
    assert [o.batch_id for o in topic.observations("query-a")] == [3]
    assert publisher.stats.dropped == 1


async def test_a_topic_deleted_under_it_is_made_again(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    servers = kafka.bootstrap_servers
    async with publishing(servers, topic_name, request_timeout_s=2.0) as publisher:
        publisher.put("query-a", 1)
        await publisher.published()
        await asyncio.to_thread(second_client.delete, topic_name)
        publisher.put("query-a", 2)
        await publisher.published()
    topic = OffsetsTopic(second_client, topic_name)
    assert [o.batch_id for o in topic.observations("query-a")] == [2]


async def test_a_name_without_an_address_is_reported_and_nothing_is_lost(
    topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with publishing("broker.invalid:9092", topic_name) as publisher:
        publisher.put("query-a", 1)
        await publisher.failed(2)
        assert publisher.queue.unfinished == 1
        assert not publisher.task.done()
    (line,) = logged(caplog, logging.INFO)
    assert "broker.invalid:9092" in line


async def test_something_that_is_not_kafka_is_reported_and_does_not_hold_up_the_end(
    topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        async with publishing(servers, topic_name, request_timeout_s=0.5) as publisher:
            publisher.put("query-a", 1)
            await publisher.failed(1)
            publisher.task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait_for(publisher.task, DEADLINE_S)
    assert servers in logged(caplog, logging.INFO)[0]


async def test_of_a_backlog_no_query_waits_for_all_of_another_and_each_keeps_its_order(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    async with publishing(kafka.bootstrap_servers, topic_name, queue_size=1_000) as publisher:
        # Also more queries than go together.
        many = [f"query-{number}" for number in range(250)]
        for batch in range(3):
            for query in many:
                publisher.put(query, batch)
        for batch in range(20):
            publisher.put("query-a", batch)
        await publisher.published()
    topic = OffsetsTopic(second_client, topic_name)
    assert [o.batch_id for o in topic.observations("query-a")] == list(range(20))
    for query in many[::50]:
        assert [o.batch_id for o in topic.observations(query)] == [0, 1, 2]
    assert publisher.stats.published == 3 * 250 + 20
    assert publisher.queue.unfinished == 0


async def test_a_refusal_by_size_costs_none_of_those_that_went_with_it(
    kafka: LocalKafka,
    second_client: SecondClient,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    second_client.create(topic_name, 1, max_message_bytes="2000")
    async with publishing(kafka.bootstrap_servers, topic_name) as publisher:
        # Together they are too large too. Later ones of the refused query go on.
        together = [f"query-{number}" for number in range(20)]
        for query in together:
            publisher.put(query, 1, partitions=5_000 if query == "query-7" else 10)
            publisher.put(query, 2)
        await publisher.published()
    topic = OffsetsTopic(second_client, topic_name)
    for query in together:
        arrived = [o.batch_id for o in topic.observations(query)]
        assert arrived == ([2] if query == "query-7" else [1, 2])
    assert (publisher.stats.dropped, publisher.stats.published) == (1, 39)
    (line,) = logged(caplog, logging.INFO)
    assert "dropped an observation of orders" in line
    assert topic_name in line


def test_pauses_are_short_enough_for_the_service_not_to_miss_the_driver() -> None:
    # It takes three silent heartbeats for its death.
    assert 0.3 * Settings().heartbeat_s >= _MAX_PAUSE_S
