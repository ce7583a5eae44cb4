"""What Kafka said of the topics: read by the enricher, judged by the evaluator. Only values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from aiokafka.structs import TopicPartition
from msgspec import Struct

from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.offset_times import Latest, OffsetTimes
from sparklag_service.enrichment.retention import Advances
from sparklag_service.tracking.query_state import QueryState

_NOTED: Final = 0.9
"""Times the interval: measurements on events do not shift the next row."""


class RecordTime(Struct, frozen=True, gc=False):
    """The timestamp that the record at an offset carries, epoch milliseconds."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class Topic:
    """A topic by its metadata. `missing` says why it has no partitions: deleted, or not visible."""

    topic_id: str | None = None
    """Kafka's own id. None: the broker is older than those."""
    partitions: tuple[int, ...] = ()
    missing: str | None = None
    gone: bool = False
    """Kafka says that there is no such topic; without it, `missing` may pass."""

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The same partitions, to look one up."""
        return frozenset(self.partitions)


@dataclass
class ClusterOffsets:
    """What one cluster said last. Each value stays until a newer one comes, with its age."""

    topics: dict[str, Topic] = field(default_factory=dict)
    latest: dict[IsolationLevel, dict[str, dict[int, Latest]]] = field(
        default_factory=lambda: {"read_uncommitted": {}, "read_committed": {}}
    )
    """By topic and partition number, for there is one of each."""
    earliest: dict[str, dict[int, int]] = field(default_factory=dict)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    """Why the newest attempt to read a partition's latest offset came to nothing."""
    times: dict[IsolationLevel, dict[str, OffsetTimes]] = field(
        default_factory=lambda: {"read_uncommitted": {}, "read_committed": {}}
    )
    """When the logs of each topic ended where."""
    advances: dict[TopicPartition, Advances] = field(default_factory=dict)
    """Of the partitions whose earliest offset was seen to advance."""
    record_times: dict[TopicPartition, RecordTime] = field(default_factory=dict)
    """What was read of the log itself: of the first record that a query has not processed."""

    def times_of(self, level: IsolationLevel, topic: str) -> OffsetTimes:
        """The rows of a topic, to be added to."""
        return self.times[level].setdefault(topic, OffsetTimes())

    def note_ends(
        self, level: IsolationLevel, topic: str, asked_s: float, interval_s: float
    ) -> None:
        """Remember where a topic's logs ended, as read at `asked_s`; once in `interval_s`."""
        known = self.topics.get(topic)
        times = self.times_of(level, topic)
        last_s = times.last_s
        if known is None or (last_s is not None and asked_s - last_s < _NOTED * interval_s):
            return
        latest = self.latest[level].get(topic, {})
        numbers = range(known.partitions[-1] + 1) if known.partitions else ()
        times.take(asked_s, list(map(latest.get, numbers)), interval_s)


Offsets = Mapping[str, ClusterOffsets]
"""By the alias of the cluster."""


def measured_partitions(state: QueryState, offsets: Offsets) -> int:
    """Partitions that are to be measured for a query, at most."""
    return sum(_of_sources(state, offsets))


def _of_sources(state: QueryState, offsets: Offsets) -> Iterator[int]:
    for source in state.sources:
        cluster = offsets.get(source.cluster) if source.cluster is not None else None
        for name in source.watched_topics():
            named = (source.processed or {}).get(name, ())
            topic = cluster.topics.get(name) if cluster is not None else None
            yield max(1, len(named), len(topic.partitions) if topic is not None else 0)
