"""All that the demo's producer writes: each topic is read by the query of the same name."""

from __future__ import annotations

from typing import Final

from sparklag_jobs.demo.invoices import INVOICES
from sparklag_jobs.demo.orders import ORDERS
from sparklag_jobs.demo.payments import PAYMENTS

STREAMS: Final = (ORDERS, PAYMENTS, INVOICES)
QUERY_NAMES: Final = tuple(stream.topic for stream in STREAMS)
