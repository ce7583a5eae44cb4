"""Positions to restore, checked against the logs, and the comparison of two queries. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from sparklag_kafka.brokers.logs import TopicBounds
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.errors import (
    BeforeFirstBatch,
    PositionDeleted,
    RestoreError,
    SourceNotNamed,
    TopicChanged,
)
from sparklag_offsets.store.batch_record import BatchRecord, TopicRanges
from sparklag_schemas import Offsets
from sparklag_schemas.text.printable import first_few


@dataclass(frozen=True)
class RestorePosition:
    """The position of a query after a batch. Times are epoch milliseconds."""

    query_id: str
    query: str | None
    batch_id: int
    processed_at: int | None
    topics: tuple[TopicRanges, ...]
    """The ends of these ranges are the position; their starts are not used."""

    @property
    def shown(self) -> str:
        """The query's name in messages."""
        return f"query {self.query or self.query_id}"

    def of_source(self, source: int | None, topics: Collection[str] | None) -> RestorePosition:
        """The position of one source: the given one, the only one, or the only one that reads any
        of `topics`. Raises SourceNotNamed."""
        sources = sorted({topic.source for topic in self.topics})
        if source is not None:
            matching = [source] if source in sources else []
        elif topics is not None and len(sources) > 1:
            matching = sorted({topic.source for topic in self.topics if topic.topic in topics})
        else:
            matching = sources
        if len(matching) != 1:
            problem = f"no Kafka source {source}" if source is not None else "several Kafka sources"
            listed = "; ".join(f"{number}: {self._topics_of(number)}" for number in sources)
            raise SourceNotNamed(f"{self.shown} has {problem}: name one of them ({listed})")
        return replace(self, topics=tuple(t for t in self.topics if t.source == matching[0]))

    def _topics_of(self, source: int) -> str:
        return ", ".join(sorted(t.topic for t in self.topics if t.source == source))


def position_of_record(record: BatchRecord) -> RestorePosition:
    """The position after the batch of `record`."""
    return RestorePosition(
        record.query_id, record.query, record.batch_id, record.processed_at, tuple(record.topics)
    )


def position_of_checkpoint(position: CheckpointPosition, location: str) -> RestorePosition:
    """The position after the newest committed batch. Raises BeforeFirstBatch without one."""
    topics = tuple(
        TopicRanges(source.source, topic, None, None, [(p, None, end) for p, end in ends.items()])
        for source in position.sources
        for topic, ends in (source.processed or {}).items()
    )
    if position.batch_id is None or not topics:
        raise BeforeFirstBatch(f"{location}: no batch with a Kafka source is committed there yet")
    name = None if position.query_id else f"of {location}"
    return RestorePosition(
        position.query_id, name, position.batch_id, position.committed_at_ms, topics
    )


OnDeleted = Literal["error", "earliest", "unchecked"]
"""The action where retention has deleted the next records: refuse, or start at the earliest
offset. `unchecked`: send no request to Kafka; partitions added since are then missing."""
Edge = Literal["starting", "ending"]
EARLIEST: Final = -2


def checked_offsets(
    position: RestorePosition,
    bounds: Mapping[str, TopicBounds],
    edge: Edge,
    on_deleted: OnDeleted,
    topics: Collection[str] | None,
) -> tuple[Offsets, list[str]]:
    """The offsets, checked against the current logs, and warnings. `topics`: those of the new
    query; None: the recorded topics. Raises PositionDeleted, TopicChanged, KafkaUnavailable."""
    check = _Check(position.shown, edge)
    recorded = {topic.topic: topic for topic in position.topics}
    offsets = {
        topic: check.topic(topic, recorded.get(topic), bounds[topic])
        for topic in sorted(recorded if topics is None else topics)
    }
    if not check.deleted:
        return offsets, []
    deleted = first_few(check.deleted, rest="more partitions")
    text = f"{position.shown}: retention has deleted records after the recorded position: {deleted}"
    if on_deleted == "error":
        raise PositionDeleted(
            f"{text}; on_deleted='earliest' starts at the earliest offset, and loses them"
        )
    return offsets, [f"{text}; they are lost"]


class _Check:
    def __init__(self, shown: str, edge: Edge) -> None:
        self._shown = shown
        self._edge = edge
        self.deleted: list[str] = []

    def topic(
        self, topic: str, recorded: TopicRanges | None, bounds: TopicBounds
    ) -> dict[int, int]:
        if bounds.absence is not None:
            raise TopicChanged(f"{self._shown}: topic {topic}: {bounds.absence}")
        if recorded is None:
            return {number: self._first(topic, number, bounds) for number in bounds.partitions}
        if recorded.topic_id is not None and bounds.topic_id not in (None, recorded.topic_id):
            raise TopicChanged(
                f"{self._shown}: topic {topic} was recreated since: the recorded offsets are of"
                f" the earlier topic (topic id {recorded.topic_id}, now {bounds.topic_id})"
            )
        offsets = {
            number: self._partition(topic, number, offset, bounds)
            for number, offset in recorded.end_offsets().items()
        }
        if not recorded.assigned:
            for number in bounds.partitions:
                if number not in offsets:
                    offsets[number] = self._first(topic, number, bounds)
        return dict(sorted(offsets.items()))

    def _partition(self, topic: str, number: int, offset: int, bounds: TopicBounds) -> int:
        shown = f"{self._shown}: topic {topic}, partition {number}"
        earliest, latest = bounds.earliest.get(number), bounds.latest.get(number)
        if number not in bounds.partitions:
            raise TopicChanged(f"{shown}: {bounds.reason(number)}: it was recreated since")
        if earliest is None or latest is None:
            raise KafkaUnavailable(f"{shown}: cannot check its position: {bounds.reason(number)}")
        if offset > latest:
            raise TopicChanged(
                f"{shown}: its log ends at {latest:,}, before the recorded position, {offset:,}: it"
                " was recreated since, or lost its end"
            )
        if offset >= earliest:
            return offset
        self.deleted.append(f"{topic}[{number}] {earliest - offset:,} records")
        return EARLIEST if self._edge == "starting" else earliest

    def _first(self, topic: str, number: int, bounds: TopicBounds) -> int:
        """The offset of a partition without a position: a start reads all of it, an end nothing."""
        if self._edge == "starting":
            return EARLIEST
        earliest = bounds.earliest.get(number)
        if earliest is None:
            reason = bounds.reason(number)
            raise KafkaUnavailable(f"{self._shown}: topic {topic}, partition {number}: {reason}")
        return earliest


def unchecked_offsets(position: RestorePosition, topics: Collection[str] | None) -> Offsets:
    """The recorded offsets of the topics in `topics`."""
    return {
        topic.topic: dict(sorted(topic.end_offsets().items()))
        for topic in sorted(position.topics, key=lambda topic: topic.topic)
        if topics is None or topic.topic in topics
    }


class PartitionComparison(NamedTuple):
    """The next offsets of one partition; None where a query has no position in it."""

    topic: str
    partition: int
    first: int | None
    second: int | None

    @property
    def behind(self) -> int | None:
        """The offsets that the second query is behind; negative: it is ahead. None: not known."""
        if self.first is None or self.second is None:
            return None
        return self.first - self.second


@dataclass(frozen=True)
class Comparison:
    """The partitions of every topic that both queries read, or only the first."""

    partitions: tuple[PartitionComparison, ...]

    @property
    def behind(self) -> int:
        """Offsets that the first has read and the second has not, in partitions that both read."""
        return sum(max(partition.behind or 0, 0) for partition in self.partitions)

    @property
    def unknown(self) -> int:
        """Partitions that the first reads and the second does not read yet."""
        return sum(p.first is not None and p.second is None for p in self.partitions)

    @property
    def caught_up(self) -> bool:
        """True: the second has read everything that the first has read."""
        return not self.behind and not self.unknown

    def summary(self, first: str, second: str) -> str:
        if self.caught_up:
            return f"{second} has caught up with {first}"
        text = f"{second} is {self.behind:,} records behind {first}"
        if self.unknown:
            text += f", and has no position in {self.unknown} of its partitions"
        return text


def compare(first: BatchRecord, second: BatchRecord) -> Comparison:
    """Compare by topic; the slower source counts where a query reads a topic twice.

    Raises RestoreError where they have no topic in common, TopicChanged where a topic was recreated
    between them.
    """
    offsets, other_offsets = (
        minimum_offsets([{topic.topic: topic.end_offsets()} for topic in record.topics])
        for record in (first, second)
    )
    if not offsets.keys() & other_offsets.keys():
        raise RestoreError(
            f"{first.query or first.query_id} and {second.query or second.query_id} have no topic"
            f" in common: {', '.join(sorted(offsets))}; {', '.join(sorted(other_offsets))}"
        )
    ids, other_ids = _topic_ids(first), _topic_ids(second)
    for topic in sorted(ids.keys() & other_ids.keys()):
        if ids[topic] != other_ids[topic]:
            raise TopicChanged(
                f"topic {topic} was recreated between the two positions: their offsets cannot be"
                " compared"
            )
    compared = []
    for topic, partitions in sorted(offsets.items()):
        other_partitions = other_offsets.get(topic, {})
        compared += [
            PartitionComparison(topic, number, partitions.get(number), other_partitions.get(number))
            for number in sorted(partitions.keys() | other_partitions.keys())
        ]
    return Comparison(tuple(compared))


def minimum_offsets(positions: Sequence[Offsets]) -> Offsets:
    """The smallest offset of each partition in `positions`, which has at least one item."""
    if len(positions) == 1:
        return positions[0]
    minimum: Offsets = {}
    for offsets in positions:
        for topic, partitions in offsets.items():
            of_topic = minimum.setdefault(topic, {})
            for number, offset in partitions.items():
                of_topic[number] = min(offset, of_topic.get(number, offset))
    return minimum


def _topic_ids(record: BatchRecord) -> dict[str, str]:
    return {topic.topic: topic.topic_id for topic in record.topics if topic.topic_id is not None}
