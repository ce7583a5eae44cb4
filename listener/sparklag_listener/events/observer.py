"""Turns query events into observations: tracks each query's position between its events. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from sparklag_listener.events.event_queue import ActiveQuery, Idled, Progressed, QueryEvent, Started
from sparklag_listener.events.kafka_source import QueryDescription, described
from sparklag_listener.events.progress import Progress, parse_progress
from sparklag_schemas import Cause, Observation, Origin, SourcePosition
from sparklag_schemas.messages.bounds import MAX_NAME
from sparklag_schemas.text.redaction import PublishExceptions, exception_line

_CACHE_SIZE = 1_000
"""The limit of ended runs, and of descriptions of ended queries."""

_INTERRUPTED = re.compile(
    r"cancelled as part of cancellation of all jobs|^KeyboardInterrupt\b", re.MULTILINE
)
"""The text of the exception of a batch that Ctrl-C ended: PySpark then cancels all jobs."""

_Value = TypeVar("_Value")


@dataclass
class _TrackedQuery:
    query_id: str
    run_id: str
    started_run_id: str | None = None
    """The run whose start was observed. The progress of a run may arrive before its start."""
    name: str | None = None
    description: QueryDescription = field(default_factory=QueryDescription)
    positions: dict[int, SourcePosition] = field(default_factory=dict)
    """The Kafka sources by their index, without `began`."""
    batch_id: int | None = None
    batch_run_id: str | None = None
    """The run of `batch_id`: a later run may begin with an earlier batch."""
    batch_started_at_ms: int | None = None
    processed_at_ms: int | None = None

    def is_past(self, progress: Progress) -> bool:
        """Returns whether the progress of this batch or a later batch was already processed."""
        if self.batch_id is None or progress.batch_id is None:
            return False
        if self.batch_run_id == progress.run_id:
            if progress.batch_id == self.batch_id:
                return progress.batch.started_at == self.batch_started_at_ms
            return progress.batch_id < self.batch_id
        # Once the current run has completed a batch, earlier runs no longer count.
        return self.run_id != progress.run_id and self.batch_run_id == self.run_id


@dataclass(eq=False, repr=False)
class Observer:
    """The position of every query of one session.

    Each observation is complete: that of an idle or ended query repeats its position. Events of a
    run may still arrive after a later run has started, since Spark sends the start at once; then
    only the position of a batch counts. `observed_at` never decreases, whatever the clock does.
    """

    _cluster: str
    _origin: Origin = "listener"
    _publish_exceptions: PublishExceptions = "redacted"
    _publish_locations: bool = True
    _queries: dict[str, _TrackedQuery] = field(default_factory=dict)
    _ended_runs: dict[str, None] = field(default_factory=dict)
    _descriptions: dict[str, QueryDescription] = field(default_factory=dict)
    """The descriptions of ended queries: the next run may be too short to be described."""
    _newest_ms: int = 0

    def runs(self) -> dict[str, str]:
        """Query ids by the run ids of active runs."""
        return {query.run_id: query_id for query_id, query in self._queries.items()}

    def batch_of(self, query_id: str, run_id: str) -> int | None:
        """The last observed batch of an active run."""
        query = self._queries.get(query_id)
        return query.batch_id if query is not None and query.batch_run_id == run_id else None

    def has_run(self, query_id: str, run_id: str) -> bool:
        """True where this run is tracked, or has ended."""
        query = self._queries.get(query_id)
        return run_id in self._ended_runs or (query is not None and query.run_id == run_id)

    def has_start(self, query_id: str, run_id: str) -> bool:
        """True where the start of this run was observed, or it has ended."""
        query = self._queries.get(query_id)
        return run_id in self._ended_runs or (query is not None and query.started_run_id == run_id)

    def describe(self, query_id: str, run_id: str, description: QueryDescription) -> None:
        """Set the description of a run."""
        query = self._track(query_id, run_id)
        if description.sources or not query.description.sources:
            query.description = description

    def observe(self, event: QueryEvent) -> Observation | None:
        """The observation of `event`.

        None for a query without Kafka sources, for a progress that is repeated or older than the
        last, and for other events of a run that has ended.
        Raises MalformedMessage where Spark's JSON cannot be parsed.
        """
        if isinstance(event, Progressed):
            return self._progressed(parse_progress(event.text), event.at_ms)
        if event.run_id in self._ended_runs:
            return None
        if isinstance(event, ActiveQuery):
            tracked = self._queries.get(event.query_id)
            if tracked is None or tracked.run_id != event.run_id:
                # It is not known which of the two runs is later.
                return None
            return self._observation(
                *(tracked, "refresh", event.at_ms),
                activity=event.activity,
                running_batch=event.running_batch,
            )
        query = self._track(event.query_id, event.run_id)
        if isinstance(event, Started):
            query.name = event.name[:MAX_NAME] if event.name else event.name
            query.started_run_id = event.run_id
            return self._observation(query, "started", event.at_ms)
        if isinstance(event, Idled):
            return self._observation(query, "idle", event.at_ms)
        # The service retains the position for a restart; a driver that starts many short queries
        # must not.
        del self._queries[event.query_id]
        _cache(self._ended_runs, event.run_id, None)
        if query.description.sources:
            _cache(self._descriptions, event.query_id, query.description)
        cause: Cause = "closed" if event.driver_end == "closed" else "terminated"
        driver_end, exception = event.driver_end, event.exception
        if exception and _INTERRUPTED.search(exception):
            driver_end, exception = "interrupted", None
        exception = exception and exception_line(exception, self._publish_exceptions)
        return self._observation(
            query, cause, event.at_ms, driver_end=driver_end, exception=exception or None
        )

    def _track(self, query_id: str, run_id: str) -> _TrackedQuery:
        query = self._queries.get(query_id)
        if query is None:
            description = self._descriptions.get(query_id, QueryDescription())
            query = _TrackedQuery(query_id, run_id, description=description)
            self._queries[query_id] = query
        if query.run_id != run_id:
            _cache(self._ended_runs, query.run_id, None)
            query.run_id = run_id
        return query

    def _progressed(self, progress: Progress, at_ms: int) -> Observation | None:
        if progress.run_id not in self._ended_runs:
            query = self._track(progress.query_id, progress.run_id)
        elif progress.query_id in self._queries:
            query = self._queries[progress.query_id]
        else:
            return None
        if query.is_past(progress):
            return None
        if query.run_id == progress.run_id:
            # Its name may differ from an earlier run's.
            query.name = progress.name
        if not progress.idle:
            query.processed_at_ms = progress.completed_at_ms
            query.batch_started_at_ms = progress.batch.started_at
        elif query.batch_id != progress.batch_id:
            query.processed_at_ms = query.batch_started_at_ms = None
        query.batch_id = progress.batch_id
        query.batch_run_id = progress.run_id
        batch_positions = dict(query.positions)
        for index, position in progress.sources.items():
            before = query.positions.get(index)
            if position.processed is None and before is not None:
                position = replace(position, processed=before.processed)
            batch_positions[index] = position
            query.positions[index] = replace(position, began=None)
        if progress.idle:
            return self._observation(query, "idle", at_ms)
        return self._observation(query, "progress", at_ms, batch_positions, batch=progress.batch)

    def _observation(
        self,
        query: _TrackedQuery,
        cause: Cause,
        at_ms: int,
        positions: Mapping[int, SourcePosition] | None = None,
        **details: Any,
    ) -> Observation | None:
        """`positions`: in place of the query's. `details`: fields that only this cause has."""
        positions = query.positions if positions is None else positions
        sources = described(positions.values(), query.description)
        if not sources:
            return None
        self._newest_ms = max(self._newest_ms, at_ms)
        description, publish = query.description, self._publish_locations
        return Observation(
            observation_id=str(uuid4()),
            cluster=self._cluster,
            origin=self._origin,
            query_id=query.query_id,
            run_id=query.run_id,
            query=query.name,
            application=description.application,
            spark_ui_url=description.spark_ui_url if publish else None,
            ends_by_itself=description.ends_by_itself,
            cause=cause,
            observed_at=self._newest_ms,
            batch_id=query.batch_id,
            processed_at=query.processed_at_ms,
            sources=sources,
            checkpoint_location=description.checkpoint_location if publish else None,
            mode=description.mode,
            trigger_interval_s=description.trigger_interval_s,
            **details,
        )


def _cache(cache: dict[str, _Value], key: str, value: _Value) -> None:
    cache.pop(key, None)
    cache[key] = value
    if len(cache) > _CACHE_SIZE:
        del cache[next(iter(cache))]
