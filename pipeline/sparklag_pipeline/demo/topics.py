"""The demo's topics: created where they are missing; lag events read as any consumer would."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer

from sparklag_kafka.clients.client_options import explain_error
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_pipeline.demo.state import DemoState
from sparklag_pipeline.errors import PipelineError
from sparklag_schemas import decode_lag_event
from sparklag_schemas.errors import ContractError
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.topics import TopicSpec

LAG_TOPIC: Final = "consumer-lag"
_RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


def demo_topic(name: str, partitions: int) -> TopicSpec:
    """A topic that keeps its records for an hour."""
    return TopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=None,
        cleanup_policy=frozenset({"delete"}),
        config={"cleanup.policy": "delete", "retention.ms": "3600000"},
    )


async def create_topics(bootstrap_servers: str, specs: Sequence[TopicSpec]) -> None:
    """Create those that are missing; the others stay as they are.

    Raises PipelineError where Kafka cannot be used, TopicUnavailable where it refuses.
    """
    access = ClusterAccess(bootstrap_servers)
    try:
        created = await create_missing(access, specs)
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, access)
        raise PipelineError(f"cannot use Kafka at {cause}") from error
    for name in created:
        log.info("created topic %s", name)


async def follow_lag(bootstrap_servers: str, state: DemoState, topic: str = LAG_TOPIC) -> None:
    """Add every lag event of the topic to the state, from its beginning. Runs until cancelled.

    Waits for the topic, which the service creates.
    """
    while True:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            if consumer.assignment():
                await _read(consumer, state)
        except KAFKA_FAILURES as error:
            log.debug("cannot read %s yet: %s", topic, error)
        finally:
            await consumer.stop()
        await asyncio.sleep(_RETRY_S)


async def _read(consumer: AIOKafkaConsumer, state: DemoState) -> None:
    async for record in consumer:
        if record.value is None:  # a tombstone
            continue
        try:
            event = decode_lag_event(record.value)
        except ContractError:
            state.unreadable += 1
        else:
            state.add(event, time.monotonic())
