"""What an aiokafka producer needs around it."""

from __future__ import annotations

import asyncio
import logging

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

_log = logging.getLogger("sparklag")


async def abandon(producer: AIOKafkaProducer, timeout_s: float) -> None:
    """Disconnect `producer` and give up what it has not sent. Never raises; takes `timeout_s` at
    most.

    `stop` waits until all is sent. An idempotent producer tries that for ever, so while Kafka is
    away it never returns; cancelled, it leaves a producer behind that goes on, and one day sends
    what is long out of date.
    """
    # There is no public way. First the connections, so that what waits for an answer ends, and once
    # more for those that were made anew. What does not end in time is cancelled.
    for step in (_disconnect, _end_sender, _disconnect):
        try:
            await asyncio.wait_for(step(producer), timeout_s / 3)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            _log.debug("sparklag: a producer did not end cleanly: %r", error)
    producer._closed = True


async def _disconnect(producer: AIOKafkaProducer) -> None:
    await producer.client.close()


async def _end_sender(producer: AIOKafkaProducer) -> None:
    if producer._sender is not None:
        await producer._sender.close()
