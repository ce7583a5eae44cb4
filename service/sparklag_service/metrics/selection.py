"""What `[metrics]` shows: queries, topics, their granularity, and topics as groups read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.messages.query_names import is_over
from sparklag_schemas.runtime.tasks import TimeSlice
from sparklag_schemas.settings import MetricsSettings
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_service.metrics.families import NamedQuery

_CACHED_NAMES: Final = 16_384


@dataclass(frozen=True)
class Shown:
    """The queries, logs and clusters that one instance shows."""

    queries: list[NamedQuery]
    logs: list[tuple[str, TopicLag]] = field(default_factory=list)
    """Each topic once for all queries that read it, with the alias of its cluster."""
    clusters: frozenset[str] = frozenset()
    """Aliases of the clusters."""


class Selection:
    """The rules of `[metrics]`. Patterns match whole names or ids; exclusion wins."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._takes_names = lru_cache(_CACHED_NAMES)(
            NamePatterns(settings.include, settings.exclude).select
        )
        self.takes_topic = lru_cache(_CACHED_NAMES)(
            NamePatterns(settings.include_topics, settings.exclude_topics).select
        )
        """Returns True for the name of a topic that is shown."""
        self._shows_all = settings.queries == "all"
        self.topics = settings.granularity != "query"
        self.partitions = settings.granularity == "partition"

    async def all_queries(
        self, events: Iterable[LagEvent], time_slice: TimeSlice
    ) -> list[NamedQuery]:
        """The queries of every instance. `events`: the newest of every query."""
        selected = [
            event
            async for event in time_slice.over(events)
            # Excludes queries that lost their name, or whose driver stopped observing them.
            if event.superseded_by is None
            and event.driver_end != "closed"
            and self._takes_names(event.query, event.query_id)
        ]
        return await _named(selected, time_slice)

    def native(self, queries: list[NamedQuery], owned: Collection[str]) -> Shown:
        """The queries under their own names. `owned`: ids of those that this instance measures."""
        return Shown(queries if self._shows_all else _owned(queries, owned))

    async def groups(
        self, queries: Iterable[NamedQuery], owned: Collection[str], time_slice: TimeSlice
    ) -> Shown:
        """The groups that this instance shows. Other tools add up series, so each must appear once:
        a query at the instance that measures it, a topic and a cluster at the instance that
        measures their first reader. An ended query is no group."""
        groups = [query for query in queries if not is_over(query.event)]
        logs: dict[tuple[str, str], list[tuple[LagEvent, TopicLag]]] = {}
        readers: dict[str, list[LagEvent]] = {}
        async for query in time_slice.over(groups):
            for topic in query.event.topics:
                if topic.cluster is None:
                    # The service does not know the logs of a cluster that is not configured.
                    continue
                readers.setdefault(topic.cluster, []).append(query.event)
                if self.takes_topic(topic.topic):
                    logs.setdefault((topic.cluster, topic.topic), []).append((query.event, topic))
        return Shown(
            _owned(groups, owned),
            [
                (cluster, newest_log(of_topic))
                async for (cluster, _), of_topic in time_slice.over(logs.items())
                if _first_reader(event for event, _ in of_topic) in owned
            ],
            frozenset(alias for alias, events in readers.items() if _first_reader(events) in owned),
        )


def _owned(queries: Iterable[NamedQuery], owned: Collection[str]) -> list[NamedQuery]:
    return [query for query in queries if query.event.query_id in owned]


def _first_reader(readers: Iterable[LagEvent]) -> str:
    # Queries measured in their driver come last: the driver may not be scraped.
    first = min(readers, key=lambda event: (event.measured_by == "embedded", event.query_id))
    return first.query_id


async def _named(events: Iterable[LagEvent], time_slice: TimeSlice) -> list[NamedQuery]:
    """Each query with its name; with its id if it has no name, or if a live query of one of its
    clusters has the same name: a group id is unique in its cluster."""
    placed = [
        (event, {event.cluster, *(topic.cluster for topic in event.topics)})
        async for event in time_slice.over(events)
    ]
    bearers = Counter(
        [
            (cluster, event.query)
            async for event, clusters in time_slice.over(placed)
            if not is_over(event)
            for cluster in clusters
        ]
    )

    def group(event: LagEvent, clusters: set[str | None]) -> str:
        is_alone = all(bearers[cluster, event.query] <= 1 for cluster in clusters)
        return event.query if event.query and is_alone else event.query_id

    return [
        NamedQuery(event, group(event, clusters))
        async for event, clusters in time_slice.over(placed)
    ]


def is_at_risk(event: LagEvent) -> bool:
    """Returns whether the query lost records, or retention approaches its position."""
    return bool(event.lost_records) or event.min_headroom_s is not None


def as_group_reads(event: LagEvent) -> list[TopicLag]:
    """The topics as a consumer group reads them: each topic once, each partition at one offset.

    If two sources read a topic, the source that is further behind counts. Topics of a cluster that
    is not configured are left out, because their logs are unknown.
    """
    sources: dict[tuple[str, str], list[TopicLag]] = {}
    for topic in event.topics:
        if topic.cluster is not None:
            sources.setdefault((topic.cluster, topic.topic), []).append(topic)
    return [topics[0] if len(topics) == 1 else _slowest(topics) for topics in sources.values()]


def _slowest(topics: Sequence[TopicLag]) -> TopicLag:
    by_number: dict[int, PartitionLag] = {}
    for topic in topics:
        for partition in topic.partitions:
            other = by_number.get(partition.partition)
            if other is None or _behind(partition) > _behind(other):
                by_number[partition.partition] = partition
    partitions = [by_number[number] for number in sorted(by_number)]
    return replace(topics[0], partitions=partitions)


def _behind(partition: PartitionLag) -> int:
    return -1 if partition.lag is None else partition.lag


def lags_of(topics: Iterable[TopicLag]) -> list[int]:
    """The known lags as Kafka's tools compute them: up to the log end, whatever is left to read."""
    return [p.lag for topic in topics for p in topic.partitions if p.lag is not None]


def lag_sum(*topics: TopicLag) -> int | None:
    """Sum of the known lags. None: no lag is known."""
    lags = lags_of(topics)
    return sum(lags) if lags else None


def offset_sum(topic: TopicLag) -> int | None:
    """Sum of the known processed offsets. None: no offset is known."""
    offsets = [p.processed_offset for p in topic.partitions if p.processed_offset is not None]
    return sum(offsets) if offsets else None


def newest_log(readers: Sequence[tuple[LagEvent, TopicLag]]) -> TopicLag:
    """A topic's log from the events of its readers: the newest measurement of each partition, by
    preference the high watermark, not the last stable offset."""
    if len(readers) == 1:
        return readers[0][1]
    by_number: dict[int, PartitionLag] = {}
    trust = sorted(
        readers, key=lambda of: (of[1].isolation_level == "read_uncommitted", of[0].measured_at)
    )
    for _, topic in trust:
        for partition in topic.partitions:
            if partition.latest_offset is not None or partition.partition not in by_number:
                by_number[partition.partition] = partition
    return replace(
        readers[0][1],
        partitions=[by_number[number] for number in sorted(by_number)],
        assigned=all(topic.assigned for _, topic in readers),
    )
