"""The lag of a query, topic by topic, and what is new since it was measured before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.bounds import bounded
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets, OffsetsByCluster, Topic
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.finding import Finding
from sparklag_service.evaluation.query_history import QueryHistory
from sparklag_service.evaluation.topic_measure import Before, TopicMeasure
from sparklag_service.tracking.query_state import QueryState, SourceState

_NOTHING_SAID = ClusterOffsets()
_UNSEEN = Topic()


class QueryMeasure:
    """The lag of all topics of a query, at one moment."""

    def __init__(
        self,
        state: QueryState,
        offsets: OffsetsByCluster,
        moment: Moment,
        max_age_s: float,
        course: QueryHistory,
    ) -> None:
        self._state = state
        self._offsets = offsets
        self._moment = moment
        self._max_age_s = max_age_s
        self._course = course
        self.topics: list[TopicLag] = []
        self.unread: list[Finding] = []
        """What is to say of topics none of whose partitions is known."""
        self.arrived = 0
        self.moved = 0

    def take(self, previous: LagEvent | None) -> None:
        """Measure each, knowing what was said of it last."""
        before = {(t.source, t.topic): t for t in previous.topics} if previous is not None else {}
        for source in self._state.sources:
            for name in source.watched_topics():
                old = before.get((source.source, name))
                self.topics.append(self._topic_lag(source, name, old))

    def _topic_lag(self, source: SourceState, name: str, before: TopicLag | None) -> TopicLag:
        said = _NOTHING_SAID
        if source.cluster is not None:
            said = self._offsets.get(source.cluster, _NOTHING_SAID)
        topic = said.topics.get(name, _UNSEEN)
        processed = (source.processed or {}).get(name, {})
        topic_id = topic.topic_id
        if before is not None and processed and _stands(before, processed):
            # The position did not move: it still is one of the topic it was reached in.
            topic_id = before.topic_id or topic_id
        elif topic_id is None and before is not None and not _was_recreated(before):
            topic_id = before.topic_id
        olds: Sequence[PartitionLag] = ()
        if before is not None and before.topic_id in (topic_id, None):
            olds = before.partitions
        trends = self._course.trends.get((source.source, name))
        flags = trends.flags if trends is not None else {}
        since_s = max(0.0, self._moment.now_s - self._course.at_s)
        one = TopicMeasure(
            source,
            name,
            topic,
            topic_id,
            said,
            self._moment,
            self._max_age_s,
            Before(olds, since_s, flags),
        )
        partitions = one.partition_lags(source.watched_partitions(name, topic.partitions))
        if not partitions:
            self.unread.append(one.nothing_known())
        self.arrived += one.arrived
        self.moved += one.moved
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


def _stands(before: TopicLag, processed: Mapping[int, int]) -> bool:
    """Whether no partition has moved, and none came."""
    known = 0
    for one in before.partitions:
        if one.processed_offset is not None:
            if processed.get(one.partition) != one.processed_offset:
                return False
            known += 1
    return known == len(processed)


def _was_recreated(topic: TopicLag) -> bool:
    return any(partition.status == "RECREATED" for partition in topic.partitions)
