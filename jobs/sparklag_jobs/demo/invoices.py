"""The demo's invoices: a few a second, and now and then an invalid one that its query fails on.
Pure."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from sparklag_jobs.demo.record_stream import RecordStream, random_customer

RATE: Final = 40
"""Invoices a second."""
FIRST_INVALID: Final = 20 * RATE
"""Number of the first invalid one: it comes after 20 seconds."""
INVALID_EVERY: Final = 45 * RATE


class Invoice(msgspec.Struct, frozen=True):
    """The value of a record on `invoices`; the key is the customer."""

    invoice_id: str
    customer: str
    amount_cents: int
    """Negative in an invalid one."""
    issued_at: int
    """Epoch milliseconds."""


def invoices_per_second(elapsed_s: float) -> float:
    """Always the same rate."""
    return RATE


def random_invoice(chance: random.Random, number: int, now_ms: int) -> Invoice:
    """Any customer's."""
    amount_cents = chance.randint(100, 20_000)
    is_invalid = number % INVALID_EVERY == FIRST_INVALID
    return Invoice(
        invoice_id=f"{now_ms:x}-{number:x}",
        customer=random_customer(chance, 0.5),
        amount_cents=-amount_cents if is_invalid else amount_cents,
        issued_at=now_ms,
    )


INVOICES: Final = RecordStream("invoices", 2, invoices_per_second, random_invoice)
