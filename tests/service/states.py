"""States and measurements for the pure tests."""

from __future__ import annotations

from typing import Any

from aiokafka.structs import TopicPartition

from sparklag_service.evaluator import Measurement
from sparklag_service.tracker import QueryState, SourceState
from tests.messages import QUERY_ID, RUN_ID


def source(processed: dict[str, dict[int, int]] | None, **fields: Any) -> SourceState:
    return SourceState(
        **{"source": 0, "isolation_level": "read_uncommitted", "processed": processed, **fields}
    )


def state(*sources: SourceState, **fields: Any) -> QueryState:
    return QueryState(
        **{
            "query_id": QUERY_ID,
            "run_id": RUN_ID,
            "name": "orders",
            "cluster": "default",
            "cause": "progress",
            "observed_at_ms": 1_000,
            "sources": sources or (source({"orders": {0: 5}}),),
            **fields,
        }
    )


def partition(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def measurement(
    latest: dict[int, int], earliest: dict[int, int] | None = None, **fields: Any
) -> Measurement:
    """Offsets of `orders` by partition."""
    return Measurement(
        **{
            "measured_at_ms": 2_000,
            "latest": {"read_uncommitted": {partition(n): o for n, o in latest.items()}},
            "earliest": {partition(n): o for n, o in (earliest or {}).items()},
            **fields,
        }
    )
