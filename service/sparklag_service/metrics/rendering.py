"""The series of every shown query, as text.

Rendering works in time slices, between which other tasks run. Templates of the partitions' lines
are cached. Two scrapes may render at the same time, so a cache entry is only replaced as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sparklag_schemas import LagEvent, Settings, TopicLag
from sparklag_schemas.runtime.tasks import TimeSlice
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.metrics.families import Family, Gauge, Number, Scheme, label_pairs, label_set
from sparklag_service.metrics.schemes import KAFKA_LAG_EXPORTER, NATIVE, ages, kafka_exporter
from sparklag_service.metrics.selection import Selection, Shown, is_at_risk

_CHUNK_PARTITIONS = 2_000
_NAME = "\0"
"""Stands for the family's name in templates: labels have no control characters."""

Blocks = tuple[Family[Any], Sequence[bytes]]

_partition_number = attrgetter("partition")


class QuerySeries:
    """sparklag's own series, and the series of other tools in `[metrics] compat`."""

    def __init__(self, settings: Settings) -> None:
        self._selection = Selection(settings.metrics)
        self._native = SchemeText(NATIVE, self._selection)
        compat = settings.metrics.compat
        schemes = [KAFKA_LAG_EXPORTER] if "kafka-lag-exporter" in compat else []
        if "kafka_exporter" in compat:
            schemes.append(kafka_exporter(None if settings.clusters else settings.cluster))
        self._compat = [SchemeText(scheme, self._selection) for scheme in schemes]

    async def render(
        self,
        events: Sequence[LagEvent],
        owned: Collection[str],
        now_ms: int,
        clusters: Mapping[str, ClusterMetadata],
    ) -> AsyncIterator[list[Blocks]]:
        """Each family with its blocks, as of the time of the call. Yields one scheme at a time, so
        that not all text is in memory.

        `events`: the newest of every query. `owned`: ids of the queries that this instance
        measures. `clusters`: metadata by alias.
        """
        time_slice = TimeSlice()
        queries = await self._selection.all_queries(events, time_slice)
        native = self._selection.native(queries, owned)
        yield await self._native.render(native, clusters, time_slice, ages(now_ms))
        if not self._compat:
            return
        groups = await self._selection.groups(queries, owned, time_slice)
        for scheme in self._compat:
            yield await scheme.render(groups, clusters, time_slice)


TopicPartitions = tuple[str, Sequence[int], Sequence[Any]]
"""The shown partitions of a topic: its labels, their numbers, and for each number what each family
reads."""


class SchemeText:
    """The text of all shown queries, of the logs they read and of their clusters, in one scheme."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        shows_partitions = selection.partitions
        end = f",{label_pairs(scheme.partition_end)}" if scheme.partition_end else ""
        self._lines = PartitionLines(scheme.partition if shows_partitions else (), end)
        self._risk_lines = PartitionLines(scheme.partition_at_risk if shows_partitions else (), end)
        self._log_lines = PartitionLines(scheme.log_partition if shows_partitions else ())
        self._replica_lines = PartitionLines(scheme.log_replicas if shows_partitions else ())

    async def render(
        self,
        shown: Shown,
        clusters: Mapping[str, ClusterMetadata],
        time_slice: TimeSlice,
        ages: Iterable[Gauge[LagEvent]] = (),
    ) -> list[Blocks]:
        scheme, takes_topic = self._scheme, self._selection.takes_topic
        queries: list[tuple[str, LagEvent]] = []
        topics: list[tuple[str, TopicLag]] = []
        at_risk: list[tuple[str, TopicLag]] = []
        async for query in time_slice.over(shown.queries):
            queries.append((label_set(scheme.query_labels(query)), query.event))
            of_query = [
                (label_pairs(labels), topic)
                for labels, topic in (scheme.topics(query) if self._selection.topics else ())
                if takes_topic(topic.topic)
            ]
            topics += of_query
            if is_at_risk(query.event):
                at_risk += of_query
        families: list[Blocks] = [
            (family, [family.block(queries)])
            async for family in time_slice.over([*ages, *scheme.query])
        ]
        labelled = [
            (label_set(labels), metadata)
            for alias, metadata in clusters.items()
            if alias in shown.clusters and (labels := scheme.cluster_labels(alias)) is not None
        ]
        families += [(family, [family.block(labelled)]) for family in scheme.cluster]
        families += await self._of_topics(topics, scheme.topic, self._lines, time_slice)
        families += await self._of_topics(at_risk, (), self._risk_lines, time_slice)
        if not self._selection.topics:
            return families
        logs: list[tuple[str, TopicLag]] = []
        replicas: list[TopicPartitions] = []
        async for cluster, log in time_slice.over(shown.logs):
            labels = scheme.log_labels(cluster, log.topic)
            if labels is None:
                continue
            pairs = label_pairs(labels)
            logs.append((pairs, log))
            described = clusters[cluster].topics.get(log.topic) if cluster in clusters else None
            if scheme.log_replicas and described is not None:
                numbers = sorted(described.replicas)
                subjects = [described.replicas[number] for number in numbers]
                replicas.append((pairs, numbers, subjects))
        families += await self._of_topics(logs, scheme.log_topic, self._log_lines, time_slice)
        return families + await self._replica_lines.blocks(replicas, time_slice)

    async def _of_topics(
        self,
        topics: Sequence[tuple[str, TopicLag]],
        of_topic: Sequence[Gauge[TopicLag]],
        lines: PartitionLines,
        time_slice: TimeSlice,
    ) -> list[Blocks]:
        labelled = [(f"{{{pairs}}}", topic) for pairs, topic in topics]
        families: list[Blocks] = [
            (family, [family.block(labelled)]) async for family in time_slice.over(of_topic)
        ]
        partitions = (
            (pairs, list(map(_partition_number, topic.partitions)), topic.partitions)
            for pairs, topic in topics
        )
        return families + await lines.blocks(partitions, time_slice)


class PartitionLines:
    """The lines of many topics' partitions. The cache drops a topic that is no longer shown."""

    def __init__(self, families: Sequence[Gauge[Any]], end: str = "") -> None:
        """`end`: label pairs after the partition's, with a leading comma."""
        self._families = families
        self._end = end
        self._chunks: dict[tuple[str, int], _ChunkLines] = {}

    async def blocks(
        self, topics: Iterable[TopicPartitions], time_slice: TimeSlice
    ) -> list[Blocks]:
        if not self._families:
            return []
        blocks: list[list[bytes]] = [[] for _ in self._families]
        chunks: dict[tuple[str, int], _ChunkLines] = {}
        for labels, numbers, subjects in topics:
            for start in range(0, len(numbers), _CHUNK_PARTITIONS):
                key, end = (labels, start), start + _CHUNK_PARTITIONS
                lines = chunks[key] = self._chunks.get(key) or _ChunkLines(labels, self._end)
                # Without a pause: another scrape may render other partitions meanwhile.
                chunk = lines.blocks(self._families, numbers[start:end], subjects[start:end])
                for of_family, block in zip(blocks, chunk, strict=True):
                    of_family.append(block)
                await time_slice.rest()
        self._chunks = chunks
        return list(zip(self._families, blocks, strict=True))


class _ChunkLines:
    """The lines of some partitions of a topic, few enough for one time slice.

    The lines differ only in the partition, the family's name and the value. A template of them is
    cached for all families with the same value format.
    """

    def __init__(self, labels: str, end: str) -> None:
        self._begin = f'\n{_NAME}{{{labels},partition="'.replace("%", "%%")
        self._end = f'"{end}}} '.replace("%", "%%")
        self._numbers: Sequence[int] = ()
        self._templates: dict[str, bytes] = {}

    def blocks(
        self, families: Sequence[Gauge[Any]], numbers: Sequence[int], subjects: Sequence[Any]
    ) -> list[bytes]:
        """The lines of each family, one for each value that is not null."""
        if numbers != self._numbers:
            self._numbers = numbers
            self._templates.clear()
        return [self._text(family, tuple(map(family.read, subjects))) for family in families]

    def _text(self, family: Gauge[Any], values: tuple[Number | None, ...]) -> bytes:
        value_format, nulls = family.value_format, values.count(None)
        if nulls == len(values):
            return b""
        if nulls:
            pairs = list(zip(self._numbers, values, strict=True))
            numbers = [number for number, value in pairs if value is not None]
            template = self._template(value_format, numbers)
            values = tuple([value for _, value in pairs if value is not None])
        else:
            template = self._templates.get(value_format) or self._template(
                value_format, self._numbers
            )
            self._templates[value_format] = template
        # Two calls in C for all lines: they are most of the cost of a scrape.
        return template.replace(_NAME.encode(), family.name.encode()) % values

    def _template(self, value_format: str, numbers: Sequence[int]) -> bytes:
        begin, end = self._begin, self._end + value_format
        return "".join([f"{begin}{number}{end}" for number in numbers]).encode()
