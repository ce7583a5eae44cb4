"""Which partitions of a query lag, and whether anyone saw their records come. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from aiokafka.structs import TopicPartition
from msgspec import Struct

from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.tracking.query_state import SourceState


class Lagging(Struct, frozen=True, gc=False):  # there are thousands
    """A partition with unprocessed records, the first of them at `position`."""

    partition: TopicPartition
    level: IsolationLevel
    position: int
    latest: LatestOffset
    topic_id: str | None

    @property
    def key(self) -> Hashable:
        """Of the position, as it is read."""
        return self.partition, self.topic_id, self.level, self.position


def lagging_partitions(source: SourceState, offsets: ClusterOffsets) -> Iterator[Lagging | None]:
    """The lagging partitions of a source, and None for each other one.

    A position before the log's start does not lag: the age of lost records is unknown.
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
                # The partition was added: it is read from its first record on.
                position = earliest
            if (
                latest is None
                or position is None
                or latest.offset <= position
                or (earliest is not None and position < earliest)
            ):
                yield None
                continue
            partition = TopicPartition(name, number)
            yield Lagging(partition, level, position, latest, topic.description.topic_id)


def is_older_than_measurements(lagging: Lagging, offsets: ClusterOffsets) -> bool:
    """Whether its record was there before the topic was measured: only a minimum age is known."""
    name, number = lagging.partition
    topic = offsets.get(name)
    times = topic.log_ends.get(lagging.level) if topic is not None else None
    if times is None:
        return True
    return times.bracket(number, lagging.position, lagging.latest).older_s is None
