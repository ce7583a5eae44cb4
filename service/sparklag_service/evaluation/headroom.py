"""How far unread records are from being deleted by retention. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklag_schemas import PartitionLag, TopicLag
from sparklag_schemas.bounds import MAX_EPOCH_MS
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.query_history import QueryHistory


@dataclass(frozen=True)
class Headroom:
    """Of the partitions that lag, what the nearest one has left. Null: not known, or none."""

    records: int | None = None
    seconds: float | None = None
    """At the rate at which its earliest offset advances."""
    loss_expected_at_ms: int | None = None
    """If the query and retention go on at their rates. Null: the query stays ahead."""


def headroom(topics: Sequence[TopicLag], course: QueryHistory, moment: Moment) -> Headroom:
    """The least of all partitions with lag."""
    records: int | None = None
    nearest: tuple[float, TopicLag, PartitionLag] | None = None
    for topic in topics:
        for one in topic.partitions:
            at, earliest = one.processed_offset, one.earliest_offset
            if not one.lag or at is None or earliest is None or one.lost_records:
                continue
            left = at - earliest
            if records is None or left < records:
                records = left
            if one.headroom_s is not None and (nearest is None or one.headroom_s < nearest[0]):
                nearest = (one.headroom_s, topic, one)
    if records is None or nearest is None:
        return Headroom(records)
    seconds, topic, one = nearest
    return Headroom(records, seconds, _loss_at_ms(topic, one, seconds, course, moment))


def _loss_at_ms(
    topic: TopicLag, one: PartitionLag, seconds: float, course: QueryHistory, moment: Moment
) -> int | None:
    at, earliest = one.processed_offset or 0, one.earliest_offset or 0
    if seconds <= 0 or at <= earliest:
        return moment.now_ms
    deleted = (at - earliest) / seconds
    read = _own_rate(topic, one, course)
    if read >= deleted:
        return None
    lost_ms = moment.now_ms + round((at - earliest) / (deleted - read) * 1000)
    return lost_ms if lost_ms <= MAX_EPOCH_MS else None


def _own_rate(topic: TopicLag, one: PartitionLag, course: QueryHistory) -> float:
    """Offsets a second at which the query moves in this partition."""
    earlier = course.earlier.get((topic.source, topic.topic))
    if earlier is None or not course.commits or earlier.topic_id != topic.topic_id:
        return 0.0
    was = next((each for each in earlier.partitions if each.partition == one.partition), None)
    if was is None or was.processed_offset is None or one.processed_offset is None:
        return 0.0
    last_s = course.commits[-1].at_s
    # Overdue: it has become slower, or stands.
    usual_s = course.usual.interval_s or 0.0
    elapsed_s = max(last_s - course.earlier_s, course.at_s - course.earlier_s - 2 * usual_s)
    moved = one.processed_offset - was.processed_offset
    return max(0, moved) / elapsed_s if elapsed_s > 0 else 0.0
