"""One position of a query, where its driver and its checkpoint both speak of it. Pure.

Batches are numbered in the checkpoint, and a driver says the same numbers: the position of the
later batch is the newer one, whenever it came. Each covers the other's gap: a driver that was
killed, the first batch after a restart, events that Spark's bus dropped, a batch that runs for an
hour; and a checkpoint that is read only every few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparklag_schemas import Observation
from sparklag_schemas.origins import traits_of
from sparklag_service.tracking.query_state import QueryState, SourceState, fitting

_UNHEARD_MS = 30_000
"""A driver says each ten seconds that its query runs: a batch that completes so long after its last
word is another run's, which no listener speaks of."""


def with_checkpoint(
    known: QueryState, said: Observation, sources: tuple[SourceState, ...]
) -> QueryState:
    """`known`, with what the checkpoint says (`sources` are `said`'s) where that is newer.

    A checkpoint that says less than it said before was set back by somebody: that counts.
    """
    state = replace(
        known,
        # A driver knows the name; a checkpoint only where it lies.
        name=known.name if known.run_id is not None else known.name or said.query,
        observed_at_ms=max(said.observed_at, known.observed_at_ms + 1),
        checkpoint_location=said.checkpoint_location or known.checkpoint_location,
        checkpoint_batch_id=said.batch_id,
    )
    positioned = any(source.processed is not None for source in sources)
    set_back = _order(said.batch_id) < _order(known.checkpoint_batch_id)
    newer = set_back or not known.known or _order(said.batch_id) > _order(known.batch_id)
    if positioned and newer:
        state = replace(
            state,
            origin=said.origin,
            batch_id=said.batch_id,
            processed_at_ms=said.processed_at,
            batch=None,
            sources=_described(sources, known.sources),
        )
        if (said.processed_at or 0) > known.heard_at_ms + _UNHEARD_MS:
            state = replace(state, run_id=None, ended=False, exception=None, other_run_id=None)
    return _with_planned(state, said.planned_batch_id, sources)


def at_newer_position(state: QueryState, known: QueryState) -> QueryState:
    """`state`, by the newest words of a driver, at the position of `known` where that is newer, or
    where they say nothing of one: a query that restarts stands where it stood."""
    from_checkpoint = traits_of(known.origin).is_checkpoint
    behind = from_checkpoint and _order(state.batch_id) < _order(known.batch_id)
    if known.known and (behind or not state.known):
        state = replace(
            state,
            sources=_described(known.sources, state.sources),
            origin=known.origin,
            batch_id=known.batch_id,
            processed_at_ms=known.processed_at_ms,
            batch=known.batch,
        )
    else:
        if state.batch_id is None and known.batch_id is not None:
            state = replace(state, batch_id=known.batch_id, processed_at_ms=known.processed_at_ms)
        state = replace(
            state,
            batch=state.batch or known.batch,
            sources=tuple(_at_least(source, known.sources) for source in state.sources),
        )
    if state.planned_batch_id is None and known.planned_batch_id is not None:
        return _with_planned(state, known.planned_batch_id, known.sources)
    return state


def _described(
    positions: Sequence[SourceState], descriptions: Sequence[SourceState]
) -> tuple[SourceState, ...]:
    """`positions`, with what `descriptions` say of them; those without a position stay as well."""
    found = []
    left = list(descriptions)
    for at in positions:
        described = fitting(left, at.source, {*(at.processed or ()), *(at.planned or ())})
        if described is None:
            # Numbered alike, and all there is to go by.
            described = next((one for one in left if one.source == at.source), None)
        if described is not None:
            left.remove(described)
            processed = at.processed if at.processed is not None else described.processed
            at = replace(described, source=at.source, processed=processed, planned=at.planned)
        found.append(at)
    taken = {at.source for at in found}
    return tuple(found) + tuple(one for one in left if one.source not in taken)


def _at_least(source: SourceState, known: Sequence[SourceState]) -> SourceState:
    """`source`, where it stood if it does not say."""
    if source.processed is not None:
        return source
    stood = next((s.processed for s in known if s.source == source.source), None)
    return replace(source, processed=stood)


def _with_planned(
    state: QueryState, batch_id: int | None, planned: Sequence[SourceState]
) -> QueryState:
    """`state`, with the end of the batch `batch_id` if that is still to be completed."""
    to_come = batch_id is not None and batch_id > _order(state.batch_id)
    ends = {source.source: source.planned for source in planned} if to_come else {}
    return replace(
        state,
        planned_batch_id=batch_id if to_come else None,
        sources=tuple(replace(s, planned=ends.get(s.source)) for s in state.sources),
    )


def _order(batch_id: int | None) -> int:
    return -1 if batch_id is None else batch_id
