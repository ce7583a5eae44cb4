"""Lag events as a service would publish them."""

from __future__ import annotations

from typing import Any

from sparklag_schemas.messages.lag_event import LagEvent, PartitionLag, TopicLag
from tests import messages


def lag_event(
    *, query: str = "orders", at: int = 1, lag: int | None = 30, processed: int = 100, **fields: Any
) -> LagEvent:
    """Partition 0 has all the lag, or an unknown one; partition 1 has none. `at` is in ms."""
    latest = None if lag is None else processed + lag
    partitions = [
        PartitionLag(partition=0, processed_offset=processed, latest_offset=latest, lag=lag),
        PartitionLag(partition=1, processed_offset=5, latest_offset=5, lag=0),
    ]
    return messages.lag_event(
        event_id=f"{query}-{at}",
        query_id=f"id-of-{query}",
        query=query,
        observed_at=at,
        measured_at=at,
        total_lag=lag,
        max_lag=lag,
        topics=[TopicLag(topic="orders", source=0, partitions=partitions, total_lag=lag)],
        **fields,
    )
