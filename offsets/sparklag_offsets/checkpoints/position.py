"""What a checkpoint says of its query: values, and how they follow from offsets files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklag_offsets.checkpoints.offset_log import OffsetFile, OffsetLine
from sparklag_schemas import Offsets


@dataclass(frozen=True)
class SourceOffsets:
    """How far a query has read one of its sources."""

    source: int
    """As Spark numbers sources."""
    processed: Offsets | None
    """Topic, partition, next offset. None: not a Kafka source, or nothing is known."""
    planned: Offsets | None
    """Exclusive end of the batch that is planned, where there is one."""
    kafka: bool
    """Whether a line of it had the shape of Kafka's offsets."""


@dataclass(frozen=True)
class CheckpointPosition:
    """Where a query is by its checkpoint. Times are epoch milliseconds by the store's clock."""

    query_id: str
    batch_id: int | None
    """The newest that is committed. None: none yet."""
    planned_batch_id: int | None
    """The newest that is planned and not committed."""
    committed_at_ms: int | None
    planned_at_ms: int | None
    sources: tuple[SourceOffsets, ...]


@dataclass(frozen=True)
class Progress:
    """What is known of the sources of one query, carried from one batch to the next."""

    processed: Mapping[int, Offsets]
    kafka: frozenset[int]
    """Sources that are known to be Kafka."""
    others: frozenset[int]
    """Sources that had a line, and none of Kafka's shape."""
    names: tuple[str, ...] | None = None
    """Of the sources, in their order, where they have names."""

    @property
    def sources(self) -> frozenset[int]:
        return self.kafka | self.others

    def after(self, file: OffsetFile) -> Progress:
        """The same once the batch of `file` is committed. A source without an offset in it stays
        where it was."""
        if file.names is not None and self.names != file.names:
            # What has a number here had another before.
            return Progress({}, frozenset(), frozenset(), file.names).after(file)
        kafka = self.kafka | _kafka_sources(file)
        processed = dict(self.processed)
        for source, line in file.lines.items():
            offsets = _offsets(line, source in kafka)
            if offsets is not None:
                processed[source] = offsets
        return Progress(processed, kafka, (self.others | file.lines.keys()) - kafka, file.names)

    def before(self, file: OffsetFile) -> Progress:
        """The same with what an earlier committed batch says of sources not known yet."""
        earlier = NOTHING.after(file)
        if self.names != earlier.names and self != NOTHING:
            return self
        kafka = self.kafka | earlier.kafka
        return Progress(
            {**earlier.processed, **self.processed},
            kafka,
            (self.others | earlier.others) - kafka,
            earlier.names,
        )

    def may_precede(self, file: OffsetFile) -> bool:
        """Whether `file` names every source there is. Only sources with names ever go."""
        return file.names is not None or self.sources <= file.lines.keys()

    def offsets(self, planned: OffsetFile | None) -> tuple[SourceOffsets, ...]:
        """Of each source, in order."""
        lines = planned.lines if planned is not None else {}
        if planned is not None and self.sources and planned.names != self.names:
            # It is told once its batch is committed, with the new numbers.
            lines = {}
        kafka = self.kafka | frozenset(
            source for source, line in lines.items() if line.kafka is not None
        )
        return tuple(
            SourceOffsets(
                source,
                self.processed.get(source),
                _offsets(lines[source], source in kafka) if source in lines else None,
                source in kafka,
            )
            for source in sorted(self.sources | lines.keys())
        )


NOTHING = Progress({}, frozenset(), frozenset())


def _kafka_sources(file: OffsetFile) -> frozenset[int]:
    return frozenset(source for source, line in file.lines.items() if line.kafka is not None)


def _offsets(line: OffsetLine, is_kafka: bool) -> Offsets | None:
    if line.kafka is None and line.is_empty and is_kafka:
        return {}
    return line.kafka
