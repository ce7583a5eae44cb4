"""What is asked of a broker while a fetch waits there for records."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import TopicPartition

from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_schemas import Settings
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka


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
    await consumer.start()
    try:
        assert await asyncio.wait_for(consumer.position(partition), DEADLINE_S) == 0
        await holds(lambda: consumer._fetcher._in_flight, "it fetches")
        # After 40 s aiokafka gives the fetch up, and connects anew.
        ends = await asyncio.wait_for(consumer.end_offsets([partition]), 30)
        assert ends == {partition: 0}
    finally:
        await consumer.stop()
