"""The last observation of each query, and which partitions it needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sparklag_schemas import LagEvent, Observation, SourcePosition
from sparklag_schemas.origins import traits_of
from sparklag_service.tracking.checkpoint_merge import at_newer_position, with_checkpoint
from sparklag_service.tracking.query_state import QueryState, SourceState, restored

_RUNS_REMEMBERED = 4
_OTHER_RUN_MS = 60_000
"""Another run that was not heard for so long, while this one was, has ended."""

ClusterOf = Callable[[str | None, str], str | None]
"""`bootstrap_servers` of a source, and the alias its driver gives, to the cluster's alias."""


def _as_told(bootstrap_servers: str | None, told: str) -> str | None:
    return told


@dataclass
class Tracker:
    """The state of each query this instance answers for."""

    cluster_of: ClusterOf = _as_told
    queries: dict[str, QueryState] = field(default_factory=dict)

    def observe(
        self,
        observation: Observation,
        remembered: LagEvent | None = None,
        offset: int | None = None,
    ) -> bool:
        """Take an observation in; whether it changed anything.

        `offset` is its place on `processed-offsets`: what decides which of two is the newer,
        whatever the drivers' clocks say. One without comes straight from where it was made, and is
        the newest; where a checkpoint and a driver speak of a query, the later batch is.
        `remembered` is the query's last event, for a position that neither the observation nor
        this tracker has: a query that restarts without new data says nothing of where it is.
        """
        known = self.queries.get(observation.query_id)
        if known is None and remembered is not None:
            known = restored(remembered)
        if known is not None and _is_old(observation, offset, known):
            return False
        state = self._next_state(observation, known)
        if state is None:
            return False
        if offset is not None:
            state = replace(state, observation_offset=offset)
        elif known is not None and observation.run_id is None:
            # Beside the topic: what is the newest there stays so.
            state = replace(state, observation_offset=known.observation_offset)
        self.queries[observation.query_id] = state
        return True

    def adopt(self, event: LagEvent) -> None:
        """Go on measuring the query of `event` from the position it gives."""
        self.queries.setdefault(event.query_id, restored(event))

    def forget(self, query_id: str) -> None:
        """Measure the query no more."""
        self.queries.pop(query_id, None)

    def over(self, heard_before_ms: int) -> Iterator[str]:
        """Ids of the queries last heard of before `heard_before_ms` (stopped, failed or silently
        gone), and of the consumer groups that are no more."""
        return (
            query_id
            for query_id, state in self.queries.items()
            if state.observed_at_ms < heard_before_ms
            or (state.ended and not traits_of(state.origin).keeps_ended)
        )

    def _next_state(self, observation: Observation, known: QueryState | None) -> QueryState | None:
        if known is not None and traits_of(observation.origin).is_checkpoint:
            return with_checkpoint(known, observation, self._sources(observation))
        if known is None or observation.run_id == known.run_id:
            return self._merged(observation, known)
        if known.run_id is None:
            return _of_new_run(self._merged(observation, known))
        if observation.run_id in known.past_runs and not _takes_over(observation, known):
            return _heard_beside(observation, known)
        others = (run for run in known.past_runs if run != observation.run_id)
        past_runs = (known.run_id, *others)[:_RUNS_REMEMBERED]
        return _of_new_run(
            self._merged(observation, replace(known, past_runs=past_runs, other_run_id=None))
        )

    def _merged(self, observation: Observation, known: QueryState | None) -> QueryState:
        said = self._sources(observation)
        state = QueryState(
            query_id=observation.query_id,
            run_id=observation.run_id,
            name=observation.query,
            cluster=observation.cluster,
            observed_at_ms=observation.observed_at,
            sources=said,
            origin=observation.origin,
            batch_id=observation.batch_id,
            planned_batch_id=observation.planned_batch_id,
            heard_at_ms=observation.observed_at if observation.run_id is not None else 0,
            processed_at_ms=observation.processed_at,
            batch=observation.batch,
            checkpoint_location=observation.checkpoint_location,
            activity=_activity(observation, known),
            idle_at_ms=_idle_at_ms(observation, known),
            ended=observation.cause == "terminated",
            exception=observation.exception,
        )
        if traits_of(observation.origin).is_checkpoint:
            state = replace(state, checkpoint_batch_id=observation.batch_id)
        if known is None:
            return replace(state, run_since_ms=state.heard_at_ms)
        heard_at_ms = max(state.heard_at_ms, known.heard_at_ms)
        heard_beside = known.other_run_at_ms > heard_at_ms - _OTHER_RUN_MS
        state = replace(
            state,
            # A version only rises, also where a clock was stepped back.
            observed_at_ms=max(state.observed_at_ms, known.observed_at_ms + 1),
            heard_at_ms=heard_at_ms,
            checkpoint_location=state.checkpoint_location or known.checkpoint_location,
            checkpoint_batch_id=known.checkpoint_batch_id,
            run_since_ms=known.run_since_ms,
            past_runs=known.past_runs,
            other_run_id=known.other_run_id if heard_beside else None,
            other_run_at_ms=known.other_run_at_ms,
        )
        return at_newer_position(state, known)

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


def _activity(observation: Observation, known: QueryState | None) -> str | None:
    """What the newest words say; those that repeat a position may leave out what they said."""
    if observation.activity is not None:
        return observation.activity
    if observation.cause == "idle":
        return "waiting"
    if observation.cause == "refresh" and known is not None:
        return known.activity if known.run_id == observation.run_id else None
    return None


def _idle_at_ms(observation: Observation, known: QueryState | None) -> int:
    if observation.cause == "idle" or observation.activity == "waiting":
        return observation.observed_at
    return known.idle_at_ms if known is not None else 0


def _of_new_run(state: QueryState) -> QueryState:
    return replace(state, run_since_ms=state.heard_at_ms)


def _is_old(observation: Observation, offset: int | None, known: QueryState) -> bool:
    if offset is None:
        return False
    earlier = observation.observed_at < known.heard_at_ms
    if known.observation_offset is None:
        return earlier
    if offset <= known.observation_offset:
        # Read again, after a hand-over. Where the clock says otherwise the topic was made anew.
        return observation.observed_at <= known.heard_at_ms
    # Written again by a producer that did not hear its first acknowledgement.
    return (
        earlier
        and observation.run_id == known.run_id
        and (known.ended or (observation.batch_id or 0) < (known.batch_id or 0))
    )


def _is_late(observation: Observation, known: QueryState) -> bool:
    """Whether a past run said this before the present one began, or says no more than that."""
    return observation.observed_at <= known.run_since_ms or observation.cause in (
        "started",
        "terminated",
    )


def _takes_over(observation: Observation, known: QueryState) -> bool:
    """A run that was followed by another goes on alone: that one has ended, or fell silent."""
    if _is_late(observation, known):
        return False
    if known.ended:
        return observation.observed_at > known.heard_at_ms
    return (
        observation.run_id == known.other_run_id
        and known.alone_since_ms is not None
        and observation.observed_at - known.alone_since_ms > _OTHER_RUN_MS
    )


def _heard_beside(observation: Observation, known: QueryState) -> QueryState | None:
    """A run that was followed by another speaks: it still runs, or its words come late."""
    if observation.cause == "terminated" and observation.run_id == known.other_run_id:
        return replace(known, other_run_id=None, alone_since_ms=None)
    if _is_late(observation, known):
        return None
    alone_since_ms = known.alone_since_ms
    if alone_since_ms is None or observation.run_id != known.other_run_id:
        alone_since_ms = observation.observed_at
    return replace(
        known,
        other_run_id=observation.run_id,
        other_run_at_ms=known.heard_at_ms,
        alone_since_ms=alone_since_ms,
    )
