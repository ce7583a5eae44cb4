"""Where a query was, as far as putting it back needs to know. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.errors import BeforeFirstBatch, SourceNotNamed
from sparklag_offsets.store.batch_record import BatchRecord


@dataclass(frozen=True)
class TopicPosition:
    """Of one topic of one source."""

    source: int
    topic: str
    offsets: dict[int, int]
    """Next offset by partition."""
    topic_id: str | None = None
    bootstrap_servers: str | None = None
    assigned: bool = False
    """Whether the query names its partitions."""


@dataclass(frozen=True)
class KeptPosition:
    """Where a query was after a batch. Times are epoch milliseconds."""

    query_id: str
    query: str | None
    batch_id: int
    processed_at: int | None
    topics: tuple[TopicPosition, ...]

    @property
    def shown(self) -> str:
        """As messages call the query."""
        return f"query {self.query or self.query_id}"

    def of_source(self, source: int | None, topics: Collection[str] | None) -> KeptPosition:
        """The same of one source: that one, or the only one, or the only one that reads any of
        `topics`. Raises SourceNotNamed."""
        numbers = sorted({topic.source for topic in self.topics})
        if source is not None:
            wanted = [source] if source in numbers else []
        elif topics is not None and len(numbers) > 1:
            wanted = sorted({topic.source for topic in self.topics if topic.topic in topics})
        else:
            wanted = numbers
        if len(wanted) != 1:
            asked = f"no Kafka source {source}" if source is not None else "several Kafka sources"
            listed = "; ".join(f"{number}: {self._topics_of(number)}" for number in numbers)
            raise SourceNotNamed(f"{self.shown} has {asked}: name one of them ({listed})")
        kept = tuple(topic for topic in self.topics if topic.source == wanted[0])
        return KeptPosition(self.query_id, self.query, self.batch_id, self.processed_at, kept)

    def _topics_of(self, source: int) -> str:
        return ", ".join(sorted(t.topic for t in self.topics if t.source == source))


def of_record(record: BatchRecord) -> KeptPosition:
    """After the batch of `record`."""
    topics = (
        TopicPosition(
            topic.source,
            topic.topic,
            topic.until(),
            topic.topic_id,
            topic.bootstrap_servers,
            topic.assigned,
        )
        for topic in record.topics
    )
    return KeptPosition(
        record.query_id, record.query, record.batch_id, record.processed_at, tuple(topics)
    )


def of_checkpoint(position: CheckpointPosition, location: str) -> KeptPosition:
    """After the newest batch that is committed. Raises BeforeFirstBatch where none is."""
    topics = tuple(
        TopicPosition(source.source, topic, offsets)
        for source in position.sources
        for topic, offsets in (source.processed or {}).items()
    )
    if position.batch_id is None or not topics:
        raise BeforeFirstBatch(f"{location}: no batch with a Kafka source is committed there yet")
    return KeptPosition(
        position.query_id, None, position.batch_id, position.committed_at_ms, topics
    )
