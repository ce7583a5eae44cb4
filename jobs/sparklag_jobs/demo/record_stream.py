"""What the producer writes to one topic: its records, and how many in a second. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol
from zlib import crc32

BUSIEST_CUSTOMER: Final = "acme"
CUSTOMERS: Final = tuple(f"customer-{number:02}" for number in range(1, 41))


class CustomerRecord(Protocol):
    """A msgspec struct; its customer is the key of the record."""

    @property
    def customer(self) -> str: ...


@dataclass(frozen=True)
class RecordStream:
    """`per_second` takes the seconds since the start; `record` a random generator, the number of
    the record and the time in epoch milliseconds."""

    topic: str
    partitions: int
    per_second: Callable[[float], float]
    record: Callable[[random.Random, int, int], CustomerRecord]


def partition_of(customer: str, partitions: int) -> int:
    """The first is the busiest customer's alone; the others share the rest.

    So one heavy key does not delay the records of the others, and each customer's stay in order:
    the hash is the same in every process (Python's own is not). A single partition is shared by
    all.
    """
    if customer == BUSIEST_CUSTOMER or partitions == 1:
        return 0
    return 1 + crc32(customer.encode()) % (partitions - 1)


def random_customer(chance: random.Random, busiest_share: float) -> str:
    """The busiest one with this probability, else one of the others."""
    return BUSIEST_CUSTOMER if chance.random() < busiest_share else chance.choice(CUSTOMERS)


def wave(elapsed_s: float, *, lowest: float, highest: float, period_s: float) -> float:
    """From the lowest rate at time 0 to the highest, and back."""
    phase = 2 * math.pi * elapsed_s / period_s
    return lowest + (highest - lowest) * (1 - math.cos(phase)) / 2
