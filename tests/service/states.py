"""States, and what Kafka offsets_at, for the pure tests."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel, LagEvent, Observation, PartitionLag, Thresholds
from sparklag_service.enrichment.cluster_offsets import (
    ClusterOffsets,
    MeasureTime,
    OffsetsByCluster,
    Topic,
    TopicOffsets,
)
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.evaluation.evaluator import EvaluatedQuery, Evaluator
from sparklag_service.evaluation.query_history import resume_history
from sparklag_service.tracking.query_state import QueryState, TrackedSource, restored
from sparklag_service.tracking.tracker import ClusterOf, Tracker
from tests.messages import QUERY_ID, RUN_ID, observation

NO_LEADER = "the partition has no leader"
MAX_AGE_S = 60.0
USUAL = Thresholds()
_EPOCH_MS = 1_790_000_000_000
"""Epoch milliseconds where `time.monotonic()` is 0."""


OWN_TOPICS = frozenset({"consumer-lag", "processed-offsets"})


def source(processed: dict[str, dict[int, int]] | None, **fields: Any) -> TrackedSource:
    return TrackedSource(
        **{"source": 0, "isolation_level": "read_uncommitted", "processed": processed, **fields}
    )


def state(*sources: TrackedSource, **fields: Any) -> QueryState:
    """Query `orders`, at 5 of `orders` 0 unless `sources` say otherwise."""
    return QueryState(
        **{
            "query_id": QUERY_ID,
            "run_id": RUN_ID,
            "query": "orders",
            "cluster": "default",
            "observed_at": 1_000,
            "driver_written_at_ms": 1_000,
            "processed_at": _EPOCH_MS + 100_000,
            "sources": sources or (source({"orders": {0: 5}}),),
            **fields,
        }
    )


def partition(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def moment(now_s: float = 100.0, *, requested_s: float | None = None) -> MeasureTime:
    """A pass that requested its offsets at `requested_s`, and is done at `now_s`."""
    return MeasureTime(
        now_ms=_EPOCH_MS + round(now_s * 1000),
        now_s=now_s,
        requested_s=now_s if requested_s is None else requested_s,
    )


def offsets_at(
    latest: dict[int, int],
    earliest: dict[int, int] | None = None,
    *,
    topic: str = "orders",
    topic_id: str | None = "id-a",
    partitions: int | None = None,
    requested_s: float = 100.0,
    level: IsolationLevel = "read_uncommitted",
    unknown: dict[int, str] | None = None,
    missing: str | None = None,
    gone: bool = False,
    cluster: str = "default",
    beside: OffsetsByCluster | None = None,
) -> OffsetsByCluster:
    """What Kafka said of one topic by partition, `beside` what it said of others.

    The topic has as many partitions as are named, unless `partitions` says otherwise.
    """
    answer = dict((beside or {}).get(cluster, {}))
    of_topic = answer[topic] = answer.get(topic, TopicOffsets())
    if partitions is None:
        partitions = 0 if missing else 1 + max((*latest, *(unknown or {}), *(earliest or {})))
    of_topic.description = Topic(
        None if missing else topic_id, tuple(range(partitions)), missing, gone
    )
    of_topic.described_s = requested_s
    of_topic.latest[level].update(
        {number: LatestOffset(offset, requested_s) for number, offset in latest.items()}
    )
    of_topic.earliest.update(earliest or {})
    of_topic.unknown.update(unknown or {})
    return {**(beside or {}), cluster: answer}


def latest_of(
    offsets: ClusterOffsets, level: IsolationLevel = "read_uncommitted"
) -> dict[TopicPartition, int]:
    return {
        TopicPartition(name, number): read.offset
        for name, topic in offsets.items()
        for number, read in topic.latest[level].items()
    }


def unknown_of(offsets: ClusterOffsets) -> dict[TopicPartition, str]:
    return {
        TopicPartition(name, number): why
        for name, topic in offsets.items()
        for number, why in topic.unknown.items()
    }


def evaluated(
    query: QueryState,
    offsets: OffsetsByCluster,
    at: MeasureTime | None = None,
    previous: LagEvent | None = None,
    *,
    cause: str = "refresh",
    silent: bool = False,
) -> LagEvent:
    """The lag event of `query`, at 100 s unless `at` says otherwise, after the event `previous`."""
    at = at or moment()
    past = EvaluatedQuery(previous, resume_history(previous, at)) if previous is not None else None
    return (
        Evaluator("service", MAX_AGE_S, home="default", own_topics=OWN_TOPICS)
        .evaluate(query, offsets, at, event_id="id", cause=cause, previous=past, silent=silent)
        .event
    )


def only(result: LagEvent) -> PartitionLag:
    ((only_one,),) = [topic.partitions for topic in result.topics]
    return only_one


def lags(result: LagEvent, topic: int = 0) -> list[int | None]:
    return [partition.lag for partition in result.topics[topic].partitions]


def statuses(result: LagEvent, topic: int = 0) -> list[str]:
    return [partition.status for partition in result.topics[topic].partitions]


class States:
    def __init__(self, cluster_of: ClusterOf = lambda _, alias: alias) -> None:
        self.queries: dict[str, QueryState] = {}
        self._tracker = Tracker(cluster_of)

    def observe(
        self,
        observation: Observation,
        last_event: LagEvent | None = None,
        offset: int | None = None,
        now_ms: int | None = None,
    ) -> bool:
        current = self.queries.get(observation.query_id)
        if current is None and last_event is not None:
            current = restored(last_event)
        change = self._tracker.observe(current, observation, offset, now_ms)
        if change is not None:
            self.queries[observation.query_id] = change.state
        return change is not None and change.is_news

    def adopt(self, event: LagEvent) -> None:
        self.queries[event.query_id] = restored(event)


class Follower:
    def __init__(
        self,
        last: LagEvent | None = None,
        thresholds: Thresholds = USUAL,
        burrow_clusters: Container[str] = (),
    ) -> None:
        self.tracker = States()
        self.last = last
        self.offset = -1
        self._evaluated: EvaluatedQuery | None = None
        self._evaluator = Evaluator("service", MAX_AGE_S, lambda *_: thresholds, burrow_clusters)

    def hear(self, observation: Observation, offset: int | None = None) -> bool:
        """Take in what is next on `processed-offsets`, or stands at `offset`."""
        self.offset = self.offset + 1 if offset is None else offset
        return self.tracker.observe(observation, self.last, self.offset)

    def measure(
        self, offsets: OffsetsByCluster, at: MeasureTime | None = None, *, silent: bool = False
    ) -> LagEvent:
        at = at or moment()
        past = self._evaluated
        if past is None and self.last is not None:
            past = EvaluatedQuery(self.last, resume_history(self.last, at))
        self._evaluated = self._evaluator.evaluate(
            self.state, offsets, at, event_id="id", cause="refresh", previous=past, silent=silent
        )
        self.last = self._evaluated.event
        return self.last

    def restart(self) -> None:
        """Another instance goes on: from the last event, it knows nothing else."""
        assert self.last is not None
        self._evaluated = None
        self.tracker = States()
        self.tracker.adopt(self.last)

    @property
    def state(self) -> QueryState:
        return self.tracker.queries[QUERY_ID]


def followed(offsets: OffsetsByCluster, *observations: Observation) -> Follower:
    """A query of which these were heard, or that it is at 5, and which was then measured."""
    query = Follower()
    for observed in observations or (observation(),):
        query.hear(observed)
    query.measure(offsets)
    return query
