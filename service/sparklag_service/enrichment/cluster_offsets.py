"""The offsets of one cluster, which the enricher reads and the evaluator uses. Only values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from sparklag_kafka.protocol.metadata import Address, PartitionReplicas
from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.log_end_history import LatestOffset, LogEndHistory
from sparklag_service.tracking.query_state import MeasureTime as MeasureTime
from sparklag_service.tracking.query_state import QueryState

_MIN_SPACING: Final = 0.9
"""Share of the interval between rows: a measurement on an event does not delay the next row."""
SETTLED_S: Final = 5.0
"""A lag of markers alone counts this long: in a topic of short transactions it comes and goes."""
_STEPS: Final = 6
"""Advances kept for each partition."""


class RecordTime(Struct, frozen=True, gc=False):
    """The timestamp of the record at an offset, epoch milliseconds."""

    offset: int
    timestamp_ms: int
    level: IsolationLevel = "read_uncommitted"


class NoRecords(NamedTuple):
    """Offsets at which no consumer gets a record: markers of transactions, aborted records, or
    gaps."""

    start: int
    end: int
    since_s: float
    """When that was read (`time.monotonic()`)."""

    def is_next_to(self, offset: int) -> bool:
        """Returns whether `offset` is one of these, or the first after them."""
        return self.start <= offset <= self.end


class Waiting(NamedTuple):
    """Records wait behind the last stable offset `stable` of a partition."""

    stable: int
    since_s: float
    """When a high watermark past that offset was first read (`time.monotonic()`)."""


class Advances(NamedTuple):
    """The last advances of one partition's earliest offset: how fast unread records are deleted.

    Kafka deletes whole segments, so a log start offset stays for hours and then jumps.
    """

    steps: tuple[tuple[float, int], ...] = ()
    """`time.monotonic()` of each advance, and the offset after it; oldest first. The size of the
    first advance is unknown."""

    def with_step(self, at_s: float, earliest: int) -> Advances:
        """Returns the advances with one more, to the offset `earliest`."""
        return Advances((*self.steps, (at_s, earliest))[-_STEPS:])

    def rate(self, now_s: float) -> float | None:
        """Offsets deleted a second. None: fewer than two advances."""
        first_s, first = self.steps[0]
        last_s, last = self.steps[-1]
        if last_s <= first_s:
            return None
        # A pause longer than every one before it means that deletion has slowed down.
        longest_s = max(b - a for (a, _), (b, _) in zip(self.steps, self.steps[1:], strict=False))
        return (last - first) / max(last_s - first_s, now_s - first_s - longest_s)


@dataclass(frozen=True)
class Topic:
    """A topic by its metadata. `missing` is why it has no partitions: deleted, or not visible."""

    topic_id: str | None = None
    """Kafka's own id. None: the broker is too old for topic ids."""
    partitions: tuple[int, ...] = ()
    missing: str | None = None
    gone: bool = False
    """It was seen, and does not exist any more. False: `missing` may be temporary."""
    absent: bool = False
    """Kafka reports that the topic does not exist."""

    @cached_property
    def numbers(self) -> frozenset[int]:
        return frozenset(self.partitions)


_NOT_DESCRIBED: Final = Topic()


@dataclass(slots=True)
class TopicOffsets:
    """The offsets read of one topic, by partition number. A failed read leaves the last value, with
    its age."""

    description: Topic = _NOT_DESCRIBED
    described_s: float | None = None
    """When its newest metadata was requested (`time.monotonic()`). None: not read yet."""
    replicas: Mapping[int, PartitionReplicas] = field(default_factory=dict)
    latest: dict[IsolationLevel, dict[int, LatestOffset]] = field(
        default_factory=lambda: {"read_uncommitted": {}, "read_committed": {}}
    )
    earliest: dict[int, int] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    """Why the newest attempt to read a latest offset failed."""
    log_ends: defaultdict[IsolationLevel, LogEndHistory] = field(
        default_factory=lambda: defaultdict(LogEndHistory)
    )
    advances: dict[int, Advances] = field(default_factory=dict)
    """The advances of partitions whose earliest offset has advanced."""
    record_times: dict[int, RecordTime] = field(default_factory=dict)
    """Timestamp of the first record that a query has not processed, read from the log."""
    without_records: dict[IsolationLevel, dict[int, NoRecords]] = field(
        default_factory=lambda: {"read_uncommitted": {}, "read_committed": {}}
    )
    waiting: dict[int, Waiting] = field(default_factory=dict)
    """Partitions whose high watermark, at its last read, was past the last stable offset."""

    def first_record(self, level: IsolationLevel, number: int, position: int) -> int:
        """The first offset from `position` on at which there may be a record."""
        none = self.without_records[level].get(number)
        return position if none is None or position < none.start else max(position, none.end)

    def record_log_ends(self, level: IsolationLevel, requested_s: float, interval_s: float) -> None:
        """Add the latest offsets, requested at `requested_s`, to the history, at most once in
        `interval_s`."""
        history = self.log_ends[level]
        last_s = history.last_s
        if self.described_s is None or (
            last_s is not None and requested_s - last_s < _MIN_SPACING * interval_s
        ):
            return
        partitions = self.description.partitions
        numbers = range(partitions[-1] + 1) if partitions else ()
        history.append(requested_s, list(map(self.latest[level].get, numbers)), interval_s)


ClusterOffsets = Mapping[str, TopicOffsets]
"""The newest offsets of one cluster, by topic."""
OffsetsByCluster = Mapping[str, ClusterOffsets]
"""The offsets of each cluster, by its alias."""


class ClusterMetadata(NamedTuple):
    """The newest metadata of a cluster."""

    brokers: Mapping[int, Address]
    """Addresses, by node id."""
    topics: ClusterOffsets
    """Topics that queries of this instance read."""
    group_poll_s: float | None = None
    """How long the last read of its consumer groups took. None: no group is read."""


def measured_partitions(state: QueryState, offsets: OffsetsByCluster) -> int:
    """Upper bound of the partitions to measure for a query."""
    total = 0
    for source in state.sources:
        of_cluster = offsets.get(source.cluster, {}) if source.cluster is not None else {}
        for name in source.watched_topics():
            named = (source.processed or {}).get(name, ())
            existing = of_cluster[name].description.partitions if name in of_cluster else ()
            total += max(1, len(named), len(existing))
    return total
