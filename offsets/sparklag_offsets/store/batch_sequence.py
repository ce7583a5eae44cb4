"""Turns observations of a query into consecutive records without gaps. Pure.

A batch begins where the batch before it ended. So a batch that was not observed (its driver was
killed, or was cut off until newer ones replaced it) is computed from the records around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from msgspec import structs

from sparklag_offsets.errors import RecordRefused
from sparklag_offsets.store.batch_record import BatchRecord, Range, TopicRanges, encode_ranges
from sparklag_schemas import Observation, SourcePosition
from sparklag_schemas.messages.enumerations import traits_of

TopicIdOf = Callable[[str | None, str], str | None]
"""Takes `bootstrap_servers` of a source and a topic; returns the topic id. None: not known."""

EndOffsets = dict[tuple[int, str], dict[int, int]]
"""The next offsets by source and topic, then partition."""

_PAST_RUNS: Final = 100
"""The limit for each query: a query that fails at once may be restarted for ever."""
_RUN_ENDED_MS: Final = 60_000
"""A run without a record for this long does not hold up another run."""
_LEAP: Final = 1_000
"""The limit of missing batches is this, or one for each millisecond since the last record."""


@dataclass(frozen=True)
class BatchSequence:
    """The end of a query's records: everything that the next record depends on."""

    newest: BatchRecord | None = None
    run_id: str | None = None
    """The last run; records from a checkpoint and inferred records have none."""
    past_runs: tuple[str, ...] = ()
    """The last runs before this one."""
    run_is_unconfirmed: bool = False
    """True: the run follows another and has only one record, which anybody can write."""

    @classmethod
    def ending_with(cls, newest: BatchRecord | None) -> BatchSequence:
        return cls(newest, newest.run_id if newest is not None else None)

    def after(self, records: Sequence[BatchRecord]) -> BatchSequence:
        """The sequence with these records at its end."""
        newest, run_id, past_runs = self.newest, self.run_id, self.past_runs
        is_unconfirmed = self.run_is_unconfirmed
        for record in records:
            newest = record
            if record.run_id is None:
                continue
            is_unconfirmed = run_id not in (None, record.run_id) and record.run_id not in past_runs
            if run_id not in (None, record.run_id):
                past_runs = (*(run for run in past_runs if run != record.run_id), run_id)
            run_id = record.run_id
        return BatchSequence(newest, run_id, past_runs[-_PAST_RUNS:], is_unconfirmed)


class NewRecords(NamedTuple):
    """The records that an observation adds."""

    records: tuple[BatchRecord, ...] = ()
    past_run_id: str | None = None
    """A run that continues although another run has followed it: two drivers run the query, and
    this run is not recorded."""


_NONE = NewRecords()


def next_records(
    observation: Observation, sequence: BatchSequence, topic_id_of: TopicIdOf
) -> NewRecords:
    """The records that follow `sequence`. A repeated observation adds none.

    Raises RecordRefused for a batch number that the query cannot have reached yet.
    """
    batch_id, newest = observation.batch_id, sequence.newest
    has_offsets = any(source.processed for source in observation.sources)
    if batch_id is None or not has_offsets or traits_of(observation.origin).commits_offsets:
        return _NONE
    if newest is None:
        return NewRecords((_record(observation, batch_id, None, topic_id_of),))
    if observation.run_id in sequence.past_runs:
        batch = observation.batch
        # Of two times: a repeated observation may be of a driver whose clock was ahead.
        if batch is None or min(batch.started_at, observation.observed_at) <= newest.observed_at:
            return _NONE
        since_ms = observation.observed_at - newest.observed_at
        if not sequence.run_is_unconfirmed and since_ms <= _RUN_ENDED_MS:
            return NewRecords(past_run_id=observation.run_id)
        return NewRecords((_record(observation, batch_id, newest, topic_id_of, rewinds=True),))
    if batch_id - newest.batch_id > max(_LEAP, observation.observed_at - newest.observed_at):
        raise RecordRefused(
            f"it would be {batch_id - newest.batch_id:,} batches after the last one, which is"
            f" {newest.batch_id:,}: no query is so fast"
        )
    if batch_id > newest.batch_id:
        is_other_run = observation.run_id != sequence.run_id
        if newest.generation and is_other_run and observation.observed_at <= newest.observed_at:
            # A repeated observation of an earlier run, from before the query went back.
            return _NONE
        inferred: tuple[BatchRecord, ...] = ()
        if batch_id > newest.batch_id + 1 and any(source.began for source in observation.sources):
            newest = _inferred(observation, batch_id - 1, newest, topic_id_of)
            inferred = (newest,)
        return NewRecords((*inferred, _record(observation, batch_id, newest, topic_id_of)))
    if _goes_back(observation, batch_id, sequence, newest):
        return NewRecords((_record(observation, batch_id, newest, topic_id_of, rewinds=True),))
    return _NONE


def _goes_back(
    observation: Observation, batch_id: int, sequence: BatchSequence, newest: BatchRecord
) -> bool:
    """Return whether the query has restarted from an earlier batch, which only another run can do.
    If a run contradicts its own last record, somebody else wrote that record."""
    if observation.observed_at <= newest.observed_at:
        return False
    if observation.run_id is None:
        # A checkpoint may be polled late: it only supersedes records of the checkpoint.
        return sequence.run_id is None and batch_id < newest.batch_id
    if observation.run_id == sequence.run_id:
        ends = newest.end_offsets()
        return observation.run_id == newest.run_id and any(
            offset < ends.get(key, {}).get(number, 0)
            for key, offsets in end_offsets_of(observation).items()
            for number, offset in offsets.items()
        )
    if batch_id < newest.batch_id:
        return True
    # A driver repeats its position; after a crash the last batch runs again with the same offsets.
    # A record from a checkpoint may lack offsets of the same batch.
    if newest.run_id is None:
        return False
    recorded = newest.end_offsets()
    ends = end_offsets_of(observation)
    return any(recorded[key] != offsets for key, offsets in ends.items() if key in recorded)


def _inferred(
    observation: Observation, batch_id: int, newest: BatchRecord, topic_id_of: TopicIdOf
) -> BatchRecord:
    """The record of the unobserved batches after `newest`, up to `batch_id`: they end at the start
    of the observed batch."""
    began_at = observation.batch.started_at if observation.batch else observation.observed_at
    ended = structs.replace(
        observation,
        run_id=None,
        processed_at=began_at,
        observed_at=newest.observed_at,
        sources=[
            structs.replace(source, processed=source.began, began=None)
            for source in observation.sources
        ],
    )
    return replace(_record(ended, batch_id, newest, topic_id_of), is_inferred=True)


def _record(
    observation: Observation,
    batch_id: int,
    before: BatchRecord | None,
    topic_id_of: TopicIdOf,
    *,
    rewinds: bool = False,
) -> BatchRecord:
    """The record of `observation`, after `before`; `rewinds`: it starts a new generation."""
    continues = before is not None and not rewinds
    ends_before: EndOffsets = {}
    # Decoding the previous record takes time, and is rarely needed.
    if before is not None and continues and not all(map(_has_all_starts, observation.sources)):
        ends_before = before.end_offsets()
    topics: list[TopicRanges] = []
    for source in observation.sources:
        topics += _topics(source, ends_before, topic_id_of)
    processed_at = observation.processed_at or observation.observed_at
    return BatchRecord(
        query_id=observation.query_id,
        query=observation.query,
        cluster=observation.cluster,
        run_id=observation.run_id,
        generation=before.generation + rewinds if before else 0,
        batch_id=batch_id,
        first_batch_id=before.batch_id + 1 if before is not None and continues else batch_id,
        processed_at=max(processed_at, before.processed_at if before else 0),
        observed_at=observation.observed_at,
        is_inferred=False,
        ranges=encode_ranges(topics),
    )


def _topics(
    source: SourcePosition, before: EndOffsets, topic_id_of: TopicIdOf
) -> Iterator[TopicRanges]:
    """Each range starts at the start of the batch, or else at the end of the previous batch."""
    number, servers, began = source.source, source.bootstrap_servers, source.began or {}
    # A source without data since a restart keeps its position.
    ends = source.processed or {topic: at for (of, topic), at in before.items() if of == number}
    for topic, partitions in sorted(ends.items()):
        starts = {**before.get((number, topic), {}), **began.get(topic, {})}
        ranges: list[Range] = [(p, starts.get(p), partitions[p]) for p in sorted(partitions)]
        topic_id, is_assigned = topic_id_of(servers, topic), source.assigned is not None
        yield TopicRanges(number, topic, topic_id, servers, ranges, is_assigned)


def _has_all_starts(source: SourcePosition) -> bool:
    began = source.began or {}
    return bool(source.processed) and all(
        partitions.keys() <= began.get(topic, {}).keys()
        for topic, partitions in (source.processed or {}).items()
    )


def end_offsets_of(observation: Observation) -> EndOffsets:
    """The next offset of each partition, by source and topic."""
    return {
        (source.source, topic): partitions
        for source in observation.sources
        for topic, partitions in (source.processed or {}).items()
    }
