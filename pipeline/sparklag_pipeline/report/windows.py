"""Rows of the roll-ups, as the report takes them."""

from __future__ import annotations

from msgspec import Struct


class WorstPartition(Struct, frozen=True):
    """A partition of a query at its worst."""

    source: int
    topic: str
    partition: int
    max_lag: int
    """Records."""
    max_time_lag_s: float | None = None


class RolledWindow(Struct, frozen=True, kw_only=True):
    """One query in one window of time. What is not known is None."""

    cluster: str
    query_id: str
    query: str | None = None
    start_ms: int
    """Epoch milliseconds."""
    known_s: float
    """How long the lag was known."""
    within_target_s: float
    """How much of that it was within target."""
    lag: tuple[float, float, float, float] | None = None
    """p50, p95, p99 and maximum of the total lag, records, weighted by time."""
    time_lag_s: tuple[float, float, float, float] | None = None
    """The same of the age of the oldest unprocessed record, seconds."""
    produced: int | None = None
    processed: int | None = None
    input_rate: float | None = None
    """95th percentile, records a second."""
    batch_rate: float | None = None
    worst: tuple[WorstPartition, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Of the query."""
        return (self.cluster, self.query_id)
