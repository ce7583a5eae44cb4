"""The lag of a query, topic by topic, and what changed since the last measurement. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparklag_schemas import LagEvent, TopicLag
from sparklag_service.enrichment.cluster_offsets import MeasureTime, OffsetsByCluster
from sparklag_service.evaluation.topic_measure import TopicMeasure
from sparklag_service.evaluation.verdict import Verdict
from sparklag_service.tracking.query_state import QueryState


class MeasuredQuery(NamedTuple):
    """The lag of all topics of a query."""

    topics: list[TopicLag]
    unmeasured: list[Verdict]
    """The verdicts on topics without any partition."""
    arrived: int
    """Records that arrived since the previous measurement."""
    moved: int
    """Records that were processed since then."""


def measure_query(
    state: QueryState,
    offsets: OffsetsByCluster,
    measure_time: MeasureTime,
    max_age_s: float,
    previous: LagEvent | None,
    since_s: float,
) -> MeasuredQuery:
    """Measure every topic. `previous` is the query's last event, of `since_s` seconds ago."""
    before = {(t.source, t.topic): t for t in previous.topics} if previous is not None else {}
    topics: list[TopicLag] = []
    unmeasured: list[Verdict] = []
    arrived = moved = 0
    for source in state.sources:
        of_cluster = offsets.get(source.cluster, {}) if source.cluster is not None else {}
        for name in source.watched_topics():
            old = before.get((source.source, name))
            measure = TopicMeasure(source, name, of_cluster, measure_time, max_age_s, old, since_s)
            topic = measure.topic_lag()
            topics.append(topic)
            if not topic.partitions:
                unmeasured.append(measure.unmeasured())
            arrived += measure.arrived
            moved += measure.moved
    return MeasuredQuery(topics, unmeasured, arrived, moved)
