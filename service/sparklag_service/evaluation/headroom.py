"""How far unread records are from being deleted by retention. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklag_schemas import PartitionLag, TopicLag
from sparklag_schemas.bounds import MAX_EPOCH_MS
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_history import QueryHistory


@dataclass(frozen=True)
class Headroom:
    """The least headroom of the partitions that lag. None: not known, or no partition lags."""

    records: int | None = None
    seconds: float | None = None
    """At the rate at which the earliest offset of that partition advances."""
    loss_expected_at_ms: int | None = None
    """If query and retention go on at their rates. None: the query stays ahead."""


def headroom_of(
    topics: Sequence[TopicLag], history: QueryHistory, measure_time: MeasureTime
) -> Headroom:
    """The least headroom of all partitions with lag."""
    records: int | None = None
    nearest: tuple[float, TopicLag, PartitionLag] | None = None
    for topic in topics:
        for partition in topic.partitions:
            at, earliest = partition.processed_offset, partition.earliest_offset
            if not partition.lag or at is None or earliest is None or partition.lost_records:
                continue
            if records is None or at - earliest < records:
                records = at - earliest
            headroom_s = partition.headroom_s
            if headroom_s is not None and (nearest is None or headroom_s < nearest[0]):
                nearest = (headroom_s, topic, partition)
    if records is None or nearest is None:
        return Headroom(records)
    seconds, topic, partition = nearest
    loss_at_ms = _loss_at_ms(topic, partition, seconds, history, measure_time)
    return Headroom(records, seconds, loss_at_ms)


def _loss_at_ms(
    topic: TopicLag,
    partition: PartitionLag,
    seconds: float,
    history: QueryHistory,
    measure_time: MeasureTime,
) -> int | None:
    left = (partition.processed_offset or 0) - (partition.earliest_offset or 0)
    if seconds <= 0 or left <= 0:
        return measure_time.now_ms
    delete_rate = left / seconds
    read_rate = _read_rate(topic, partition, history)
    if read_rate >= delete_rate:
        return None
    lost_ms = measure_time.now_ms + round(left / (delete_rate - read_rate) * 1000)
    return lost_ms if lost_ms <= MAX_EPOCH_MS else None


def _read_rate(topic: TopicLag, partition: PartitionLag, history: QueryHistory) -> float:
    """Offsets a second at which the query moves in this partition."""
    earlier = history.earlier.get((topic.source, topic.topic))
    if earlier is None or not history.commits or earlier.topic_id != topic.topic_id:
        return 0.0
    before = next((p for p in earlier.partitions if p.partition == partition.partition), None)
    if before is None or before.processed_offset is None or partition.processed_offset is None:
        return 0.0
    last_s = history.commits[-1].at_s
    # Once a commit is overdue, the query has become slower, or is stuck.
    usual_s = history.usual.interval_s or 0.0
    elapsed_s = max(last_s - history.earlier_s, history.at_s - history.earlier_s - 2 * usual_s)
    moved = partition.processed_offset - before.processed_offset
    return max(0, moved) / elapsed_s if elapsed_s > 0 else 0.0
