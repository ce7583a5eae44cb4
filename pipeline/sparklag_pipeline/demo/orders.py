"""The demo's orders: who orders how much, how fast, and on which partition. Pure."""

from __future__ import annotations

import math
import random
from typing import Final
from zlib import crc32

import msgspec

ORDERS_TOPIC: Final = "orders"
QUERY_NAME: Final = "orders"
ORDER_PARTITIONS: Final = 4
BUSIEST_CUSTOMER: Final = "acme"
BUSIEST_SHARE: Final = 0.4
CUSTOMERS: Final = tuple(f"customer-{number:02}" for number in range(1, 41))
LOWEST_RATE: Final = 100
HIGHEST_RATE: Final = 2500
"""Orders a second."""
PERIOD_S: Final = 40


class Order(msgspec.Struct, frozen=True):
    """The value of a record on `orders`; the key is the customer."""

    order_id: str
    customer: str
    amount_cents: int
    ordered_at: int
    """Epoch milliseconds."""


def partition_of(customer: str, partitions: int) -> int:
    """The first is the busiest customer's alone; the others share the rest.

    So one heavy key does not delay the orders of the others, and each customer's stay in order:
    the hash is the same in every process (Python's own is not). A single partition is shared by
    all.
    """
    if customer == BUSIEST_CUSTOMER or partitions == 1:
        return 0
    return 1 + crc32(customer.encode()) % (partitions - 1)


def orders_per_second(elapsed_s: float) -> float:
    """A wave: from the lowest rate at time 0 to the highest, and back."""
    phase = 2 * math.pi * elapsed_s / PERIOD_S
    return LOWEST_RATE + (HIGHEST_RATE - LOWEST_RATE) * (1 - math.cos(phase)) / 2


def random_order(chance: random.Random, *, number: int, now_ms: int) -> Order:
    """Two orders in five are the busiest customer's."""
    busiest = chance.random() < BUSIEST_SHARE
    return Order(
        order_id=f"{now_ms:x}-{number:x}",
        customer=BUSIEST_CUSTOMER if busiest else chance.choice(CUSTOMERS),
        amount_cents=chance.randint(100, 20_000),
        ordered_at=now_ms,
    )
