"""A group is left whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError

from sparklag_pipeline.local_kafka import LocalKafka
from sparklag_service import leaving
from sparklag_service.leaving import leave_group
from tests.logged import logged

pytestmark = pytest.mark.kafka


async def _cancelled() -> None:
    stopped = asyncio.get_running_loop().create_future()
    stopped.cancel()
    await stopped


async def _refused() -> None:
    raise KafkaConnectionError("closed")


async def _endless() -> None:
    await asyncio.get_running_loop().create_future()


async def test_each_step_that_fails_is_logged_and_the_connections_are_closed(
    kafka: LocalKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic_name)
    await consumer.start()
    with caplog.at_level(logging.WARNING, logger=leaving.__name__):
        await leave_group(consumer, 0.5, _cancelled, _refused, _endless)
    assert [line for line in logged(caplog) if line.startswith("left")] == [
        "left the group uncleanly: it was cancelled, and nobody has asked for that",
        "left the group uncleanly: KafkaConnectionError: closed",
        "left the group uncleanly: TimeoutError",
    ]
    assert consumer._closed
    assert not consumer._client._conns
