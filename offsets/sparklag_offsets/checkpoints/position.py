"""The position of a query according to its checkpoint, how it changes between polls, and its lag.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparklag_offsets.checkpoints.files import FileInfo, Listing
from sparklag_offsets.checkpoints.offset_log import OffsetFile, OffsetLine
from sparklag_schemas import Offsets, SourcePosition

if TYPE_CHECKING:
    from sparklag_kafka.brokers.logs import TopicBounds


@dataclass(frozen=True)
class CheckpointPosition:
    """The position of a query. Times are epoch milliseconds by the store's clock."""

    query_id: str
    """Empty: unknown, for the reason in `id_problem`."""
    batch_id: int | None
    """The newest committed batch. None: none yet."""
    planned_batch_id: int | None
    """The newest batch that is planned and not committed."""
    committed_at_ms: int | None
    planned_at_ms: int | None
    sources: tuple[SourcePosition, ...]
    """All sources; those that are not Kafka's have no offsets."""
    kafka: frozenset[int]
    """Numbers of the sources that had a line with the shape of Kafka offsets."""
    id_problem: str | None = None

    def kafka_sources(self) -> list[SourcePosition]:
        """The Kafka sources alone."""
        return [source for source in self.sources if source.source in self.kafka]

    def topics(self) -> set[str]:
        """Every topic with a processed or a planned offset."""
        return {
            topic
            for source in self.sources
            for offsets in (source.processed, source.planned)
            for topic in offsets or {}
        }


@dataclass(frozen=True)
class SourceLag:
    """The lag of one source's processed offsets. None: not known, and `reasons` has the reason."""

    latest: dict[str, dict[int, int | None]]
    lag: dict[str, dict[int, int | None]]
    reasons: dict[str, dict[int, str]]


def lag_of(processed: Offsets | None, bounds: Mapping[str, TopicBounds]) -> SourceLag:
    """Latest minus processed. A negative lag is None: the topic was recreated."""
    result = SourceLag({}, {}, {})
    for topic, partitions in (processed or {}).items():
        topic_bounds = bounds[topic]
        ends = result.latest[topic] = {}
        lags = result.lag[topic] = {}
        for partition, offset in partitions.items():
            latest = topic_bounds.latest.get(partition)
            ends[partition], lags[partition] = latest, None
            if latest is None:
                result.reasons.setdefault(topic, {})[partition] = topic_bounds.reason(partition)
            elif latest < offset:
                reason = "its log ends before the processed offset: the topic was recreated"
                result.reasons.setdefault(topic, {})[partition] = reason
            else:
                lags[partition] = latest - offset
    return result


@dataclass(frozen=True)
class TrackedSources:
    """The sources of one query, carried from one batch to the next."""

    processed: Mapping[int, Offsets]
    kafka: frozenset[int]
    others: frozenset[int]
    """Sources that had lines, but none in the shape of Kafka offsets."""
    names: tuple[str, ...] | None = None
    """Names of the sources, in their order, where they have names."""

    @property
    def numbers(self) -> frozenset[int]:
        return self.kafka | self.others

    def after(self, file: OffsetFile) -> TrackedSources:
        """The sources once the batch of `file` is committed. A source without an offset in it
        keeps its position."""
        if file.names is not None and self.names != file.names:
            # The numbers now refer to other sources.
            return TrackedSources({}, frozenset(), frozenset(), file.names).after(file)
        kafka = self.kafka | file.kafka_sources()
        processed = dict(self.processed)
        for source, line in file.lines.items():
            offsets = _offsets(line, source in kafka)
            if offsets is not None:
                processed[source] = offsets
        others = (self.others | file.lines.keys()) - kafka
        return TrackedSources(processed, kafka, others, file.names)

    def before(self, file: OffsetFile) -> TrackedSources:
        """The sources, with positions from an earlier committed batch for those without one yet."""
        earlier = NO_SOURCES.after(file)
        if self.names != earlier.names and self != NO_SOURCES:
            return self
        kafka = self.kafka | earlier.kafka
        others = (self.others | earlier.others) - kafka
        return TrackedSources({**earlier.processed, **self.processed}, kafka, others, earlier.names)

    def may_precede(self, file: OffsetFile) -> bool:
        """Return whether `file` has every source. Only sources with names are ever removed."""
        return file.names is not None or self.numbers <= file.lines.keys()

    def positions(
        self, planned: OffsetFile | None
    ) -> tuple[tuple[SourcePosition, ...], frozenset[int]]:
        """The positions of the sources, in order, and which of them are Kafka's."""
        if planned is None or (self.numbers and planned.names != self.names):
            # Its numbers refer to other sources: it is used once its batch is committed.
            planned = OffsetFile({})
        kafka, lines = self.kafka | planned.kafka_sources(), planned.lines
        positions = (
            SourcePosition(
                source=source,
                processed=self.processed.get(source),
                planned=_offsets(lines[source], source in kafka) if source in lines else None,
            )
            for source in sorted(self.numbers | lines.keys())
        )
        return tuple(positions), kafka


NO_SOURCES = TrackedSources({}, frozenset(), frozenset())


def _offsets(line: OffsetLine, is_kafka: bool) -> Offsets | None:
    if line.kafka is None and line.is_empty and is_kafka:
        return {}
    return line.kafka


CommitFile = tuple[int, FileInfo]
"""A committed batch, and its file."""


@dataclass(frozen=True)
class Snapshot:
    """The state after the polls so far."""

    query_id: str
    id_problem: str | None = None
    commit: CommitFile | None = None
    """The newest."""
    sources: TrackedSources = NO_SOURCES
    planned_batch_id: int | None = None
    planned_at_ms: int | None = None
    planned: OffsetFile | None = None
    is_continuous: bool = False
    has_gaps: bool = False
    """The next batch's number cannot be guessed: progress is tracked asynchronously."""
    newest_offsets: tuple[int, FileInfo | None] | None = None
    """The newest file in the last listing of the offsets log."""

    @property
    def batch_id(self) -> int | None:
        return self.commit[0] if self.commit is not None else None

    def position(self) -> CheckpointPosition:
        return CheckpointPosition(
            self.query_id,
            self.batch_id,
            self.planned_batch_id,
            self.commit[1].modified_ms if self.commit is not None else None,
            self.planned_at_ms,
            *self.sources.positions(self.planned),
            self.id_problem,
        )

    def after_commit(self, commit: CommitFile, file: OffsetFile) -> Snapshot:
        """The state one batch or several later."""
        return replace(
            self.without_plan(),
            commit=commit,
            sources=self.sources.after(file),
            is_continuous=file.is_continuous,
        )

    def without_plan(self) -> Snapshot:
        return replace(self, planned_batch_id=None, planned_at_ms=None, planned=None)

    def is_continued_by(self, commits: Listing, newest: CommitFile | None) -> bool:
        """Return whether these commits must be of this query, as its last commit is unchanged."""
        if self.commit is None or newest is None or newest[0] < self.commit[0]:
            return False
        return newest == self.commit or commits.info(self.commit[0]) == self.commit[1]


def newest_file(listing: Listing) -> tuple[int, FileInfo | None] | None:
    """The newest batch and its file."""
    batch_ids = listing.batch_ids
    return (batch_ids[-1], listing.info(batch_ids[-1])) if batch_ids else None


def newest_commit(commits: Listing, planned: set[int] | None = None) -> CommitFile | None:
    """The newest commit; an empty file is not written yet. `planned`: only these batches."""
    for batch_id in reversed(commits.batch_ids):
        if planned is None or batch_id in planned:
            info = commits.info(batch_id)
            if info is not None and info.size != 0:
                return batch_id, info
    return None


def leaves_gaps(commits: Listing) -> bool:
    """Return whether batches are missing between the newest two."""
    batch_ids = commits.batch_ids
    return len(batch_ids) > 1 and batch_ids[-1] - batch_ids[-2] > 1
