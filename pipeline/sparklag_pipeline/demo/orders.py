"""The demo's orders: who orders how much, and how fast. Pure."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from sparklag_pipeline.demo.record_stream import RecordStream, random_customer, wave

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
