"""The series of every query that is shown, as text.

Rendered in time slices, so that others have the loop in between; what is costly, the lines of the
partitions, is cached. Two scrapes may render at once: what is cached is replaced whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from sparklag_schemas import LagEvent, PartitionLag, Settings, TopicLag
from sparklag_service.metrics.compat import KAFKA_LAG_EXPORTER, kafka_exporter
from sparklag_service.metrics.families import Family, Gauge, Number
from sparklag_service.metrics.native import NATIVE, ages, query_set
from sparklag_service.metrics.scheme import NamedQuery, Scheme, Selection, logs_of

_SLICE_S = 0.001
_CHUNK_PARTITIONS = 2_000

Blocks = tuple[Family, Sequence[bytes]]

_partition_number = attrgetter("partition")


class QuerySeries:
    """sparklag's own series, and those of the tools that it stands in for."""

    def __init__(self, settings: Settings) -> None:
        self._selection = Selection(settings.metrics)
        self._schemes = [SchemeText(scheme, self._selection) for scheme in _schemes(settings)]

    async def render(
        self, events: Sequence[LagEvent], measured: Collection[str] | None, now_ms: int
    ) -> list[Blocks]:
        """Each family with its blocks, as of the call: later events are not in it.

        `events`: the newest of every query. `measured`: ids of those to show; None: all.
        """
        time_slice = TimeSlice()
        shown = self._selection.shown(events, measured)
        queries = [(query_set(query.event), query.event) for query in shown]
        families: list[Blocks] = [(age, [age.block(queries)]) for age in ages(now_ms)]
        for scheme in self._schemes:
            await time_slice.rest()
            families += await scheme.render(shown, time_slice)
        return families


def _schemes(settings: Settings) -> Iterator[Scheme]:
    yield NATIVE
    if "kafka-lag-exporter" in settings.metrics.compat:
        yield KAFKA_LAG_EXPORTER
    if "kafka_exporter" in settings.metrics.compat:
        yield kafka_exporter(None if settings.clusters else settings.cluster)


class TimeSlice:
    """How long a piece of work has held the loop."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    async def rest(self) -> None:
        """Let others have the loop, if this has held it long enough."""
        if time.perf_counter() - self._began_s > _SLICE_S:
            await asyncio.sleep(0)
            self._began_s = time.perf_counter()


class SchemeText:
    """All queries that are shown, and the logs they read, in one scheme."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        self._queries: dict[str, QueryText] = {}
        self._log_topic = scheme.log_topic if selection.topics else ()
        self._log_partition = scheme.log_partition if selection.partitions else ()
        self._log_lines = PartitionLines(self._log_partition)

    async def render(self, shown: Sequence[NamedQuery], time_slice: TimeSlice) -> list[Blocks]:
        """Each family with its blocks."""
        texts: dict[str, QueryText] = {}
        queries: list[_Rendered] = []
        for query in shown:
            query_id = query.event.query_id
            text = self._queries.get(query_id) or QueryText(self._scheme, self._selection)
            texts[query_id] = text
            queries.append(await text.render(query, time_slice))
            await time_slice.rest()
        # The cache of a query goes with the query.
        self._queries = texts
        families: list[Blocks] = []
        for blocks in self._levels(queries):
            families.append(blocks)
            await time_slice.rest()
        return families + await self._logs(shown, time_slice)

    def _levels(self, queries: Sequence[_Rendered]) -> Iterator[Blocks]:
        scheme = self._scheme
        for of_query in scheme.query:
            yield of_query, [of_query.block([(query.labels, query.event) for query in queries])]
        if self._selection.topics:
            for of_topic in scheme.topic:
                topics = chain.from_iterable(query.topics for query in queries)
                yield of_topic, [of_topic.block(topics)]
        if self._selection.partitions:
            for index, family in enumerate(scheme.partition):
                blocks = (query.partitions[index] for query in queries)
                yield family, list(chain.from_iterable(blocks))

    async def _logs(self, shown: Sequence[NamedQuery], time_slice: TimeSlice) -> list[Blocks]:
        """Of each topic once, however many queries read it."""
        if not self._log_topic and not self._log_partition:
            return []
        events = (query.event for query in shown)
        logs = [
            (labels, log)
            for cluster, log in logs_of(events, self._selection.takes_topic)
            if (labels := self._scheme.log_labels(cluster, log.topic)) is not None
        ]
        blocks = await self._log_lines.blocks(logs, time_slice)
        topics = [(f"{{{labels}}}", log) for labels, log in logs]
        families: list[Blocks] = [(family, [family.block(topics)]) for family in self._log_topic]
        return families + list(zip(self._log_partition, blocks, strict=True))


class _Rendered(NamedTuple):
    """A query in one scheme."""

    event: LagEvent
    labels: str
    """With braces."""
    topics: Sequence[tuple[str, TopicLag]]
    """Those that are shown, each with its labels, with braces."""
    partitions: Sequence[Sequence[bytes]]
    """Their blocks, by the scheme's families."""


class QueryText:
    """One query in one scheme. Its partitions' lines are made again where its event changed."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        # Not the event: it would stay until the next scrape, beside the one that replaced it.
        self._cached: tuple[str, str, Sequence[Sequence[bytes]]] | None = None
        """Id of the event, group, blocks."""
        self._lines = PartitionLines(scheme.partition, scheme.partition_end)

    async def render(self, query: NamedQuery, time_slice: TimeSlice) -> _Rendered:
        """As of its event."""
        labels = self._scheme.query_labels(query)
        topics: list[tuple[str, TopicLag]] = []
        if self._selection.topics:
            topics = [
                (pairs, topic)
                for pairs, topic in self._scheme.topics(query)
                if self._selection.takes_topic(topic.topic)
            ]
        shown = [(f"{{{pairs}}}", topic) for pairs, topic in topics]
        blocks: Sequence[Sequence[bytes]] = ()
        if self._selection.partitions:
            key, cached = (query.event.event_id, query.group), self._cached
            if cached is None or cached[:2] != key:
                cached = (*key, await self._lines.blocks(topics, time_slice))
                self._cached = cached
            blocks = cached[2]
        return _Rendered(query.event, labels, shown, blocks)


class PartitionLines:
    """The lines of many topics' partitions. What is cached of a topic goes with the topic."""

    def __init__(self, families: Sequence[Gauge[PartitionLag]], end: str = "") -> None:
        """`end`: label pairs after the partition's, with a comma first."""
        self._families = families
        self._end = end
        self._chunks: dict[tuple[str, int], _ChunkLines] = {}

    async def blocks(
        self, topics: Iterable[tuple[str, TopicLag]], time_slice: TimeSlice
    ) -> list[list[bytes]]:
        """The blocks of each family, of topics with their label pairs."""
        blocks: list[list[bytes]] = [[] for _ in self._families]
        chunks: dict[tuple[str, int], _ChunkLines] = {}
        for labels, topic in topics:
            for start in range(0, len(topic.partitions), _CHUNK_PARTITIONS):
                key = (labels, start)
                lines = chunks[key] = self._chunks.get(key) or _ChunkLines(labels, self._end)
                partitions = topic.partitions[start : start + _CHUNK_PARTITIONS]
                # In one slice: another scrape may render other partitions in the next.
                for of_family, block in zip(
                    blocks, lines.blocks(self._families, partitions), strict=True
                ):
                    of_family.append(block)
                await time_slice.rest()
        self._chunks = chunks
        return blocks


class _ChunkLines:
    """Partitions of one topic, few enough not to hold the loop for long.

    Their lines differ in one label and the value: templates of them are cached.
    """

    def __init__(self, labels: str, end: str) -> None:
        self._begin = f'{{{labels},partition="'
        self._end = f'"{end}}} '
        self._numbers: list[int] = []
        self._templates: dict[str, bytes] = {}

    def blocks(
        self, families: Sequence[Gauge[PartitionLag]], partitions: Sequence[PartitionLag]
    ) -> list[bytes]:
        """The lines of each family: one for each value that is not null."""
        numbers = list(map(_partition_number, partitions))
        if numbers != self._numbers:
            self._numbers = numbers
            self._templates.clear()
        return [self._text(family, tuple(map(family.read, partitions))) for family in families]

    def _text(self, family: Gauge[PartitionLag], values: tuple[Number | None, ...]) -> bytes:
        template = self._templates.get(family.name)
        if template is not None:
            try:
                # One call in C for all of them: this is most of what a scrape costs.
                return template % values
            except TypeError:
                # Some are null by now.
                pass
        if values.count(None) == len(values):
            return b""
        pairs = zip(self._numbers, values, strict=True)
        numbers = [number for number, value in pairs if value is not None]
        template = self._template(family, numbers)
        if len(numbers) == len(values):
            self._templates[family.name] = template
        return template % tuple([value for value in values if value is not None])

    def _template(self, family: Gauge[PartitionLag], numbers: Sequence[int]) -> bytes:
        begin = f"\n{family.name}{self._begin}".replace("%", "%%")
        end = f"{self._end.replace('%', '%%')}{family.value_format}"
        return "".join([f"{begin}{number}{end}" for number in numbers]).encode()
