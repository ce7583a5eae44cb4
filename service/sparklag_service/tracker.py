"""The last observation of each query, and which partitions it needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from sparklag_schemas import Batch, IsolationLevel, LagEvent, Observation, SourcePosition

_RUNS_REMEMBERED = 4
_OTHER_RUN_MS = 60_000
"""Another run that was not heard for so long, while this one was, has ended."""

ClusterOf = Callable[[str | None, str], str | None]
"""`bootstrap_servers` of a source, and the alias its driver gives, to the cluster's alias."""


def _as_told(bootstrap_servers: str | None, told: str) -> str | None:
    return told


@dataclass(frozen=True)
class SourceState:
    """One source of a query: where it has read up to, by topic and partition."""

    source: int
    isolation_level: IsolationLevel
    processed: dict[str, dict[int, int]] | None
    planned: dict[str, dict[int, int]] | None = None
    topics: tuple[str, ...] | None = None
    assigned: dict[str, list[int]] | None = None
    cluster: str | None = "default"
    """Alias of the Kafka cluster it reads from. None: none that is configured."""

    def watched_topics(self) -> list[str]:
        """Topics to measure: those it names, and those with a position."""
        return sorted({*(self.topics or ()), *(self.assigned or ()), *(self.processed or ())})

    def watched_partitions(self, topic: str, existing: Iterable[int]) -> list[int]:
        """Partitions to measure of a topic that has `existing` ones: those with a position, those
        assigned, and, where none are, every one there is, before Spark plans it."""
        known = (self.processed or {}).get(topic, ())
        if self.assigned is not None:
            return sorted({*known, *self.assigned.get(topic, ())})
        return sorted({*known, *existing})


@dataclass(frozen=True)
class QueryState:
    """All that is known of a query without asking Kafka. A new observation makes a new one."""

    query_id: str
    run_id: str | None
    name: str | None
    cluster: str
    observed_at_ms: int
    sources: tuple[SourceState, ...]
    batch_id: int | None = None
    processed_at_ms: int | None = None
    batch: Batch | None = None
    checkpoint_location: str | None = None
    ended: bool = False
    exception: str | None = None
    observation_offset: int | None = None
    run_since_ms: int = 0
    """`observed_at_ms` when this run was first heard of."""
    past_runs: tuple[str, ...] = ()
    other_run_id: str | None = None
    """A past run that goes on beside this one."""
    other_run_at_ms: int = 0
    """`observed_at_ms` when that one was last heard: its own clock may be another."""
    alone_since_ms: int | None = None
    """By that one's clock, its first words after this run's last."""

    @property
    def known(self) -> bool:
        """Whether any position is known."""
        return any(source.processed is not None for source in self.sources)


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
        the newest. `remembered` is the query's last event, for a position that neither the
        observation nor this tracker has: a query that restarts without new data says nothing of
        where it is.
        """
        known = self.queries.get(observation.query_id)
        if known is None and remembered is not None:
            known = restored(remembered)
        if known is not None and _is_old(observation, offset, known):
            return False
        state = self._next_state(observation, known)
        if state is None:
            return False
        self.queries[observation.query_id] = replace(state, observation_offset=offset)
        return True

    def adopt(self, event: LagEvent) -> None:
        """Go on measuring the query of `event` from the position it gives."""
        self.queries.setdefault(event.query_id, restored(event))

    def forget(self, query_id: str) -> None:
        """Measure the query no more."""
        self.queries.pop(query_id, None)

    def unheard_since(self, time_ms: int) -> Iterator[str]:
        """Ids of the queries last heard of before `time_ms`: stopped, failed or silently gone."""
        return (
            query_id for query_id, state in self.queries.items() if state.observed_at_ms < time_ms
        )

    def _next_state(self, observation: Observation, known: QueryState | None) -> QueryState | None:
        if known is None or observation.run_id == known.run_id:
            return self._merged(observation, known)
        if observation.run_id in known.past_runs and not _takes_over(observation, known):
            return _heard_beside(observation, known)
        others = (run for run in known.past_runs if run != observation.run_id)
        past_runs = tuple(run for run in (known.run_id, *others) if run)[:_RUNS_REMEMBERED]
        state = self._merged(observation, replace(known, past_runs=past_runs, other_run_id=None))
        return replace(state, run_since_ms=state.observed_at_ms)

    def _merged(self, observation: Observation, known: QueryState | None) -> QueryState:
        positioned = any(source.processed is not None for source in observation.sources)
        if positioned or known is None or not known.known:
            sources = tuple(
                self._source(source, observation, known) for source in observation.sources
            )
        else:
            # Started or idle without a position: it stands where it stood.
            sources = known.sources
        observed_at_ms = observation.observed_at
        if known is not None:
            # A version only rises, also where a clock was stepped back.
            observed_at_ms = max(observed_at_ms, known.observed_at_ms + 1)
        heard_beside = known is not None and known.other_run_at_ms > observed_at_ms - _OTHER_RUN_MS
        return QueryState(
            query_id=observation.query_id,
            run_id=observation.run_id,
            name=observation.query,
            cluster=observation.cluster,
            observed_at_ms=observed_at_ms,
            sources=sources,
            batch_id=_first(observation.batch_id, known.batch_id if known else None),
            processed_at_ms=_first(
                observation.processed_at, known.processed_at_ms if known else None
            ),
            batch=observation.batch or (known.batch if known else None),
            checkpoint_location=observation.checkpoint_location
            or (known.checkpoint_location if known else None),
            ended=observation.cause == "terminated",
            exception=observation.exception,
            run_since_ms=known.run_since_ms if known else observed_at_ms,
            past_runs=known.past_runs if known else (),
            other_run_id=known.other_run_id if known and heard_beside else None,
            other_run_at_ms=known.other_run_at_ms if known else 0,
        )

    def _source(
        self, position: SourcePosition, observation: Observation, known: QueryState | None
    ) -> SourceState:
        processed = position.processed
        if processed is None and known is not None:
            processed = next(
                (s.processed for s in known.sources if s.source == position.source), None
            )
        return SourceState(
            source=position.source,
            isolation_level=position.isolation_level,
            processed=processed,
            planned=position.planned,
            topics=tuple(position.topics) if position.topics is not None else None,
            assigned=position.assigned,
            cluster=self.cluster_of(position.bootstrap_servers, observation.cluster),
        )


def restored(event: LagEvent) -> QueryState:
    """The state that `event` was measured from."""
    return QueryState(
        query_id=event.query_id,
        run_id=event.run_id,
        name=event.query,
        cluster=event.cluster,
        observed_at_ms=event.observed_at,
        sources=_sources_of(event),
        batch_id=event.batch_id,
        processed_at_ms=event.processed_at,
        batch=event.batch,
        checkpoint_location=event.checkpoint_location,
        ended=event.status in ("FINISHED", "FAILED"),
        exception=event.exception,
        observation_offset=event.observation_offset,
        run_since_ms=event.observed_at,
        past_runs=(event.other_run_id,) if event.other_run_id else (),
        other_run_id=event.other_run_id,
        other_run_at_ms=event.observed_at if event.other_run_id else 0,
    )


def _is_old(observation: Observation, offset: int | None, known: QueryState) -> bool:
    if offset is None:
        return False
    earlier = observation.observed_at < known.observed_at_ms
    if known.observation_offset is None:
        return earlier
    if offset <= known.observation_offset:
        # Read again, after a hand-over. Where the clock says otherwise the topic was made anew.
        return observation.observed_at <= known.observed_at_ms
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
        return observation.observed_at > known.observed_at_ms
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
        other_run_at_ms=known.observed_at_ms,
        alone_since_ms=alone_since_ms,
    )


def _sources_of(event: LagEvent) -> tuple[SourceState, ...]:
    by_source: dict[int, SourceState] = {}
    for topic in event.topics:
        source = by_source.setdefault(
            topic.source,
            SourceState(
                topic.source,
                topic.isolation_level,
                None,
                topics=(),
                assigned={} if topic.assigned else None,
                cluster=topic.cluster,
            ),
        )
        processed = {
            partition.partition: partition.processed_offset
            for partition in topic.partitions
            if partition.processed_offset is not None
        }
        planned = {
            partition.partition: partition.planned_offset
            for partition in topic.partitions
            if partition.planned_offset is not None
        }
        assigned = source.assigned
        if assigned is not None:
            assigned = {**assigned, topic.topic: [p.partition for p in topic.partitions]}
        by_source[topic.source] = replace(
            source,
            processed=_with_topic(source.processed, topic.topic, processed),
            planned=_with_topic(source.planned, topic.topic, planned),
            topics=(*(source.topics or ()), topic.topic),
            assigned=assigned,
        )
        if by_source[topic.source].processed is None and topic.total_lag is not None:
            # Counted without a position: it has begun, in none of the partitions there are now.
            by_source[topic.source] = replace(by_source[topic.source], processed={})
    return tuple(by_source[index] for index in sorted(by_source))


def _with_topic(
    offsets: dict[str, dict[int, int]] | None, topic: str, of_topic: dict[int, int]
) -> dict[str, dict[int, int]] | None:
    return {**(offsets or {}), topic: of_topic} if of_topic else offsets


def _first(new: int | None, old: int | None) -> int | None:
    return new if new is not None else old
