"""Messages for tests, complete and valid: a test names what it is about, and nothing else."""

from __future__ import annotations

import uuid
from itertools import count
from typing import Any

import msgspec

from sparklag_schemas import (
    Batch,
    LagEvent,
    Observation,
    PartitionLag,
    SourcePosition,
    Straggler,
    TopicLag,
)
from sparklag_schemas.messages.topics import partition_of
from sparklag_schemas.timestamps import epoch_ms

QUERY_ID = "dd8b09d1-0000-4000-8000-000000000001"
RUN_ID = "79f1bf68-0000-4000-8000-000000000001"
OTHER_RUN = "79f1bf68-0000-4000-8000-000000000002"


def position(processed: dict[str, dict[int, int]] | None = None, **fields: Any) -> SourcePosition:
    """A source, at 5 of `orders` 0 unless `fields` or `processed` say otherwise."""
    return SourcePosition(**{"source": 0, "processed": processed or {"orders": {0: 5}}, **fields})


def observation(**fields: Any) -> Observation:
    return Observation(
        **{
            "observation_id": "0b5e",
            "query_id": QUERY_ID,
            "run_id": RUN_ID,
            "query": "orders",
            "cause": "progress",
            "observed_at": 1_790_000_000_200,
            "processed_at": 1_790_000_000_123,
            "batch_id": 41,
            "batch": Batch(
                started_at=1_790_000_000_000, rows=5, duration_ms=123, phases_ms={"addBatch": 100}
            ),
            "checkpoint_location": "file:/checkpoints/orders",
            "sources": [position()],
            **fields,
        }
    )


def straggler(running_s: float = 360.0) -> Straggler:
    """A task that runs for so long, where the others of its stage took 2 s."""
    return Straggler(
        stage_id=3,
        task_index=17,
        attempt=0,
        executor_id="4",
        host="worker-4",
        running_s=running_s,
        mean_task_s=2.0,
    )


def lag_event(**fields: Any) -> LagEvent:
    return LagEvent(
        **{
            "event_id": "e7e7",
            "query_id": QUERY_ID,
            "run_id": RUN_ID,
            "query": "orders",
            "batch_id": 41,
            "cause": "progress",
            "measured_by": "service",
            "status": "OK",
            "total_lag": 65,
            "max_lag": 65,
            "processed_at": 1_790_000_000_123,
            "observed_at": 1_790_000_000_200,
            "measured_at": 1_790_000_000_250,
            "topics": [
                TopicLag(
                    topic="orders",
                    source=0,
                    total_lag=65,
                    partitions=[
                        PartitionLag(
                            partition=0,
                            processed_offset=5,
                            latest_offset=70,
                            earliest_offset=0,
                            lag=65,
                            status="OK",
                        )
                    ],
                )
            ],
            **fields,
        }
    )


def seen(topic: str, processed: dict[int, int], **fields: Any) -> Observation:
    return observation(
        **{
            "query_id": str(uuid.uuid4()),
            "observed_at": epoch_ms(),
            "processed_at": epoch_ms(),
            "sources": [position({topic: processed})],
            **fields,
        }
    )


def moved(observed: Observation, processed: dict[int, int], after_ms: int = 1_000) -> Observation:
    """The same query, later: each of its sources is there."""
    return msgspec.structs.replace(
        observed,
        observed_at=observed.observed_at + after_ms,
        sources=[
            msgspec.structs.replace(one, processed=dict.fromkeys(one.processed or (), processed))
            for one in observed.sources
        ],
    )


def query_id_in(partition: int, partitions: int) -> str:
    ids = (str(uuid.uuid4()) for _ in count())
    return next(i for i in ids if partition_of(i, partitions) == partition)
