"""The position of a query, in the form that restoring it needs. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.errors import BeforeFirstBatch, SourceNotNamed
from sparklag_offsets.store.batch_record import BatchRecord, TopicRanges


@dataclass(frozen=True)
class RestorePosition:
    """The position of a query after a batch. Times are epoch milliseconds."""

    query_id: str
    query: str | None
    batch_id: int
    processed_at: int | None
    topics: tuple[TopicRanges, ...]
    """Their ends are the position; where they start is not used."""

    @property
    def shown(self) -> str:
        """How messages name the query."""
        return f"query {self.query or self.query_id}"

    def of_source(self, source: int | None, topics: Collection[str] | None) -> RestorePosition:
        """The same of one source: the given one, or the only one, or the only one that reads any of
        `topics`. Raises SourceNotNamed."""
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
    return RestorePosition(
        position.query_id, None, position.batch_id, position.committed_at_ms, topics
    )
