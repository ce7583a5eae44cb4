"""Spark's `startingOffsets` and `endingOffsets` from a position, checked against the logs. Pure.

Spark requires every existing partition in the JSON, and no other; -2 is earliest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from sparklag_kafka.brokers.log_bounds import TopicBounds
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_offsets.errors import PositionDeleted, TopicChanged
from sparklag_offsets.restore.restore_position import RestorePosition
from sparklag_offsets.store.batch_record import TopicRanges
from sparklag_schemas import Offsets
from sparklag_schemas.printable import first_few

OnDeleted = Literal["error", "earliest", "unchecked"]
"""Where retention has deleted the next records: refuse, or start at the earliest. `unchecked`: send
no request to Kafka; partitions added since are then missing."""

Edge = Literal["starting", "ending"]

EARLIEST: Final = -2


def checked_offsets(
    position: RestorePosition,
    bounds: Mapping[str, TopicBounds],
    edge: Edge,
    on_deleted: OnDeleted,
    topics: Collection[str] | None,
) -> tuple[Offsets, list[str]]:
    """The offsets, checked against the current logs, and warnings. `topics`: what the query is
    to read; None: what it read. Raises PositionDeleted, TopicChanged, KafkaUnavailable."""
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
        """For a partition without a position: a start reads all of it, an end nothing."""
        if self._edge == "starting":
            return EARLIEST
        earliest = bounds.earliest.get(number)
        if earliest is None:
            reason = bounds.reason(number)
            raise KafkaUnavailable(f"{self._shown}: topic {topic}, partition {number}: {reason}")
        return earliest


def unchecked_offsets(position: RestorePosition, topics: Collection[str] | None) -> Offsets:
    """As recorded, of the topics in `topics`."""
    return {
        topic.topic: dict(sorted(topic.end_offsets().items()))
        for topic in sorted(position.topics, key=lambda topic: topic.topic)
        if topics is None or topic.topic in topics
    }
