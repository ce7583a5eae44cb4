"""Batches of a query as its driver reports them, and the contents of its records."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from sparklag_offsets.store.batch_record import BatchRecord, OffsetStore, TopicRanges, encode_ranges
from sparklag_offsets.store.batch_sequence import BatchSequence, NewRecords, next_records
from sparklag_schemas import Batch, Observation, Offsets, SourcePosition
from tests.messages import QUERY_ID, RUN_ID, observation

START_MS = 1_790_000_000_000
BATCH_MS = 1_000
"""A batch of these tests completes a second after the one before it."""


def at_ms(batch_id: int) -> int:
    return START_MS + batch_id * BATCH_MS


def source(processed: Offsets | None, began: Offsets | None = None, **fields: Any) -> Any:
    return SourcePosition(**{"source": 0, "processed": processed, "began": began, **fields})


def output(batch_id: int | None, *sources: SourcePosition, **fields: Any) -> Observation:
    """The observation after a batch. Without `sources`, it has read ten records of `orders` 0."""
    completed = at_ms(batch_id or 0)
    ours = [
        source({"orders": {0: 10 * (batch_id or 0) + 10}}, {"orders": {0: 10 * (batch_id or 0)}})
    ]
    return observation(
        **{
            "batch_id": batch_id,
            "processed_at": completed,
            "observed_at": completed + 100,
            "batch": Batch(started_at=completed - 900, rows=10),
            "sources": list(sources) or ours,
            **fields,
        }
    )


def repeated(batch_id: int, cause: str = "idle", **fields: Any) -> Observation:
    """The position after that batch, repeated half a second later without its beginning."""
    later = {
        "cause": cause,
        "batch": None,
        "observed_at": at_ms(batch_id) + 500,
        "sources": [source({"orders": {0: 10 * batch_id + 10}})],
    }
    return output(batch_id, **{**later, **fields})


def linked(chain: BatchSequence, observation: Observation) -> tuple[BatchSequence, NewRecords]:
    added = next_records(observation, chain, lambda *_: None)
    return chain.after(added.records), added


def recorded(
    observations: Iterable[Observation], chain: BatchSequence | None = None
) -> list[BatchRecord]:
    chain = chain or BatchSequence()
    records: list[BatchRecord] = []
    for one in observations:
        chain, added = linked(chain, one)
        records += added.records
    return records


def spans(records: Iterable[BatchRecord]) -> list[tuple[int, int, int]]:
    return [(r.generation, r.first_batch_id, r.batch_id) for r in records]


def ranges(record: BatchRecord, topic: str = "orders", number: int = 0) -> dict[int, Any]:
    return {
        partition: (begin, until)
        for result in record.topics
        if (result.source, result.topic) == (number, topic)
        for partition, begin, until in result.ranges
    }


def record(batch_id: int = 0, **fields: Any) -> BatchRecord:
    """A record of query `orders` with ten records of partition 0."""
    begin = 10 * batch_id
    topics = [TopicRanges(0, "orders", "id-of-orders", "broker:9092", [(0, begin, begin + 10)])]
    return BatchRecord(
        **{
            "query_id": QUERY_ID,
            "query": "orders",
            "cluster": "default",
            "run_id": RUN_ID,
            "generation": 0,
            "batch_id": batch_id,
            "first_batch_id": batch_id,
            "processed_at": at_ms(batch_id),
            "observed_at": at_ms(batch_id) + 100,
            "is_inferred": False,
            "ranges": encode_ranges(topics),
            **fields,
        }
    )


async def records_of(store: OffsetStore, query_id: str = QUERY_ID) -> list[BatchRecord]:
    """The records of a query, no two of which completed at the same time."""
    result: list[BatchRecord] = []
    newest = await store.as_of(query_id, None)
    while newest is not None:
        result.insert(0, newest)
        newest = await store.as_of(query_id, newest.processed_at - 1)
    return result


async def places(store: OffsetStore, query_id: str = QUERY_ID) -> list[tuple[int, int]]:
    return [(result.generation, result.batch_id) for result in await records_of(store, query_id)]


def new_query() -> str:
    return str(uuid.uuid4())


def check_whole(records: Sequence[BatchRecord]) -> None:
    """Each generation has each batch once, ranges follow each other, time never goes back."""
    for before, after in itertools.pairwise(records):
        assert after.processed_at >= before.processed_at
        if after.generation != before.generation:
            assert after.generation == before.generation + 1
            assert after.first_batch_id == after.batch_id
            continue
        assert after.first_batch_id == before.batch_id + 1
        ended = before.end_offsets()
        for topic in after.topics:
            for partition, begin, until in topic.ranges:
                at = ended.get((topic.source, topic.topic), {}).get(partition, begin)
                assert begin == at, f"{topic.topic} {partition}: from {begin}, it was at {at}"
                assert begin is None or begin <= until
