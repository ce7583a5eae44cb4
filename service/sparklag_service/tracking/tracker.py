"""Computes the next state of a query from one more observation. Pure.

A driver and a checkpoint report one position, and both use the batch numbers of the checkpoint: the
position of the later batch is newer, in whichever order they arrive. Each covers the other's gap: a
driver that was killed, the first batch after a restart, events that Spark's bus dropped, a batch
that runs for an hour; and a checkpoint that is read only every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparklag_schemas import Observation, SourcePosition
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.messages.validation import in_time
from sparklag_service.tracking.query_state import (
    PastRun,
    QueryState,
    TrackedSource,
    fitting,
    query_fields,
    runs_after,
)

_RUNS_REMEMBERED: Final = 16
_RECENT: Final = 8
"""Messages of a run that are recognized when repeated, without regard to clocks."""
_OTHER_RUN_MS: Final = 60_000
"""A run without a message for this long has ended."""
_SILENT_DRIVER_MS: Final = 30_000
"""A driver sends a message every ten seconds. A batch that completes this long after the last
message belongs to another run, which no listener observes."""
_LEAP: Final = 1_000
"""Batches: a checkpoint is never read this far behind its driver."""

_POSITION: Final = {*SourcePosition.__struct_fields__} - {"began", "bootstrap_servers"}
ClusterOf = Callable[[str | None, str], str | None]
"""Maps the `bootstrap_servers` of a source and its driver's alias to the cluster's alias."""


class StateChange(NamedTuple):
    state: QueryState
    is_news: bool = True
    """False: a past run wrote the message, and only the record of that run changes."""


@dataclass(frozen=True)
class Tracker:
    """Makes the states of queries from their observations."""

    cluster_of: ClusterOf
    clocks_differ_ms: int = 300_000
    """A message of an unknown run that is older than the last message by more is a repetition."""

    def observe(
        self,
        current: QueryState | None,
        observation: Observation,
        offset: int | None = None,
        now_ms: int | None = None,
    ) -> StateChange | None:
        """The state after an observation. None: the observation is outdated or repeated.

        `current`: the query's state. It gives the position that the observation lacks: a query that
        restarts without new data reports none.
        `offset`: of the record on `processed-offsets`. The higher offset is newer, whatever the
        drivers' clocks are. An observation without an offset comes straight from its source and is
        the newest; between a checkpoint and a driver, the later batch is newer.
        `now_ms`: when the observation was received (None: when it was made). A time after it counts
        as `now_ms`.
        """
        written = observation.observed_at, observation.cause
        if now_ms is not None:
            observation = in_time(observation, now_ms)
        if current is not None:
            is_behind = current.ended or _order(observation.batch_id) < _order(current.batch_id)
            if _is_old(observation, offset, current) or (is_behind and written in current.recent):
                return None
        change = self._change(observation, current, now_ms or observation.observed_at, offset)
        if change is None or not change.is_news:
            return change
        state = change.state
        if offset is not None:
            is_same_run = current is not None and current.run_id == state.run_id
            recent = (written, *(current.recent if current and is_same_run else ()))
            return StateChange(replace(state, observation_offset=offset, recent=recent[:_RECENT]))
        if current is not None and observation.run_id is None:
            # Not from the topic: the newest record there stays the same.
            return StateChange(replace(state, observation_offset=current.observation_offset))
        return change

    def _change(
        self, observation: Observation, current: QueryState | None, now_ms: int, offset: int | None
    ) -> StateChange | None:
        if current is not None and traits_of(observation.origin).is_checkpoint:
            return StateChange(_with_checkpoint(current, observation, self._sources(observation)))
        run_id = observation.run_id or ""
        if current is None or observation.run_id == current.run_id:
            return StateChange(self._merged(observation, current, now_ms))
        if current.run_id is None:
            return StateChange(_of_new_run(self._merged(observation, current, now_ms)))
        past = current.past_runs.get(run_id)
        is_alone = current.ended or now_ms - current.run_received_at_ms > _OTHER_RUN_MS
        behind_ms = current.driver_written_at_ms - observation.observed_at
        if past is not None:
            if observation.observed_at <= past.written_at_ms:
                return None
        elif offset is not None and behind_ms > self.clocks_differ_ms:
            # A repeated message.
            return None
        if past is not None or (offset is not None and behind_ms > 0 and not is_alone):
            past_runs = _with_past(current, run_id, PastRun(observation.observed_at, now_ms))
            current = replace(current, past_runs=past_runs)
            if past is None or _is_late(observation, current):
                if observation.cause != "terminated" or observation.run_id != current.other_run_id:
                    return StateChange(current, is_news=False)
                return StateChange(replace(current, other_run_id=None))
            if not _takes_over(observation, current, is_alone=is_alone):
                return StateChange(replace(current, other_run_id=run_id))
        assert current.run_id is not None
        followed = PastRun(current.driver_written_at_ms, current.run_received_at_ms)
        past_runs = _with_past(current, current.run_id, followed)
        past_runs.pop(run_id, None)
        # A run that wrote once may be a second driver or forged: the first run's position counts.
        is_disputed = past is not None and current.run_wrote_once and not current.ended
        other_run_id = current.run_id if is_disputed else None
        current = replace(current, past_runs=past_runs, other_run_id=other_run_id)
        state = _of_new_run(self._merged(observation, current, now_ms))
        return StateChange(replace(state, run_wrote_once=past is None))

    def _merged(
        self, observation: Observation, current: QueryState | None, now_ms: int
    ) -> QueryState:
        is_checkpoint = traits_of(observation.origin).is_checkpoint
        written_at_ms = observation.observed_at if observation.run_id is not None else 0
        runs, is_new_run = None, True
        if current is not None:
            written_at_ms = max(written_at_ms, current.driver_written_at_ms)
            runs, is_new_run = current.runs, current.run_id != observation.run_id
        idle_at_ms = _idle_at_ms(observation, current)
        if observation.run_id is not None:
            runs = runs_after(observation, runs, written_at_ms, idle_at_ms, is_new_run=is_new_run)
        fields = query_fields(observation) | {
            "activity": _activity(observation, current),
            "group": _group(observation.group, current.group if current is not None else None),
        }
        state = QueryState(
            **fields,
            sources=self._sources(observation, current.sources if current is not None else ()),
            checkpoint_batch_id=observation.batch_id if is_checkpoint else None,
            driver_written_at_ms=written_at_ms,
            idle_at_ms=idle_at_ms,
            ended=observation.cause == "terminated",
            run_received_at_ms=now_ms,
            runs=runs,
        )
        if current is None:
            return replace(state, run_written_since_ms=state.driver_written_at_ms)
        other = current.past_runs.get(current.other_run_id or "")
        other_run_lives = other is not None and now_ms - other.received_at_ms < _OTHER_RUN_MS
        state = replace(
            state,
            # The version only rises, even if a clock was set back.
            observed_at=max(state.observed_at, current.observed_at + 1),
            checkpoint_location=state.checkpoint_location or current.checkpoint_location,
            checkpoint_batch_id=current.checkpoint_batch_id,
            run_written_since_ms=current.run_written_since_ms,
            run_wrote_once=False,
            past_runs=current.past_runs,
            other_run_id=current.other_run_id if other_run_lives else None,
        )
        return _with_newer_position(state, current)

    def _sources(
        self, observation: Observation, current: Sequence[TrackedSource] = ()
    ) -> tuple[TrackedSource, ...]:
        return tuple(
            TrackedSource(
                **{name: getattr(position, name) for name in _POSITION},
                matched=_matched(position, current),
                cluster=self.cluster_of(position.bootstrap_servers, observation.cluster),
            )
            for position in observation.sources
        )


def _matched(position: SourcePosition, current: Sequence[TrackedSource]) -> tuple[str, ...]:
    """The topics that its pattern matched before, maybe for another instance."""
    if position.topic_pattern is None:
        return ()
    before = (source for source in current if source.source == position.source)
    return next(((*source.matched, *(source.topics or ())) for source in before), ())


def _activity(observation: Observation, current: QueryState | None) -> str | None:
    """The query's activity; a refresh may omit it."""
    if observation.activity is not None:
        return observation.activity
    if observation.cause == "idle":
        return "waiting"
    if observation.cause == "refresh" and current is not None:
        return current.activity if current.run_id == observation.run_id else None
    return None


def _group(group: ConsumerGroup | None, before: ConsumerGroup | None) -> ConsumerGroup | None:
    """The group. While it rebalances, the partitions that no member read before are kept."""
    if group is None or group.unassigned is not None or before is None:
        return group
    return replace(group, unassigned=before.unassigned)


def _idle_at_ms(observation: Observation, current: QueryState | None) -> int:
    if observation.cause == "idle" or observation.activity == "waiting":
        return observation.observed_at
    return current.idle_at_ms if current is not None else 0


def _of_new_run(state: QueryState) -> QueryState:
    return replace(state, run_written_since_ms=state.driver_written_at_ms)


def _is_old(observation: Observation, offset: int | None, current: QueryState) -> bool:
    if offset is None:
        return False
    earlier = observation.observed_at < current.driver_written_at_ms
    if current.observation_offset is None:
        return earlier
    if offset <= current.observation_offset:
        # Read again after a rebalance. A later time means that the topic was recreated.
        return observation.observed_at <= current.driver_written_at_ms
    # Written again by a producer that did not receive the first acknowledgement.
    if observation.run_id != current.run_id:
        return False
    if current.ended:
        # After a hand-over only the batch shows that a late copy is one: see `restored`.
        is_copy = not current.recent and _order(observation.batch_id) <= _order(current.batch_id)
        return is_copy or observation.observed_at <= current.driver_written_at_ms
    return earlier and (observation.batch_id or 0) < (current.batch_id or 0)


def _with_past(current: QueryState, run_id: str, past: PastRun) -> dict[str, PastRun]:
    others = (run for run in current.past_runs.items() if run[0] != run_id)
    return dict([(run_id, past), *others][:_RUNS_REMEMBERED])


def _is_late(observation: Observation, current: QueryState) -> bool:
    """Returns whether a past run wrote this before the current run began, or at its own start or
    end."""
    if observation.cause in ("started", "terminated", "closed"):
        return True
    return observation.observed_at <= current.run_written_since_ms


def _takes_over(observation: Observation, current: QueryState, *, is_alone: bool) -> bool:
    """Returns whether a past run replaces the current run, which has ended, is silent, or has
    written no more than one message."""
    if current.ended:
        return observation.observed_at > current.driver_written_at_ms
    return current.run_wrote_once or is_alone


def _name(current: QueryState, observation: Observation) -> str | None:
    """The name, after an observation of the checkpoint. A driver reports it; without a driver it is
    a folder of the location, of another one if another copy of the checkpoint is watched now."""
    if current.run_id is not None:
        return current.query
    location = current.checkpoint_location
    if location != observation.checkpoint_location and f"/{current.query}/" in f"{location}/":
        return observation.query
    return current.query or observation.query


def _with_checkpoint(
    current: QueryState, observation: Observation, sources: tuple[TrackedSource, ...]
) -> QueryState:
    """`current`, with the checkpoint's position (`sources` of `observation`) if that is newer.

    A checkpoint with an earlier batch than before was reset: its position counts as newer.
    """
    state = replace(
        current,
        query=_name(current, observation),
        observed_at=max(observation.observed_at, current.observed_at + 1),
        checkpoint_location=current.checkpoint_location
        if current.run_id is not None and current.checkpoint_location is not None
        else observation.checkpoint_location,
        checkpoint_batch_id=observation.batch_id,
    )
    positioned = any(source.processed is not None for source in sources)
    set_back = _order(observation.batch_id) < _order(current.checkpoint_batch_id)
    is_silent = (observation.processed_at or 0) > current.driver_written_at_ms + _SILENT_DRIVER_MS
    newer = (
        set_back
        or not current.has_position
        or _order(observation.batch_id) > _order(current.batch_id)
        # No driver is this far ahead and then silent: its message was forged.
        or (is_silent and _order(current.batch_id) - _order(observation.batch_id) > _LEAP)
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
        if is_silent:
            state = replace(
                state,
                run_id=None,
                ended=False,
                exception=None,
                driver_end=None,
                other_run_id=None,
                runs=current.runs and replace(current.runs, ended=False),
            )
    return _with_planned(state, observation.planned_batch_id, sources)


def _with_newer_position(state: QueryState, current: QueryState) -> QueryState:
    """`state`, a driver's newest, with the position of `current` if that is newer or the driver
    reports none: a query that restarts keeps its position."""
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
            # Another instance read the group before: a changed position is a new commit.
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
    positions: Sequence[TrackedSource], descriptions: Sequence[TrackedSource]
) -> tuple[TrackedSource, ...]:
    """`positions` with their `descriptions`; descriptions without a position are kept as well."""
    described_sources = []
    left = list(descriptions)
    for at in positions:
        described = fitting(left, at.source, {*(at.processed or ()), *(at.planned or ())})
        if described is None:
            # Only the number of the source is left to compare.
            described = next((source for source in left if source.source == at.source), None)
        if described is not None:
            left.remove(described)
            processed = at.processed if at.processed is not None else described.processed
            at = replace(described, source=at.source, processed=processed, planned=at.planned)
        described_sources.append(at)
    taken = {at.source for at in described_sources}
    return (*described_sources, *(source for source in left if source.source not in taken))


def _at_least(source: TrackedSource, current: Sequence[TrackedSource]) -> TrackedSource:
    """`source`, with its current position if it reports none."""
    if source.processed is not None:
        return source
    processed = next((s.processed for s in current if s.source == source.source), None)
    return replace(source, processed=processed)


def _with_planned(
    state: QueryState, batch_id: int | None, planned: Sequence[TrackedSource]
) -> QueryState:
    """`state`, with the planned end of `batch_id` if that batch is not completed yet."""
    to_come = batch_id is not None and batch_id > _order(state.batch_id)
    ends = {source.source: source.planned for source in planned} if to_come else {}
    return replace(
        state,
        planned_batch_id=batch_id if to_come else None,
        sources=tuple(replace(s, planned=ends.get(s.source)) for s in state.sources),
    )


def _order(batch_id: int | None) -> int:
    return -1 if batch_id is None else batch_id
