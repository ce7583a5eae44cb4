"""The lag of a query, topic by topic, and what changed since the last measurement. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.bounds import bounded
from sparklag_service.enrichment.cluster_offsets import (
    ClusterOffsets,
    MeasureTime,
    OffsetsByCluster,
    Topic,
)
from sparklag_service.evaluation.query_history import QueryHistory
from sparklag_service.evaluation.topic_measure import PreviousLags, TopicMeasure
from sparklag_service.evaluation.verdict import Verdict
from sparklag_service.tracking.query_state import QueryState, SourceState

_NO_OFFSETS = ClusterOffsets()
_NO_TOPIC = Topic()


class QueryMeasure:
    """The lag of all topics of a query."""

    def __init__(
        self,
        state: QueryState,
        offsets: OffsetsByCluster,
        measure_time: MeasureTime,
        max_age_s: float,
        history: QueryHistory,
    ) -> None:
        self._state = state
        self._offsets = offsets
        self._measure_time = measure_time
        self._max_age_s = max_age_s
        self._history = history
        self.topics: list[TopicLag] = []
        self.unmeasured: list[Verdict] = []
        """The verdicts on topics without any partition."""
        self.arrived = 0
        self.moved = 0

    def measure(self, previous: LagEvent | None) -> None:
        """Measure every topic; `previous` is the query's last event."""
        before = {(t.source, t.topic): t for t in previous.topics} if previous is not None else {}
        for source in self._state.sources:
            for name in source.watched_topics():
                old = before.get((source.source, name))
                self.topics.append(self._topic_lag(source, name, old))

    def _topic_lag(self, source: SourceState, name: str, before: TopicLag | None) -> TopicLag:
        offsets = _NO_OFFSETS
        if source.cluster is not None:
            offsets = self._offsets.get(source.cluster, _NO_OFFSETS)
        topic = offsets.topics.get(name, _NO_TOPIC)
        processed = (source.processed or {}).get(name, {})
        topic_id = topic.topic_id
        if before is not None and processed and _is_unmoved(before, processed):
            # The position did not move: it is still one of the topic in which it was reached.
            topic_id = before.topic_id or topic_id
        elif topic_id is None and before is not None and not _was_recreated(before):
            topic_id = before.topic_id
        previous: Sequence[PartitionLag] = ()
        if before is not None and before.topic_id in (topic_id, None):
            previous = before.partitions
        trends = self._history.trends.get((source.source, name))
        flags = trends.flags if trends is not None else {}
        since_s = max(0.0, self._measure_time.now_s - self._history.at_s)
        measure = TopicMeasure(
            source,
            name,
            topic,
            topic_id,
            offsets,
            self._measure_time,
            self._max_age_s,
            PreviousLags(previous, since_s, flags),
        )
        partitions = measure.partition_lags(source.watched_partitions(name, topic.partitions))
        if not partitions:
            self.unmeasured.append(measure.unmeasured())
        self.arrived += measure.arrived
        self.moved += measure.moved
        lags = [partition.lag for partition in partitions if partition.lag is not None]
        return TopicLag(
            topic=name,
            source=source.source,
            cluster=source.cluster,
            topic_id=topic_id,
            assigned=source.assigned is not None,
            isolation_level=source.isolation_level,
            total_lag=bounded(sum(lags)) if lags else None,
            partitions=partitions,
        )


def _is_unmoved(before: TopicLag, processed: Mapping[int, int]) -> bool:
    """Whether no partition has moved, and none was added."""
    count = 0
    for partition in before.partitions:
        if partition.processed_offset is not None:
            if processed.get(partition.partition) != partition.processed_offset:
                return False
            count += 1
    return count == len(processed)


def _was_recreated(topic: TopicLag) -> bool:
    return any(partition.status == "RECREATED" for partition in topic.partitions)
