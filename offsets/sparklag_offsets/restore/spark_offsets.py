"""Spark's `startingOffsets` and `endingOffsets` from a kept position, and what of it the logs still
have. Pure.

Spark wants every partition that there is in the JSON, and none besides: -2 is earliest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from sparklag_kafka.brokers.log_bounds import TopicBounds
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_offsets.errors import PositionDeleted, TopicChanged
from sparklag_offsets.restore.kept_position import KeptPosition, TopicPosition
from sparklag_schemas import Offsets
from sparklag_schemas.printable import first_few

OnDeleted = Literal["error", "earliest", "unchecked"]
"""Where retention has deleted what comes next: refuse, or begin with what is left. `unchecked`:
Kafka is not asked, and partitions that were added since are not known."""

Edge = Literal["starting", "ending"]

EARLIEST: Final = -2


def checked(
    position: KeptPosition,
    bounds: Mapping[str, TopicBounds],
    edge: Edge,
    on_deleted: OnDeleted,
    topics: Collection[str] | None,
) -> tuple[Offsets, list[str]]:
    """The offsets, held against the logs as they are now, and warnings. `topics`: what the query is
    to read; None: what it read. Raises PositionDeleted, TopicChanged, KafkaUnavailable."""
    check = _Check(position.shown, edge)
    kept = {topic.topic: topic for topic in position.topics}
    offsets = {
        topic: check.topic(topic, kept.get(topic), bounds[topic])
        for topic in sorted(kept if topics is None else topics)
    }
    lost = check.lost()
    if lost is None:
        return offsets, []
    if on_deleted == "error":
        raise PositionDeleted(
            f"{lost}; on_deleted='earliest' begins with what is left, and loses them"
        )
    return offsets, [f"{lost}; they are lost"]


class _Check:
    def __init__(self, shown: str, edge: Edge) -> None:
        self._shown = shown
        self._edge = edge
        self._deleted: list[str] = []

    def topic(self, topic: str, kept: TopicPosition | None, bounds: TopicBounds) -> dict[int, int]:
        if bounds.absence is not None:
            raise TopicChanged(f"{self._shown}: topic {topic}: {bounds.absence}")
        if kept is None:
            return {number: self._first(topic, number, bounds) for number in bounds.partitions}
        if kept.topic_id is not None and bounds.topic_id not in (None, kept.topic_id):
            raise TopicChanged(
                f"{self._shown}: topic {topic} was created anew since: the offsets kept are of its"
                f" earlier life (topic id {kept.topic_id}, now {bounds.topic_id})"
            )
        found = {
            number: self._partition(topic, number, offset, bounds)
            for number, offset in kept.offsets.items()
        }
        if not kept.assigned:
            for number in bounds.partitions:
                if number not in found:
                    found[number] = self._first(topic, number, bounds)
        return dict(sorted(found.items()))

    def _partition(self, topic: str, number: int, offset: int, bounds: TopicBounds) -> int:
        where = f"{self._shown}: topic {topic}, partition {number}"
        earliest, latest = bounds.earliest.get(number), bounds.latest.get(number)
        if number not in bounds.partitions:
            raise TopicChanged(f"{where}: {bounds.reason(number)}: it was created anew since")
        if earliest is None or latest is None:
            raise KafkaUnavailable(
                f"{where}: nobody knows whether its position is still there:"
                f" {bounds.reason(number)}"
            )
        if offset > latest:
            raise TopicChanged(
                f"{where}: its log ends at {latest:,}, before the position kept, {offset:,}: it was"
                " created anew since, or lost its end"
            )
        if offset >= earliest:
            return offset
        self._deleted.append(f"{topic}[{number}] {earliest - offset:,} records")
        return EARLIEST if self._edge == "starting" else earliest

    def _first(self, topic: str, number: int, bounds: TopicBounds) -> int:
        """Of a partition without a position: everything is new, and nothing was in the window."""
        if self._edge == "starting":
            return EARLIEST
        earliest = bounds.earliest.get(number)
        if earliest is None:
            reason = bounds.reason(number)
            raise KafkaUnavailable(f"{self._shown}: topic {topic}, partition {number}: {reason}")
        return earliest

    def lost(self) -> str | None:
        """What retention has deleted, in one line."""
        if not self._deleted:
            return None
        named = first_few(self._deleted, rest="more partitions")
        return f"{self._shown}: retention has deleted records after the position kept: {named}"


def unchecked(position: KeptPosition, topics: Collection[str] | None) -> Offsets:
    """As it was kept, of the topics that are wanted."""
    return {
        topic.topic: dict(sorted(topic.offsets.items()))
        for topic in sorted(position.topics, key=lambda topic: topic.topic)
        if topics is None or topic.topic in topics
    }
