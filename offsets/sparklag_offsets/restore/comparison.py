"""Compares two queries on the same topics: how far one is behind the other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparklag_offsets.errors import RestoreError, TopicChanged
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_schemas import Offsets


class PartitionComparison(NamedTuple):
    """One partition: next offsets; None where a query has no position in it."""

    topic: str
    partition: int
    first: int | None
    second: int | None

    @property
    def behind(self) -> int | None:
        """How many offsets the second is behind; negative: it is ahead. None: not known."""
        if self.first is None or self.second is None:
            return None
        return self.first - self.second


@dataclass(frozen=True)
class Comparison:
    """Every partition of the topics that both read, or the first alone."""

    partitions: tuple[PartitionComparison, ...]

    @property
    def behind(self) -> int:
        """Offsets that the first has read and the second has not, where both are known."""
        return sum(max(partition.behind or 0, 0) for partition in self.partitions)

    @property
    def unknown(self) -> int:
        """Partitions that the first reads and the second does not, yet."""
        return sum(p.first is not None and p.second is None for p in self.partitions)

    @property
    def caught_up(self) -> bool:
        """Whether the second has read all that the first has."""
        return not self.behind and not self.unknown

    def summary(self, first: str, second: str) -> str:
        """In one line."""
        if self.caught_up:
            return f"{second} has caught up with {first}"
        text = f"{second} is {self.behind:,} records behind {first}"
        if self.unknown:
            text += f", and has no position in {self.unknown} of its partitions"
        return text


def compare(first: BatchRecord, second: BatchRecord) -> Comparison:
    """By topic; of a query that reads a topic twice, the slower source counts.

    Raises RestoreError where they have no topic in common, TopicChanged where the topic was
    created anew between them.
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
        others = other_offsets.get(topic, {})
        compared += [
            PartitionComparison(topic, number, partitions.get(number), others.get(number))
            for number in sorted(partitions.keys() | others.keys())
        ]
    return Comparison(tuple(compared))


def minimum_offsets(positions: Sequence[Offsets]) -> Offsets:
    """The offset of each partition that all of `positions`, at least one, have reached."""
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
