"""The demo's payments: bursts, nearly all of one customer, so one partition has the lag. Pure."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from sparklag_jobs.demo.record_stream import RecordStream, random_customer

BUSIEST_SHARE: Final = 0.9
QUIET_RATE: Final = 60
BURST_RATE: Final = 900
"""Payments a second."""
PERIOD_S: Final = 60
BURST_S: Final = 15
"""Each period begins with a burst."""
# More than comes on average, less than a burst.
TRIGGER_S: Final = 3
MAX_OFFSETS_PER_TRIGGER: Final = 1200
MAX_LAG: Final = 3_000
"""Records; with more the query has the status WARN."""


class Payment(msgspec.Struct, frozen=True):
    """The value of a record on `payments`; the key is the customer."""

    payment_id: str
    customer: str
    amount_cents: int
    paid_at: int
    """Epoch milliseconds."""


def payments_per_second(elapsed_s: float) -> float:
    """The higher rate during a burst, the lower one between bursts."""
    return BURST_RATE if elapsed_s % PERIOD_S < BURST_S else QUIET_RATE


def random_payment(chance: random.Random, number: int, now_ms: int) -> Payment:
    """Nine payments in ten are the busiest customer's."""
    return Payment(
        payment_id=f"{now_ms:x}-{number:x}",
        customer=random_customer(chance, BUSIEST_SHARE),
        amount_cents=chance.randint(100, 20_000),
        paid_at=now_ms,
    )


PAYMENTS: Final = RecordStream("payments", 4, payments_per_second, random_payment)
