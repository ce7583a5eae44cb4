"""The search in a partition for its first unprocessed record, and its limits. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from aiokafka.structs import TopicPartition
from msgspec import Struct

from sparklag_kafka.brokers.logs import FetchedPartition
from sparklag_kafka.errors import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_FORBIDDEN,
    RecordsUnreadable,
    error_name,
)
from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.tracking.query_state import TrackedSource

FIRST_BYTES: Final = 1_024
"""Bytes fetched if the batch sizes of a topic are unknown."""
MAX_BYTES: Final = 1024 * 1024
"""Limit of a response, and so of a batch."""
_SHRINK: Final = 0.98
"""Factor for each batch that is smaller than the largest recent one."""
_MIN_BYTES: Final = 256
_BYTES_PER_S: Final = 1024 * 1024
_BURST_BYTES: Final = 8 * 1024 * 1024


class ByteBudget:
    """Limits the bytes read each second; unused bytes are saved, up to `burst_bytes`.

    The size of a response is known only afterwards, so the budget may be in debt.
    """

    def __init__(
        self, now_s: float, bytes_per_s: int = _BYTES_PER_S, burst_bytes: int = _BURST_BYTES
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_s = burst_bytes / bytes_per_s
        self._spent_until_s = now_s - self._burst_s

    def spend(self, size: int, now_s: float) -> None:
        saved_since_s = max(self._spent_until_s, now_s - self._burst_s)
        self._spent_until_s = saved_since_s + size / self._bytes_per_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until bytes may be spent."""
        return max(0.0, self._spent_until_s - now_s)


class BatchSizes:
    """The size of the largest recent batch of each topic, so that a fetch asks for one batch."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}

    def usual(self, topic: str) -> int:
        """Bytes that the next batch of a topic probably does not exceed."""
        return int(self._bytes.get(topic, FIRST_BYTES))

    def learn(self, topic: str, size: int) -> None:
        previous = self._bytes.get(topic, _MIN_BYTES)
        self._bytes[topic] = min(MAX_BYTES, max(size, previous * _SHRINK, _MIN_BYTES))

    def retain(self, topics: Iterable[str]) -> None:
        self._bytes = {topic: self._bytes[topic] for topic in topics if topic in self._bytes}


class Postponed:
    """Topics, partitions and positions that are not read before a time; at most `max_keys`."""

    def __init__(self, max_keys: int = 50_000) -> None:
        self._until_s: dict[Hashable, float] = {}
        self._max_keys = max_keys

    def add(self, key: Hashable, until_s: float) -> None:
        self._until_s.pop(key, None)
        if len(self._until_s) >= self._max_keys:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[key] = until_s

    def contains(self, key: Hashable, now_s: float) -> bool:
        return self._until_s.get(key, now_s) > now_s

    def tidy(self, now_s: float) -> None:
        """Forget the entries whose time has passed."""
        self._until_s = {key: s for key, s in self._until_s.items() if s > now_s}


class Lagging(Struct, frozen=True, gc=False):  # thousands of instances
    """A partition with unprocessed records. `position` is the offset of the first."""

    partition: TopicPartition
    level: IsolationLevel
    position: int
    latest: LatestOffset
    topic_id: str | None

    @property
    def key(self) -> Hashable:
        """Identifies the position and how it is read."""
        return self.partition, self.topic_id, self.level, self.position


def lagging_partitions(source: TrackedSource, offsets: ClusterOffsets) -> Iterator[Lagging | None]:
    """The lagging partitions of a source, and None for each other partition.

    Deleted records do not count, nor do offsets without a record.
    """
    level = source.isolation_level
    for name in source.watched_topics():
        topic = offsets.get(name)
        if topic is None or topic.description.missing is not None:
            continue
        positions = (source.processed or {}).get(name, {})
        ends, starts = topic.latest[level], topic.earliest
        for number in source.watched_partitions(name, topic.description.partitions):
            latest, earliest, position = ends.get(number), starts.get(number), positions.get(number)
            if position is None and source.processed is not None:
                # A partition that was added is read from its first record.
                position = earliest
            elif position is not None and earliest is not None:
                position = max(position, earliest)
            if position is not None:
                position = topic.first_record(level, number, position)
            if latest is None or position is None or latest.offset <= position:
                yield None
                continue
            partition = TopicPartition(name, number)
            yield Lagging(partition, level, position, latest, topic.description.topic_id)


def is_older_than_measurements(lagging: Lagging, offsets: ClusterOffsets) -> bool:
    """Returns whether the first unprocessed record is older than the topic's first measurement:
    then only a minimum age is known."""
    name, number = lagging.partition
    topic = offsets.get(name)
    times = topic.log_ends.get(lagging.level) if topic is not None else None
    if times is None:
        return True
    return times.bracket(number, lagging.position, lagging.latest).older_s is None


_GROWTH: Final = 4
_MAX_FETCHES: Final = 12
"""Five fetches reach the maximum size; the others skip batches that no consumer gets."""
_MIN_TIMESTAMP_MS: Final = 1_293_840_000_000
"""2011, Kafka's first year. An earlier timestamp is no time of a record: zero, or seconds."""
Outcome = Literal["sampled", "nothing_there", "out_of_range", "forbidden", "unusable", "failed"]
"""Each outcome is counted: see RecordTimeCounts."""
_OUTCOMES: Final[dict[int, Outcome]] = {
    OFFSET_OUT_OF_RANGE: "out_of_range",
    TOPIC_FORBIDDEN: "forbidden",
}


@dataclass(eq=False)
class Search:
    """A search fetches up to `size` bytes from `offset` until it has an `outcome`."""

    lagging: Lagging
    size: int
    """At first the bytes that a batch of the topic usually does not exceed."""
    offset: int = field(init=False)
    outcome: Outcome | None = None
    reason: str = ""
    """Why there is no timestamp."""
    timestamp_ms: int = -1
    """Epoch milliseconds, if the outcome is `sampled`."""
    fetches: int = 0

    def __post_init__(self) -> None:
        self.offset = self.lagging.position

    def take(self, fetched: FetchedPartition) -> None:
        """Continue with what the leader returned for `offset`."""
        self.fetches += 1
        self.outcome, self.reason = self._next(fetched)

    def _next(self, fetched: FetchedPartition) -> tuple[Outcome | None, str]:
        code = fetched.error_code
        if code != NONE:
            reason = f"the leader answers {error_name(code)}"
            return _OUTCOMES.get(code, "failed"), reason
        level = self.lagging.level
        try:
            timestamp_ms, next_offset = fetched.first_record(self.offset, level)
        except RecordsUnreadable as unreadable:
            return "unusable", str(unreadable)
        if timestamp_ms is not None:
            self.timestamp_ms = timestamp_ms
            if timestamp_ms < _MIN_TIMESTAMP_MS:
                return "unusable", f"its timestamp is {timestamp_ms}"
            return "sampled", ""
        if next_offset >= fetched.end_offset(level):
            self.offset = next_offset
            return "nothing_there", "there is no record yet"
        if self.fetches == _MAX_FETCHES:
            return "unusable", f"no record up to offset {next_offset}"
        if next_offset == self.offset and self.size == MAX_BYTES:
            return "unusable", f"a batch of more than {MAX_BYTES} bytes"
        self.offset = next_offset
        self.size = min(MAX_BYTES, _GROWTH * self.size)
        return None, ""
