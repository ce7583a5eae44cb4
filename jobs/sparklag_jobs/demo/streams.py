"""The records of the demo's producer, and their topics. One query, of the same name, reads each
topic."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec

from sparklag_jobs.errors import PipelineError
from sparklag_kafka.access import explain_error
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas.messages.topics import TopicSpec
from sparklag_schemas.settings import ClusterAccess, KafkaSettings

BUSIEST_CUSTOMER: Final = "acme"
CUSTOMERS: Final = tuple(f"customer-{number:02}" for number in range(1, 41))

# Orders a second, in a wave around the query's rate, so that its lag rises and falls.
LOWEST_RATE: Final = 100
HIGHEST_RATE: Final = 2500
WAVE_S: Final = 40
TRIGGER_S: Final = 2
MAX_OFFSETS_PER_TRIGGER: Final = 4000
QUERY_RATE: Final = MAX_OFFSETS_PER_TRIGGER // TRIGGER_S
TOTALS_TOPIC: Final = "order-totals"
TOTALS_PARTITIONS: Final = 2

# Payments a second: each period begins with a burst, nearly all of one customer, so one partition
# has the lag. The query reads more than the average, and less than a burst.
QUIET_RATE: Final = 60
BURST_RATE: Final = 900
BURST_PERIOD_S: Final = 60
BURST_S: Final = 15
PAYMENTS_TRIGGER_S: Final = 3
MAX_PAYMENTS_PER_TRIGGER: Final = 1200
MAX_PAYMENTS_LAG: Final = 3_000
"""Records; above it the query has the status WARN."""

# Invoices a second. Some are invalid, the first after 20 s, and their query fails on them.
INVOICE_RATE: Final = 40
FIRST_INVALID: Final = 20 * INVOICE_RATE
INVALID_EVERY: Final = 45 * INVOICE_RATE

log = logging.getLogger(__name__)


class Order(msgspec.Struct, frozen=True):
    """The value of a record of `orders`. Its key is the customer; times are epoch milliseconds."""

    order_id: str
    customer: str
    amount_cents: int
    ordered_at: int


class Payment(msgspec.Struct, frozen=True):
    """The value of a record of `payments`."""

    payment_id: str
    customer: str
    amount_cents: int
    paid_at: int


class Invoice(msgspec.Struct, frozen=True):
    """The value of a record of `invoices`: an invalid one has a negative amount."""

    invoice_id: str
    customer: str
    amount_cents: int
    issued_at: int


DemoRecord = Order | Payment | Invoice


@dataclass(frozen=True)
class RecordStream:
    """Records of one topic. `per_second` takes the seconds since the start."""

    topic: str
    partitions: int
    per_second: Callable[[float], float]
    kind: Callable[[str, str, int, int], DemoRecord]
    """Makes a record from id, customer, amount and time."""
    busiest_share: float
    """The busiest customer's share of the records."""
    is_invalid: Callable[[int], bool] = lambda number: False

    def record(self, chance: random.Random, number: int, now_ms: int) -> DemoRecord:
        """Returns record `number`, created at `now_ms`."""
        amount_cents = chance.randint(100, 20_000)
        is_busiest = chance.random() < self.busiest_share
        return self.kind(
            f"{now_ms:x}-{number:x}",
            BUSIEST_CUSTOMER if is_busiest else chance.choice(CUSTOMERS),
            -amount_cents if self.is_invalid(number) else amount_cents,
            now_ms,
        )


def orders_per_second(elapsed_s: float) -> float:
    """A wave that starts at the lowest rate."""
    phase = 2 * math.pi * elapsed_s / WAVE_S
    return LOWEST_RATE + (HIGHEST_RATE - LOWEST_RATE) * (1 - math.cos(phase)) / 2


def payments_per_second(elapsed_s: float) -> float:
    """The higher rate during a burst, the lower one between bursts."""
    return BURST_RATE if elapsed_s % BURST_PERIOD_S < BURST_S else QUIET_RATE


ORDERS: Final = RecordStream("orders", 4, orders_per_second, Order, 0.4)
PAYMENTS: Final = RecordStream("payments", 4, payments_per_second, Payment, 0.9)
INVOICES: Final = RecordStream(
    "invoices",
    2,
    lambda elapsed_s: INVOICE_RATE,
    Invoice,
    0.5,
    lambda number: number % INVALID_EVERY == FIRST_INVALID,
)
STREAMS: Final = (ORDERS, PAYMENTS, INVOICES)
QUERY_NAMES: Final = tuple(stream.topic for stream in STREAMS)


def partition_of(customer: str, partitions: int) -> int:
    """The busiest customer has the first partition alone; other customers share the rest.

    So one hot key does not delay other records, and each customer's records stay in order: unlike
    Python's own, this hash is the same in every process. A single partition is shared by all.
    """
    if customer == BUSIEST_CUSTOMER or partitions == 1:
        return 0
    return 1 + crc32(customer.encode()) % (partitions - 1)


def demo_topic(name: str, partitions: int) -> TopicSpec:
    """A topic that keeps its records for an hour."""
    return TopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=None,
        config={"cleanup.policy": "delete", "retention.ms": "3600000"},
    )


async def create_topics(
    bootstrap_servers: str, specs: Sequence[TopicSpec], kafka: KafkaSettings | None = None
) -> None:
    """Create missing topics; existing topics stay unchanged.

    Raises PipelineError if Kafka cannot be used, TopicUnavailable if it refuses.
    """
    access = ClusterAccess(bootstrap_servers, kafka or KafkaSettings())
    try:
        created = await create_missing(access, specs)
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, access)
        raise PipelineError(f"cannot use Kafka at {cause}") from error
    for name in created:
        log.info("created topic %s", name)
