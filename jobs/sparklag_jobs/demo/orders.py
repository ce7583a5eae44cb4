"""The orders of the demo, and the topics that they are written to."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Final

import msgspec

from sparklag_jobs.demo.record_stream import RecordStream, random_customer, wave
from sparklag_jobs.errors import PipelineError
from sparklag_kafka.access import explain_error
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas.messages.topics import TopicSpec
from sparklag_schemas.settings import ClusterAccess, KafkaSettings

ORDERS_TOPIC: Final = "orders"
QUERY_NAME: Final = "orders"
ORDER_PARTITIONS: Final = 4
TOTALS_TOPIC: Final = "order-totals"
TOTALS_PARTITIONS: Final = 2
BUSIEST_SHARE: Final = 0.4
LOWEST_RATE: Final = 100
HIGHEST_RATE: Final = 2500
"""Orders a second."""
PERIOD_S: Final = 40
# Between the lowest and the highest rate: when orders come faster the lag rises, else it falls.
TRIGGER_S: Final = 2
MAX_OFFSETS_PER_TRIGGER: Final = 4000
QUERY_RATE: Final = MAX_OFFSETS_PER_TRIGGER // TRIGGER_S


class Order(msgspec.Struct, frozen=True):
    """The value of a record on `orders`; the key is the customer."""

    order_id: str
    customer: str
    amount_cents: int
    ordered_at: int
    """Epoch milliseconds."""


def orders_per_second(elapsed_s: float) -> float:
    """A wave that begins with the lowest rate."""
    return wave(elapsed_s, lowest=LOWEST_RATE, highest=HIGHEST_RATE, period_s=PERIOD_S)


def random_order(chance: random.Random, number: int, now_ms: int) -> Order:
    """Two orders in five are the busiest customer's."""
    return Order(
        order_id=f"{now_ms:x}-{number:x}",
        customer=random_customer(chance, BUSIEST_SHARE),
        amount_cents=chance.randint(100, 20_000),
        ordered_at=now_ms,
    )


ORDERS: Final = RecordStream(ORDERS_TOPIC, ORDER_PARTITIONS, orders_per_second, random_order)
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


async def create_topics(
    bootstrap_servers: str, specs: Sequence[TopicSpec], kafka: KafkaSettings | None = None
) -> None:
    """Create those that are missing; the others stay as they are.

    Raises PipelineError where Kafka cannot be used, TopicUnavailable where it refuses.
    """
    access = ClusterAccess(bootstrap_servers, kafka or KafkaSettings())
    try:
        created = await create_missing(access, specs)
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, access)
        raise PipelineError(f"cannot use Kafka at {cause}") from error
    for name in created:
        log.info("created topic %s", name)
