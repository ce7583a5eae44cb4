"""The lag of every topic of a query. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_service.enrichment.cluster_offsets import MeasureTime, OffsetsByCluster, TopicOffsets
from sparklag_service.evaluation.topic_measure import NO_BATCH, NOT_READ, TopicMeasure
from sparklag_service.evaluation.trends import Verdict
from sparklag_service.tracking.query_state import QueryState

_NO_OFFSETS: Final = TopicOffsets()


class MeasuredQuery(NamedTuple):
    """The lag of all topics of a query."""

    topics: list[TopicLag]
    unassigned: dict[int, list[PartitionLag]]
    """Partitions that no member of the group reads, by the index of their topic. `topics` is
    without them."""
    unmeasured: list[Verdict]
    """The verdicts on topics without partitions."""
    arrived: int
    moved: int


def measure_query(
    state: QueryState,
    offsets: OffsetsByCluster,
    measure_time: MeasureTime,
    max_age_s: float,
    previous: LagEvent | None,
    since_s: float,
) -> MeasuredQuery:
    """Measure every topic. `previous` is the query's last event, `since_s` seconds ago."""
    before = {(t.source, t.topic): t for t in previous.topics} if previous is not None else {}
    topics: list[TopicLag] = []
    unassigned: dict[int, list[PartitionLag]] = {}
    unmeasured: list[Verdict] = []
    arrived = moved = 0
    processed_at_ms = min(state.processed_at or measure_time.now_ms, measure_time.now_ms)
    unread = NO_BATCH if state.batch_id is None else NOT_READ
    for source in state.sources:
        of_cluster = offsets.get(source.cluster, {}) if source.cluster is not None else {}
        if source.unlisted is not None:
            unmeasured.append(Verdict("UNKNOWN", source.unlisted))
        for name in source.watched_topics():
            old = before.get((source.source, name))
            measure = TopicMeasure(
                *(source, name, of_cluster.get(name, _NO_OFFSETS), measure_time, max_age_s),
                *(old, since_s, processed_at_ms, unread),
            )
            topic, without_member = measure.topic_lag(state.unassigned.get(name, ()))
            if without_member:
                unassigned[len(topics)] = without_member
            topics.append(topic)
            if not topic.partitions and not without_member:
                unmeasured.append(measure.unmeasured())
            arrived += measure.arrived
            moved += measure.moved
    return MeasuredQuery(topics, unassigned, unmeasured, arrived, moved)
