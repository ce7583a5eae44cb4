"""Reads the lag events as any consumer would: from the topic."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from sparklag_pipeline.demo.progress import Story
from sparklag_schemas import decode_lag_event
from sparklag_schemas.errors import ContractError

LAG_TOPIC: Final = "consumer-lag"
_RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


async def follow_lag(bootstrap_servers: str, story: Story) -> None:
    """Put every lag event into the story, from the topic's beginning. Runs until cancelled.

    The topic is the service's to create: until it is there, this waits for it.
    """
    while True:
        consumer = AIOKafkaConsumer(
            LAG_TOPIC, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            if consumer.assignment():
                await _read(consumer, story)
        except (KafkaError, OSError) as error:
            log.debug("cannot read %s yet: %s", LAG_TOPIC, error)
        finally:
            await consumer.stop()
        await asyncio.sleep(_RETRY_S)


async def _read(consumer: AIOKafkaConsumer, story: Story) -> None:
    async for record in consumer:
        if record.value is None:  # a query that was forgotten
            continue
        try:
            event = decode_lag_event(record.value)
        except ContractError:
            story.unreadable += 1
        else:
            story.take(event, time.monotonic())
