"""A consumer does not wait for a fetch, and leaves its group whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import TopicPartition

from sparklag_kafka.clients import consumer as consumer_module
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_schemas import Settings
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka


async def _cancelled() -> None:
    stopped = asyncio.get_running_loop().create_future()
    stopped.cancel()
    await stopped


async def _refused() -> None:
    raise KafkaConnectionError("closed")


async def _endless() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.fixture
async def consumer(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> ContractConsumer:
    second_client.create(topic_name, 1)
    consumer = ContractConsumer(
        Settings().resolved(kafka.bootstrap_servers), lambda *_: None, group_id=topic_name
    )
    consumer.subscribe([topic_name])
    await consumer.start()
    await holds(lambda: consumer._fetcher._pending_tasks, "it fetches")
    return consumer


async def nothing_goes_on(consumer: ContractConsumer) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), DEADLINE_S)
    assert not any(connection.connected() for connection in consumer._client._conns.values())


async def test_each_step_that_fails_is_logged_and_nothing_goes_on(
    consumer: ContractConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger=consumer_module.__name__):
        await consumer.leave_group(0.5, _cancelled, _refused, _endless)
    assert [line for line in logged(caplog) if line.startswith("left")][:3] == [
        "left the group uncleanly: it was cancelled unexpectedly",
        "left the group uncleanly: KafkaConnectionError: closed",
        "left the group uncleanly: no answer in time",
    ]
    await nothing_goes_on(consumer)


async def test_a_consumer_stops_when_its_cancelled_tasks_raise(consumer: ContractConsumer) -> None:
    # As it is when the fetching itself has ended by a failure.
    consumer._fetcher._pending_tasks.add(asyncio.create_task(_endless()))
    await consumer.stop()
    await nothing_goes_on(consumer)
    await consumer.stop()


async def test_a_consumer_whose_stop_is_cancelled_leaves_nothing(
    consumer: ContractConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = asyncio.Event()

    async def leave() -> None:
        leaves.set()
        await _endless()

    monkeypatch.setattr(consumer._coordinator, "_maybe_leave_group", leave)
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait_for(leaves.wait(), DEADLINE_S)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await nothing_goes_on(consumer)


async def test_offsets_do_not_wait_for_a_fetch_at_the_log_end(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 1)
    partition = TopicPartition(topic_name, 0)
    consumer = ContractConsumer(
        Settings().resolved(kafka.bootstrap_servers),
        lambda *_: None,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=600_000,
    )
    consumer.subscribe([topic_name])
    async with consumer:
        assert await asyncio.wait_for(consumer.position(partition), DEADLINE_S) == 0
        await holds(lambda: consumer._fetcher._in_flight, "it fetches")
        # After 40 s aiokafka gives the fetch up, and connects anew.
        ends = await asyncio.wait_for(consumer.end_offsets([partition]), 30)
        assert ends == {partition: 0}
