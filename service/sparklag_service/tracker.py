"""The last observation of each query, and which partitions it needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sparklag_schemas import Batch, Cause, IsolationLevel, LagEvent, Observation, SourcePosition


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
        """Topics to measure: those it subscribes to, and those with a position."""
        return sorted({*(self.topics or ()), *(self.processed or ())})

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
    run_id: str
    name: str | None
    cluster: str
    cause: Cause
    observed_at_ms: int
    sources: tuple[SourceState, ...]
    batch_id: int | None = None
    processed_at_ms: int | None = None
    batch: Batch | None = None
    checkpoint_location: str | None = None
    ended: bool = False
    exception: str | None = None

    @property
    def known(self) -> bool:
        """Whether any position is known."""
        return any(source.processed is not None for source in self.sources)


@dataclass
class Tracker:
    """The state of each query this instance answers for."""

    queries: dict[str, QueryState] = field(default_factory=dict)

    def observe(self, observation: Observation, remembered: LagEvent | None = None) -> bool:
        """Take an observation in; whether it changed anything.

        One older than the last of its query is not taken. `remembered` is the query's last event,
        for a position that neither the observation nor this tracker has: a query that restarts
        without new data says nothing of where it is.
        """
        known = self.queries.get(observation.query_id)
        if known is None and remembered is not None:
            known = restored(remembered)
        if known is not None and observation.observed_at < known.observed_at_ms:
            return False
        self.queries[observation.query_id] = _merged(observation, known)
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


def restored(event: LagEvent) -> QueryState:
    """The state that `event` was measured from."""
    return QueryState(
        query_id=event.query_id,
        run_id=event.run_id,
        name=event.query,
        cluster=event.cluster,
        cause="refresh",
        observed_at_ms=event.observed_at,
        sources=_sources_of(event),
        batch_id=event.batch_id,
        processed_at_ms=event.processed_at,
        batch=event.batch,
        checkpoint_location=event.checkpoint_location,
        ended=event.status in ("FINISHED", "FAILED"),
        exception=event.exception,
    )


def _sources_of(event: LagEvent) -> tuple[SourceState, ...]:
    by_source: dict[int, SourceState] = {}
    for topic in event.topics:
        source = by_source.setdefault(
            topic.source, SourceState(topic.source, topic.isolation_level, None, topics=())
        )
        processed = {
            partition.partition: partition.processed_offset
            for partition in topic.partitions
            if partition.processed_offset is not None
        }
        both = {**(source.processed or {}), topic.topic: processed} if processed else None
        by_source[topic.source] = replace(
            source,
            processed=both or source.processed,
            topics=(*(source.topics or ()), topic.topic),
        )
    return tuple(by_source[index] for index in sorted(by_source))


def _merged(observation: Observation, known: QueryState | None) -> QueryState:
    positioned = any(source.processed is not None for source in observation.sources)
    if positioned or known is None or not known.known:
        sources = tuple(_source(source, known) for source in observation.sources)
    else:
        # Started or idle without a position: it stands where it stood.
        sources = known.sources
    return QueryState(
        query_id=observation.query_id,
        run_id=observation.run_id,
        name=observation.query,
        cluster=observation.cluster,
        cause=observation.cause,
        observed_at_ms=observation.observed_at,
        sources=sources,
        batch_id=_first(observation.batch_id, known.batch_id if known else None),
        processed_at_ms=_first(observation.processed_at, known.processed_at_ms if known else None),
        batch=observation.batch or (known.batch if known else None),
        checkpoint_location=observation.checkpoint_location
        or (known.checkpoint_location if known else None),
        ended=observation.cause == "terminated",
        exception=observation.exception,
    )


def _source(position: SourcePosition, known: QueryState | None) -> SourceState:
    processed = position.processed
    if processed is None and known is not None:
        processed = next((s.processed for s in known.sources if s.source == position.source), None)
    return SourceState(
        source=position.source,
        isolation_level=position.isolation_level,
        processed=processed,
        planned=position.planned,
        topics=tuple(position.topics) if position.topics is not None else None,
    )


def _first(new: int | None, old: int | None) -> int | None:
    return new if new is not None else old
