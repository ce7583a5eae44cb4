"""Two queries on the same topics: how far one is behind the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sparklag_offsets.errors import RestoreError, TopicChanged
from sparklag_offsets.lowest import lowest
from sparklag_offsets.store.batch_record import BatchRecord


class Compared(NamedTuple):
    """One partition: next offsets; None where a query has no position in it."""

    topic: str
    partition: int
    first: int | None
    second: int | None

    @property
    def behind(self) -> int | None:
        """How many offsets the second is behind; below 0: it is ahead. None: not known."""
        if self.first is None or self.second is None:
            return None
        return self.first - self.second


@dataclass(frozen=True)
class Comparison:
    """Every partition of the topics that both read, or the first alone."""

    partitions: tuple[Compared, ...]

    @property
    def behind(self) -> int:
        """Offsets that the first has read and the second has not, where both positions are
        known."""
        return sum(max(place.behind or 0, 0) for place in self.partitions)

    @property
    def unknown(self) -> int:
        """Partitions that the first reads and the second does not, yet."""
        return sum(place.first is not None and place.second is None for place in self.partitions)

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
    """By topic: a query that reads one twice is where the slower of its sources is.

    Raises RestoreError where they have no topic in common, TopicChanged where one of them read it
    in an earlier life.
    """
    one, other = (lowest([{t.topic: t.until()} for t in r.topics]) for r in (first, second))
    if not one.keys() & other.keys():
        raise RestoreError(
            f"{first.query or first.query_id} and {second.query or second.query_id} have no topic"
            f" in common: {', '.join(sorted(one))}; {', '.join(sorted(other))}"
        )
    ids, other_ids = _topic_ids(first), _topic_ids(second)
    for topic in sorted(ids.keys() & other_ids.keys()):
        if ids[topic] != other_ids[topic]:
            raise TopicChanged(
                f"topic {topic} was created anew between the two positions: their offsets cannot be"
                " compared"
            )
    return Comparison(
        tuple(
            Compared(topic, partition, at.get(partition), other.get(topic, {}).get(partition))
            for topic, at in sorted(one.items())
            for partition in sorted(at.keys() | other.get(topic, {}).keys())
        )
    )


def _topic_ids(record: BatchRecord) -> dict[str, str]:
    return {topic.topic: topic.topic_id for topic in record.topics if topic.topic_id is not None}
