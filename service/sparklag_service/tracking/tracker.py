"""The last observation of each query, and which partitions it needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from sparklag_schemas import LagEvent, Observation, SourcePosition
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.validation import in_time
from sparklag_service.tracking.checkpoint_merge import with_checkpoint, with_newer_position
from sparklag_service.tracking.query_state import (
    PastRun,
    QueryState,
    SourceState,
    query_fields,
    restored,
)

_RUNS_REMEMBERED = 16
_RECENT = 8
"""Messages of which a repetition is known, whatever the clocks say."""
_OTHER_RUN_MS = 60_000
"""A run without a message for so long has ended."""

ClusterOf = Callable[[str | None, str], str | None]
"""`bootstrap_servers` of a source, and the alias its driver gives, to the cluster's alias."""


def _by_alias(bootstrap_servers: str | None, alias: str) -> str | None:
    return alias


@dataclass
class Tracker:
    """The state of each query this instance answers for."""

    cluster_of: ClusterOf = _by_alias
    clocks_differ_ms: int = 300_000
    """A message of an unknown run that is older than the last one by more is repeated."""
    queries: dict[str, QueryState] = field(default_factory=dict)

    def observe(
        self,
        observation: Observation,
        last_event: LagEvent | None = None,
        offset: int | None = None,
        now_ms: int | None = None,
    ) -> bool:
        """Track an observation that is received at `now_ms` (None: when it was made); whether it
        changed anything. One that is from the future counts as made now.

        `offset` is that of its record on `processed-offsets`: the higher one is the newer, whatever
        the drivers' clocks say. One without comes straight from its source, and is the newest;
        between a checkpoint and a driver, the later batch is. `last_event` of the query gives the
        position that neither the observation nor this tracker has: a query that restarts without
        new data reports none.
        """
        current = self.queries.get(observation.query_id)
        if current is None and last_event is not None:
            current = restored(last_event)
        written = observation.observed_at, observation.cause
        if now_ms is not None:
            observation = in_time(observation, now_ms)
        if current is not None and _is_old(observation, offset, current):
            return False
        if current is not None and current.ended and written in current.recent:
            return False
        state = self._next_state(observation, current, now_ms or observation.observed_at, offset)
        if state is None:
            return False
        if offset is not None:
            is_same_run = current is not None and current.run_id == state.run_id
            recent = (written, *(current.recent if current and is_same_run else ()))
            state = replace(state, observation_offset=offset, recent=recent[:_RECENT])
        elif current is not None and observation.run_id is None:
            # Not from the topic: the newest record there stays the same.
            state = replace(state, observation_offset=current.observation_offset)
        self.queries[observation.query_id] = state
        return True

    def adopt(self, event: LagEvent) -> None:
        """Track the query of `event` from the position in it."""
        self.queries.setdefault(event.query_id, restored(event))

    def forget(self, query_id: str) -> None:
        """Stop tracking the query."""
        self.queries.pop(query_id, None)

    def expired(self, seen_before_ms: int) -> Iterator[str]:
        """Ids of queries last seen before `seen_before_ms` (stopped, failed or dead), and of
        consumer groups that were deleted."""
        return (
            query_id
            for query_id, state in self.queries.items()
            if state.observed_at < seen_before_ms
            or (state.ended and not traits_of(state.origin).keeps_ended)
        )

    def _next_state(
        self,
        observation: Observation,
        current: QueryState | None,
        now_ms: int,
        offset: int | None,
    ) -> QueryState | None:
        if current is not None and traits_of(observation.origin).is_checkpoint:
            return with_checkpoint(current, observation, self._sources(observation))
        run_id = observation.run_id or ""
        if current is None or observation.run_id == current.run_id:
            return self._merged(observation, current, now_ms)
        if current.run_id is None:
            return _of_new_run(self._merged(observation, current, now_ms))
        past = current.past_runs.get(run_id)
        is_alone = current.ended or now_ms - current.run_received_at_ms > _OTHER_RUN_MS
        behind_ms = current.driver_seen_at_ms - observation.observed_at
        if past is not None:
            if observation.observed_at <= past.seen_at_ms:
                return None
        elif offset is not None and behind_ms > self.clocks_differ_ms:
            # It is repeated.
            return None
        if past is not None or (offset is not None and behind_ms > 0 and not is_alone):
            past_runs = _with_past(current, run_id, PastRun(observation.observed_at, now_ms))
            current = replace(current, past_runs=past_runs)
            if past is None or _is_late(observation, current):
                self.queries[current.query_id] = current
                return _without_other_run(observation, current)
            if not _takes_over(observation, current, is_alone=is_alone):
                return replace(current, other_run_id=run_id)
        assert current.run_id is not None
        followed = PastRun(current.driver_seen_at_ms, current.run_received_at_ms)
        past_runs = _with_past(current, current.run_id, followed)
        past_runs.pop(run_id, None)
        # What wrote once may be a second driver, or a forger: the position is that of the first.
        is_disputed = past is not None and current.run_seen_once and not current.ended
        other_run_id = current.run_id if is_disputed else None
        current = replace(current, past_runs=past_runs, other_run_id=other_run_id)
        state = _of_new_run(self._merged(observation, current, now_ms))
        return replace(state, run_seen_once=past is None)

    def _merged(
        self, observation: Observation, current: QueryState | None, now_ms: int
    ) -> QueryState:
        is_checkpoint = traits_of(observation.origin).is_checkpoint
        fields = query_fields(observation) | {"activity": _activity(observation, current)}
        state = QueryState(
            **fields,
            sources=self._sources(observation),
            checkpoint_batch_id=observation.batch_id if is_checkpoint else None,
            driver_seen_at_ms=observation.observed_at if observation.run_id is not None else 0,
            idle_at_ms=_idle_at_ms(observation, current),
            ended=observation.cause == "terminated",
            run_received_at_ms=now_ms,
        )
        if current is None:
            return replace(state, run_seen_since_ms=state.driver_seen_at_ms)
        driver_seen_at_ms = max(state.driver_seen_at_ms, current.driver_seen_at_ms)
        other = current.past_runs.get(current.other_run_id or "")
        other_run_lives = other is not None and now_ms - other.received_at_ms < _OTHER_RUN_MS
        state = replace(
            state,
            # A version only rises, also where a clock was stepped back.
            observed_at=max(state.observed_at, current.observed_at + 1),
            driver_seen_at_ms=driver_seen_at_ms,
            checkpoint_location=state.checkpoint_location or current.checkpoint_location,
            checkpoint_batch_id=current.checkpoint_batch_id,
            run_seen_since_ms=current.run_seen_since_ms,
            run_seen_once=False,
            past_runs=current.past_runs,
            other_run_id=current.other_run_id if other_run_lives else None,
        )
        return with_newer_position(state, current)

    def _sources(self, observation: Observation) -> tuple[SourceState, ...]:
        return tuple(self._source(position, observation) for position in observation.sources)

    def _source(self, position: SourcePosition, observation: Observation) -> SourceState:
        return SourceState(
            source=position.source,
            isolation_level=position.isolation_level,
            processed=position.processed,
            planned=position.planned,
            topics=tuple(position.topics) if position.topics is not None else None,
            assigned=position.assigned,
            cluster=self.cluster_of(position.bootstrap_servers, observation.cluster),
        )


def _activity(observation: Observation, current: QueryState | None) -> str | None:
    """Of the newest message; a refresh may leave it out."""
    if observation.activity is not None:
        return observation.activity
    if observation.cause == "idle":
        return "waiting"
    if observation.cause == "refresh" and current is not None:
        return current.activity if current.run_id == observation.run_id else None
    return None


def _idle_at_ms(observation: Observation, current: QueryState | None) -> int:
    if observation.cause == "idle" or observation.activity == "waiting":
        return observation.observed_at
    return current.idle_at_ms if current is not None else 0


def _of_new_run(state: QueryState) -> QueryState:
    return replace(state, run_seen_since_ms=state.driver_seen_at_ms)


def _is_old(observation: Observation, offset: int | None, current: QueryState) -> bool:
    if offset is None:
        return False
    earlier = observation.observed_at < current.driver_seen_at_ms
    if current.observation_offset is None:
        return earlier
    if offset <= current.observation_offset:
        # Read again, after a rebalance. By the clock, the topic may have been recreated.
        return observation.observed_at <= current.driver_seen_at_ms
    # Written again by a producer that did not receive the first acknowledgement.
    if observation.run_id != current.run_id:
        return False
    if current.ended:
        return observation.observed_at <= current.driver_seen_at_ms
    return earlier and (observation.batch_id or 0) < (current.batch_id or 0)


def _with_past(current: QueryState, run_id: str, past: PastRun) -> dict[str, PastRun]:
    """The past runs, with one more."""
    others = (run for run in current.past_runs.items() if run[0] != run_id)
    return dict([(run_id, past), *others][:_RUNS_REMEMBERED])


def _is_late(observation: Observation, current: QueryState) -> bool:
    """Whether a past run wrote this before the present one began, or only its start or end."""
    if observation.cause in ("started", "terminated", "closed"):
        return True
    return observation.observed_at <= current.run_seen_since_ms


def _takes_over(observation: Observation, current: QueryState, *, is_alone: bool) -> bool:
    """Whether a past run is the only one left: the present one has ended, is silent, or has written
    no more than one message."""
    if current.ended:
        return observation.observed_at > current.driver_seen_at_ms
    return current.run_seen_once or is_alone


def _without_other_run(observation: Observation, current: QueryState) -> QueryState | None:
    """The state if the other run has ended. None: it goes on."""
    if observation.cause == "terminated" and observation.run_id == current.other_run_id:
        return replace(current, other_run_id=None)
    return None
