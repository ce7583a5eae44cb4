"""The demo's orders: who orders how much, how fast, and on which partition. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from aiokafka.partitioner import murmur2

ORDERS_TOPIC: Final = "orders"
QUERY_NAME: Final = "orders"
ORDER_PARTITIONS: Final = 4
BUSIEST_CUSTOMER: Final = "acme"
BUSIEST_SHARE: Final = 0.4
CUSTOMERS: Final = tuple(f"customer-{number:02}" for number in range(1, 41))


class Order(msgspec.Struct, frozen=True):
    """The value of a record on `orders`; the key is the customer."""

    order_id: str
    customer: str
    amount_cents: int
    ordered_at: int
    """Epoch milliseconds."""


@dataclass(frozen=True)
class OrderPartitioner:
    """Gives the busiest customer the first partition for itself; the others share the rest.

    So one heavy key does not delay the orders of the others, and each customer's stay in order:
    the same key always gets the same partition. The hash is the Java client's, which is the same
    in every process (Python's own is not). A single partition is shared by all.
    """

    busiest: bytes = BUSIEST_CUSTOMER.encode()

    def __call__(self, key: bytes, partitions: Sequence[int], available: Sequence[int]) -> int:
        """aiokafka's contract: one of `partitions`, which are all of the topic's, sorted.

        `available` is ignored: a key would move while a partition has no leader.
        """
        first, *others = partitions
        if key == self.busiest or not others:
            return first
        hashed: int = murmur2(key) & 0x7FFFFFFF
        return others[hashed % len(others)]


@dataclass(frozen=True)
class RateWave:
    """A rate that swings between `low` and `high` (records per second), from `low` at time 0."""

    low: float
    high: float
    period_s: float

    def rate(self, elapsed_s: float) -> float:
        """Records per second."""
        phase = 2 * math.pi * elapsed_s / self.period_s
        return self.low + (self.high - self.low) * (1 - math.cos(phase)) / 2

    def records_until(self, elapsed_s: float) -> float:
        """How many records are due by then: the integral of `rate` from 0."""
        omega = 2 * math.pi / self.period_s
        swing = elapsed_s / 2 - math.sin(omega * elapsed_s) / (2 * omega)
        return self.low * elapsed_s + (self.high - self.low) * swing


def random_order(chance: random.Random, *, number: int, now_ms: int) -> Order:
    """Two orders in five are the busiest customer's."""
    busiest = chance.random() < BUSIEST_SHARE
    return Order(
        order_id=f"{now_ms:x}-{number:x}",
        customer=BUSIEST_CUSTOMER if busiest else chance.choice(CUSTOMERS),
        amount_cents=chance.randint(100, 20_000),
        ordered_at=now_ms,
    )
