"""How what is observed of a query becomes its records, one after the other without a hole. Pure.

A query's batches follow each other: one begins where the one before it ended. So a batch that
nobody told of (its driver was killed, or could not say it for so long that newer ones came first)
is known all the same, from the records before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparklag_offsets.store.batch_record import BatchRecord, Place, Range, TopicRanges, written
from sparklag_schemas import Observation, Offsets, SourcePosition
from sparklag_schemas.origins import traits_of

TopicIdOf = Callable[[str | None, str], str | None]
"""`bootstrap_servers` of a source, and a topic, to Kafka's id of it. None: not known."""

Ends = Mapping[tuple[int, str], Mapping[int, int]]
"""By source and topic, then partition."""


@dataclass(frozen=True)
class Chain:
    """The records of a query, as far as the next one depends on them."""

    newest: BatchRecord | None = None
    run_id: str | None = None
    """The last run that spoke: a checkpoint, and what lies in between, name none."""
    past_runs: frozenset[str] = frozenset()
    """Those that were followed by it."""

    @classmethod
    def ending_with(cls, newest: BatchRecord | None) -> Chain:
        return cls(newest, newest.run_id if newest is not None else None)

    def after(self, records: Sequence[BatchRecord]) -> Chain:
        """The same with these at its end."""
        newest, run_id, past_runs = self.newest, self.run_id, self.past_runs
        for record in records:
            newest = record
            if record.run_id is None or record.run_id == run_id:
                continue
            if run_id is not None:
                past_runs |= {run_id}
            run_id = record.run_id
        return Chain(newest, run_id, past_runs)


class Link(NamedTuple):
    """What an observation adds to its query's records."""

    records: tuple[BatchRecord, ...] = ()
    past_run_id: str | None = None
    """The run that goes on though another has followed it: two drivers run the query, and what this
    one says is not recorded."""


_NOTHING = Link()


def link(observation: Observation, chain: Chain, topic_id_of: TopicIdOf) -> Link:
    """What comes after `chain`. Repeating an observation adds nothing."""
    batch_id, newest = observation.batch_id, chain.newest
    is_anywhere = any(source.processed for source in observation.sources)
    if batch_id is None or not is_anywhere or traits_of(observation.origin).commits_offsets:
        return _NOTHING
    if newest is None:
        return Link((_record(observation, batch_id, None, topic_id_of),))
    if observation.run_id in chain.past_runs:
        batch = observation.batch
        beside = batch is not None and batch.started_at > newest.observed_at
        return Link(past_run_id=observation.run_id) if beside else _NOTHING
    if batch_id > newest.batch_id:
        if _is_of_before(observation, chain, newest):
            return _NOTHING
        return Link(_forward(observation, batch_id, newest, topic_id_of))
    if _goes_back(observation, batch_id, chain, newest):
        return Link((_record(observation, batch_id, newest, topic_id_of, back=True),))
    return _NOTHING


def _is_of_before(observation: Observation, chain: Chain, newest: BatchRecord) -> bool:
    """Whether it is a repeated word of a run before the query went back, which had come further."""
    return (
        newest.place.generation > 0
        and observation.run_id != chain.run_id
        and observation.observed_at <= newest.observed_at
    )


def _goes_back(observation: Observation, batch_id: int, chain: Chain, newest: BatchRecord) -> bool:
    """Whether the query has begun again from an earlier batch: only another run can."""
    if observation.observed_at <= newest.observed_at:
        return False
    if observation.run_id is None:
        # A checkpoint may be looked at late, or written seldom: it counts against itself only.
        return chain.run_id is None and batch_id < newest.batch_id
    if observation.run_id == chain.run_id:
        return False
    if batch_id < newest.batch_id:
        return True
    # A driver repeats where it is; the last batch is run again after a crash, as it was planned.
    # Who looked at a checkpoint may have known less of the same batch.
    return newest.run_id is not None and _differs(ends_of(observation), newest.until())


def _differs(ends: Ends, others: Ends) -> bool:
    return any(others[where] != at for where, at in ends.items() if where in others)


def _forward(
    observation: Observation, batch_id: int, newest: BatchRecord, topic_id_of: TopicIdOf
) -> tuple[BatchRecord, ...]:
    missing = batch_id - newest.batch_id - 1
    if missing and any(source.began for source in observation.sources):
        between = _between(observation, batch_id - 1, newest, topic_id_of)
        return between, _record(observation, batch_id, between, topic_id_of)
    return (_record(observation, batch_id, newest, topic_id_of),)


def _between(
    observation: Observation, batch_id: int, newest: BatchRecord, topic_id_of: TopicIdOf
) -> BatchRecord:
    """The batches after `newest`, up to and with `batch_id`, that nobody told of."""
    before = newest.until()
    topics = []
    for source in observation.sources:
        # Of what had nothing in this batch, nothing is known since.
        ends = source.began or _of_source(source, before)
        topics += _topics(source, ends, None, before, topic_id_of)
    began_at = observation.batch.started_at if observation.batch else observation.observed_at
    return BatchRecord(
        query_id=observation.query_id,
        query=observation.query,
        cluster=observation.cluster,
        run_id=None,
        place=Place(newest.place.generation, batch_id),
        first_batch_id=newest.batch_id + 1,
        # Before the next began: when exactly, nobody knows.
        processed_at=max(newest.processed_at, began_at),
        observed_at=newest.observed_at,
        is_inferred=True,
        ranges=written(topics),
    )


def _record(
    observation: Observation,
    batch_id: int,
    before: BatchRecord | None,
    topic_id_of: TopicIdOf,
    *,
    back: bool = False,
) -> BatchRecord:
    """A record of what `observation` says, after `before`; `back`: it begins anew there."""
    continues = before is not None and not back
    says_all = all(_says_where_it_began(source) for source in observation.sources)
    # Read from its text: not where nobody asks for it, which is nearly always.
    ends_before = before.until() if before is not None and continues and not says_all else {}
    topics = []
    for source in observation.sources:
        # Of what is not known since a restart: it is where it was.
        ends = source.processed or _of_source(source, ends_before)
        topics += _topics(source, ends, source.began, ends_before, topic_id_of)
    processed_at = observation.processed_at or observation.observed_at
    return BatchRecord(
        query_id=observation.query_id,
        query=observation.query,
        cluster=observation.cluster,
        run_id=observation.run_id,
        place=Place(before.place.generation + back if before else 0, batch_id),
        first_batch_id=before.batch_id + 1 if before is not None and continues else batch_id,
        processed_at=max(processed_at, before.processed_at if before else 0),
        observed_at=observation.observed_at,
        is_inferred=False,
        ranges=written(topics),
    )


def _topics(
    source: SourcePosition,
    ends: Offsets,
    began: Offsets | None,
    before: Ends,
    topic_id_of: TopicIdOf,
) -> list[TopicRanges]:
    """From where the batch began by its own account, or else from where the one before ended."""
    found = []
    for topic, partitions in sorted(ends.items()):
        begins = {**before.get((source.source, topic), {}), **(began or {}).get(topic, {})}
        numbers = sorted(partitions)
        untils = map(partitions.__getitem__, numbers)
        ranges: list[Range] = list(zip(numbers, map(begins.get, numbers), untils, strict=True))
        found.append(
            TopicRanges(
                source.source,
                topic,
                topic_id_of(source.bootstrap_servers, topic),
                source.bootstrap_servers,
                ranges,
                source.assigned is not None,
            )
        )
    return found


def _of_source(source: SourcePosition, ends: Ends) -> Offsets:
    return {topic: dict(at) for (number, topic), at in ends.items() if number == source.source}


def _says_where_it_began(source: SourcePosition) -> bool:
    """Of each partition that it says an end of."""
    began = source.began or {}
    return bool(source.processed) and all(
        partitions.keys() <= began.get(topic, {}).keys()
        for topic, partitions in (source.processed or {}).items()
    )


def ends_of(observation: Observation) -> dict[tuple[int, str], dict[int, int]]:
    """By source and topic: the next offset of each partition."""
    return {
        (source.source, topic): partitions
        for source in observation.sources
        for topic, partitions in (source.processed or {}).items()
    }
