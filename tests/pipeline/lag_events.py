"""Lag events as a service would publish them."""

from __future__ import annotations

from sparklag_schemas.enumerations import Status
from sparklag_schemas.lag_event import LagEvent, PartitionLag, TopicLag


def lag_event(
    *,
    query: str = "orders",
    at: int = 1,
    lag: int | None = 30,
    processed: int = 100,
    status: Status = "OK",
    reason: str | None = None,
) -> LagEvent:
    """Partition 0 has all the lag, or an unknown one; partition 1 has none. `at` is in ms."""
    partitions = [
        PartitionLag(
            partition=0,
            processed_offset=processed,
            latest_offset=None if lag is None else processed + lag,
            lag=lag,
            status=status,
            reason=reason,
        ),
        PartitionLag(partition=1, processed_offset=5, latest_offset=5, lag=0, status="OK"),
    ]
    return LagEvent(
        event_id=f"{query}-{at}",
        query_id=f"id-of-{query}",
        run_id="run",
        query=query,
        cause="progress",
        status=status,
        reason=reason,
        observed_at=at,
        measured_at=at,
        measured_by="service",
        processed_at=at,
        batch_id=7,
        total_lag=lag,
        max_lag=lag,
        topics=[TopicLag(topic="orders", source=0, partitions=partitions, total_lag=lag)],
    )
