"""The position of a query according to its checkpoint, computed from offsets files. Pure."""

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
    """Topic, partition, next offset. None: not a Kafka source, or not known."""
    planned: Offsets | None
    """Exclusive end of the planned batch, if any."""
    kafka: bool
    """Whether one of its lines had the shape of Kafka offsets."""


@dataclass(frozen=True)
class CheckpointPosition:
    """The position of a query. Times are epoch milliseconds by the store's clock."""

    query_id: str
    batch_id: int | None
    """The newest that is committed. None: none yet."""
    planned_batch_id: int | None
    """The newest that is planned and not committed."""
    committed_at_ms: int | None
    planned_at_ms: int | None
    sources: tuple[SourceOffsets, ...]


@dataclass(frozen=True)
class TrackedSources:
    """The sources of one query, carried from one batch to the next."""

    processed: Mapping[int, Offsets]
    kafka: frozenset[int]
    others: frozenset[int]
    """Sources that had a line, and none of Kafka's shape."""
    names: tuple[str, ...] | None = None
    """Of the sources, in their order, where they have names."""

    @property
    def numbers(self) -> frozenset[int]:
        return self.kafka | self.others

    def after(self, file: OffsetFile) -> TrackedSources:
        """The same once the batch of `file` is committed. A source without an offset in it keeps
        its position."""
        if file.names is not None and self.names != file.names:
            # The numbers now refer to other sources.
            return TrackedSources({}, frozenset(), frozenset(), file.names).after(file)
        kafka = self.kafka | _kafka_sources(file)
        processed = dict(self.processed)
        for source, line in file.lines.items():
            offsets = _offsets(line, source in kafka)
            if offsets is not None:
                processed[source] = offsets
        others = (self.others | file.lines.keys()) - kafka
        return TrackedSources(processed, kafka, others, file.names)

    def before(self, file: OffsetFile) -> TrackedSources:
        """The same with an earlier committed batch added, for sources not known yet."""
        earlier = NO_SOURCES.after(file)
        if self.names != earlier.names and self != NO_SOURCES:
            return self
        kafka = self.kafka | earlier.kafka
        others = (self.others | earlier.others) - kafka
        return TrackedSources({**earlier.processed, **self.processed}, kafka, others, earlier.names)

    def may_precede(self, file: OffsetFile) -> bool:
        """Whether `file` has every source. Only sources with names are ever removed."""
        return file.names is not None or self.numbers <= file.lines.keys()

    def offsets(self, planned: OffsetFile | None) -> tuple[SourceOffsets, ...]:
        """Of each source, in order."""
        lines = planned.lines if planned is not None else {}
        if planned is not None and self.numbers and planned.names != self.names:
            # Its numbers are of other sources: it counts once its batch is committed.
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
            for source in sorted(self.numbers | lines.keys())
        )


NO_SOURCES = TrackedSources({}, frozenset(), frozenset())


def _kafka_sources(file: OffsetFile) -> frozenset[int]:
    return frozenset(source for source, line in file.lines.items() if line.kafka is not None)


def _offsets(line: OffsetLine, is_kafka: bool) -> Offsets | None:
    if line.kafka is None and line.is_empty and is_kafka:
        return {}
    return line.kafka
