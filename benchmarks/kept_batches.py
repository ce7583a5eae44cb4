"""The batches that the offset store is measured with: queries of 50 partitions, one batch a second
each, with offsets as long as those of a topic that has run for a while."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.batch_sequence import BatchSequence, next_records
from sparklag_schemas import Batch, Observation, SourcePosition

PARTITIONS: Final = 50
SERVERS: Final = "kafka-1.example:9092,kafka-2.example:9092,kafka-3.example:9092"
EPOCH_MS: Final = 1_790_000_000_000
STEP_MS: Final = 1_000
COLUMNS: Final = (
    *("query_key", "generation", "batch_id", "first_batch_id", "run_id"),
    *("processed_at", "observed_at", "is_inferred", "ranges"),
)
_DURATION_MS: Final = 800
_SEED: Final = 4711


def query_id(query: int) -> str:
    """As long as Spark's."""
    return f"00000000-0000-4000-8000-{query:012d}"


def query_name(query: int) -> str:
    """Its own."""
    return f"orders-{query}"


def topic_id(_: str | None, topic: str) -> str:
    """As long as Kafka's."""
    return topic.rjust(22, "A")


def batches(query: int) -> Iterator[Observation]:
    """Every batch of one query, without an end."""
    number = random.Random(_SEED + query)
    topic = f"orders-{query}"
    began = {part: number.randrange(10**9, 9 * 10**9) for part in range(PARTITIONS)}
    batch_id = 0
    while True:
        processed = {part: at + number.randrange(500, 1_500) for part, at in began.items()}
        at_ms = completed_at(batch_id)
        source = SourcePosition(
            source=0,
            processed={topic: processed},
            began={topic: began},
            topics=[topic],
            bootstrap_servers=SERVERS,
        )
        yield Observation(
            observation_id=f"{query}/{batch_id}",
            query_id=query_id(query),
            run_id=f"11111111-0000-4000-8000-{query:012d}",
            query=query_name(query),
            cause="progress",
            observed_at=at_ms,
            processed_at=at_ms,
            batch_id=batch_id,
            batch=Batch(
                started_at=at_ms - _DURATION_MS, rows=1_000 * PARTITIONS, duration_ms=_DURATION_MS
            ),
            sources=[source],
        )
        began = processed
        batch_id += 1


def completed_at(batch_id: int) -> int:
    """When any query's batch of that number completes, epoch milliseconds."""
    return EPOCH_MS + batch_id * STEP_MS


def records(observations: Iterator[Observation], count: int) -> Iterator[BatchRecord]:
    """What is kept of the next so many of one query. Its first batch is the first of them."""
    newest = None
    for observation in islice(observations, count):
        newest = record(observation, newest)
        yield newest


def record(observation: Observation, newest: BatchRecord | None) -> BatchRecord:
    """What is kept of it, after `newest`."""
    (kept,) = next_records(observation, BatchSequence.ending_with(newest), topic_id).records
    return kept


def row(record: BatchRecord, query_key: int) -> tuple[Any, ...]:
    """As in `sparklag_batches`, by `COLUMNS`."""
    return (
        *(query_key, record.generation, record.batch_id, record.first_batch_id, record.run_id),
        *(record.processed_at, record.observed_at, record.is_inferred, record.ranges),
    )
