"""One position of a query from two sources: its driver and its checkpoint. Pure.

Both use the batch numbers of the checkpoint: the position of the later batch is the newer one,
whenever it came. Each covers the other's gap: a driver that was killed, the first batch after a
restart, events that Spark's bus dropped, a batch that runs for an hour; and a checkpoint that is
read only every few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sparklag_schemas import Observation
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_service.tracking.query_state import QueryState, SourceState, fitting

_UNHEARD_MS = 30_000
"""A driver sends a message every ten seconds: a batch that completes so long after the last one is
of another run, which no listener observes."""

_LEAP = 1_000
"""Batches: a checkpoint is not read so late."""


def with_checkpoint(
    current: QueryState, observation: Observation, sources: tuple[SourceState, ...]
) -> QueryState:
    """`current`, at the checkpoint's position (`sources` of `observation`) where that is newer.

    A checkpoint with an earlier batch than before was set back by somebody: that counts as newer.
    """
    state = replace(
        current,
        # A driver reports the name; a checkpoint has only its location.
        query=current.query if current.run_id is not None else current.query or observation.query,
        observed_at=max(observation.observed_at, current.observed_at + 1),
        checkpoint_location=observation.checkpoint_location or current.checkpoint_location,
        checkpoint_batch_id=observation.batch_id,
    )
    positioned = any(source.processed is not None for source in sources)
    set_back = _order(observation.batch_id) < _order(current.checkpoint_batch_id)
    is_unheard = (observation.processed_at or 0) > current.driver_seen_at_ms + _UNHEARD_MS
    newer = (
        set_back
        or not current.has_position
        or _order(observation.batch_id) > _order(current.batch_id)
        # A driver that wrote of a batch so far ahead, and nothing since, was none.
        or (is_unheard and _order(current.batch_id) - _order(observation.batch_id) > _LEAP)
    )
    if positioned and newer:
        state = replace(
            state,
            origin=observation.origin,
            batch_id=observation.batch_id,
            processed_at=observation.processed_at,
            batch=None,
            running_batch=None,
            sources=_described(sources, current.sources),
        )
        if is_unheard:
            state = replace(
                state,
                run_id=None,
                ended=False,
                exception=None,
                driver_end=None,
                other_run_id=None,
            )
    return _with_planned(state, observation.planned_batch_id, sources)


def with_newer_position(state: QueryState, current: QueryState) -> QueryState:
    """`state`, a driver's newest, at the position of `current` where that is newer, or where the
    driver reports none: a query that restarts is where it was."""
    from_checkpoint = traits_of(current.origin).is_checkpoint
    behind = from_checkpoint and _order(state.batch_id) < _order(current.batch_id)
    if current.has_position and (behind or not state.has_position):
        state = replace(
            state,
            sources=_described(current.sources, state.sources),
            origin=current.origin,
            batch_id=current.batch_id,
            processed_at=current.processed_at,
            batch=current.batch,
        )
    else:
        if state.batch_id is None and current.batch_id is not None:
            state = replace(state, batch_id=current.batch_id, processed_at=current.processed_at)
        read_first = state.processed_at is None and traits_of(state.origin).commits_offsets
        if read_first and current.has_position:
            # Another instance has read it before: it has committed since, or it is where it was.
            is_moved = [s.processed for s in state.sources] != [
                s.processed for s in current.sources
            ]
            processed_at = state.observed_at if is_moved else current.processed_at
            state = replace(state, processed_at=processed_at)
        state = replace(
            state,
            batch=state.batch or current.batch,
            sources=tuple(_at_least(source, current.sources) for source in state.sources),
        )
    if state.planned_batch_id is None and current.planned_batch_id is not None:
        return _with_planned(state, current.planned_batch_id, current.sources)
    return state


def _described(
    positions: Sequence[SourceState], descriptions: Sequence[SourceState]
) -> tuple[SourceState, ...]:
    """`positions` with their `descriptions`; descriptions without a position are kept as well."""
    described_sources = []
    left = list(descriptions)
    for at in positions:
        described = fitting(left, at.source, {*(at.processed or ()), *(at.planned or ())})
        if described is None:
            # The number is all there is to go by.
            described = next((source for source in left if source.source == at.source), None)
        if described is not None:
            left.remove(described)
            processed = at.processed if at.processed is not None else described.processed
            at = replace(described, source=at.source, processed=processed, planned=at.planned)
        described_sources.append(at)
    taken = {at.source for at in described_sources}
    return (*described_sources, *(source for source in left if source.source not in taken))


def _at_least(source: SourceState, current: Sequence[SourceState]) -> SourceState:
    """`source`, at its current position where it reports none."""
    if source.processed is not None:
        return source
    processed = next((s.processed for s in current if s.source == source.source), None)
    return replace(source, processed=processed)


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
