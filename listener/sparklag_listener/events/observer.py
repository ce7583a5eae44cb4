"""Turns query events into observations: remembers each query's position between its events.

Pure: no clock, no Spark, no Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import uuid4

from sparklag_listener.events.kafka_source import KafkaSource, QueryDescription
from sparklag_listener.events.progress import Progress, parse_progress
from sparklag_listener.events.query_events import Idled, Progressed, QueryEvent, Refreshed, Started
from sparklag_listener.events.source_positions import positions
from sparklag_schemas import Activity, Batch, Cause, Observation, Offsets, Origin
from sparklag_schemas.bounds import MAX_NAME
from sparklag_schemas.redaction import PublishExceptions, exception_line

_REMEMBERED = 1_000
"""Runs that are over, and queries."""
_NOT_KNOWN: Final[Mapping[int, Offsets | None]] = MappingProxyType({})

Kept = TypeVar("Kept")


@dataclass
class _Query:
    run_id: str
    name: str | None = None
    description: QueryDescription = field(default_factory=QueryDescription)
    processed: dict[int, Offsets | None] = field(default_factory=dict)
    named: dict[int, KafkaSource] = field(default_factory=dict)
    """What its progress says that it reads: for where there is no description."""
    batch_id: int | None = None
    batch_run_id: str | None = None
    """The run that `batch_id` is of: a later one may begin with an earlier batch."""
    batch_started_at_ms: int | None = None
    processed_at_ms: int | None = None

    def has(self, progress: Progress) -> bool:
        """Whether it was seen already, or the position known is of a later batch."""
        if self.batch_id is None or progress.batch_id is None:
            return False
        if self.batch_run_id == progress.run_id:
            if progress.batch_id == self.batch_id:
                return progress.batch.started_at == self.batch_started_at_ms
            return progress.batch_id < self.batch_id
        # Once the run that goes on has completed a batch, an earlier one has nothing to add.
        return self.run_id != progress.run_id and self.batch_run_id == self.run_id


class Observer:
    """The position of every query of one session.

    Each observation is whole: one that says a query is idle or has ended repeats its position.
    Events of a run may still come when a later run has started, which Spark tells of at once:
    they no longer say what the query does, only a batch's position counts.
    `observed_at` never goes back, whatever the machine's clock does.
    """

    def __init__(
        self,
        cluster: str,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        origin: Origin = "listener",
        publish_exceptions: PublishExceptions = "redacted",
        publish_locations: bool = True,
    ) -> None:
        self._cluster = cluster
        self._origin = origin
        self._publish_exceptions = publish_exceptions
        self._publish_locations = publish_locations
        self._new_id = new_id
        self._queries: dict[str, _Query] = {}
        self._over: dict[str, None] = {}
        self._described: dict[str, QueryDescription] = {}
        """What queries that have ended said of themselves: the next run may be too short to ask."""
        self._newest_ms = 0

    def runs(self) -> dict[str, str]:
        """The query of each run that goes on, as far as is known."""
        return {query.run_id: query_id for query_id, query in self._queries.items()}

    def batch_of(self, query_id: str, run_id: str) -> int | None:
        """The last batch that was seen of a run that goes on."""
        query = self._queries.get(query_id)
        return query.batch_id if query is not None and query.batch_run_id == run_id else None

    def knows(self, query_id: str, run_id: str) -> bool:
        """Whether this run was described already, or is over."""
        query = self._queries.get(query_id)
        return run_id in self._over or (query is not None and query.run_id == run_id)

    def describe(self, query_id: str, run_id: str, description: QueryDescription) -> None:
        """Remember what a run says of itself."""
        query = self._enter(query_id, run_id)
        if description.sources or not query.description.sources:
            query.description = description

    def observe(self, event: QueryEvent) -> Observation | None:
        """The observation `event` makes.

        None for a query without Kafka sources, for a progress seen already or older than one that
        was, and for what else comes late: from a run that is over.
        Raises MalformedMessage where Spark's JSON cannot be read.
        """
        if isinstance(event, Progressed):
            return self._progressed(parse_progress(event.text), event.at_ms)
        if event.run_id in self._over:
            return None
        if isinstance(event, Refreshed):
            return self._refreshed(event)
        query = self._enter(event.query_id, event.run_id)
        if isinstance(event, Started):
            query.name = event.name[:MAX_NAME] if event.name else event.name
            return self._observation(event.query_id, query, "started", event.at_ms)
        if isinstance(event, Idled):
            return self._observation(event.query_id, query, "idle", event.at_ms)
        # A restart begins anew: the service remembers the position, a driver that starts many
        # short queries must not.
        del self._queries[event.query_id]
        _remember(self._over, event.run_id, None)
        if query.description.sources:
            _remember(self._described, event.query_id, query.description)
        return self._observation(
            event.query_id,
            query,
            "terminated",
            event.at_ms,
            exception=exception_line(event.exception, self._publish_exceptions)
            if event.exception
            else None,
        )

    def _refreshed(self, event: Refreshed) -> Observation | None:
        query = self._queries.get(event.query_id)
        if query is None or query.run_id != event.run_id:
            # It says that a run goes on, not which one of two is the later.
            return None
        return self._observation(
            event.query_id, query, "refresh", event.at_ms, activity=event.activity
        )

    def _enter(self, query_id: str, run_id: str) -> _Query:
        query = self._queries.get(query_id)
        if query is None:
            known = self._described.get(query_id, QueryDescription())
            query = self._queries[query_id] = _Query(run_id, description=known)
        if query.run_id != run_id:
            _remember(self._over, query.run_id, None)
            query.run_id = run_id
        return query

    def _progressed(self, progress: Progress, at_ms: int) -> Observation | None:
        if progress.run_id not in self._over:
            query = self._enter(progress.query_id, progress.run_id)
        elif progress.query_id in self._queries:
            query = self._queries[progress.query_id]
        else:
            return None
        if query.has(progress):
            return None
        if query.run_id == progress.run_id:
            # It may have been given another name since an earlier run.
            query.name = progress.name
        if not progress.idle:
            query.processed_at_ms = progress.completed_at_ms
            query.batch_started_at_ms = progress.batch.started_at
        elif query.batch_id != progress.batch_id:
            query.processed_at_ms = query.batch_started_at_ms = None
        query.batch_id = progress.batch_id
        query.batch_run_id = progress.run_id
        query.named.update(progress.named)
        for source, offsets in progress.processed.items():
            if offsets is not None or source not in query.processed:
                query.processed[source] = offsets
        if progress.idle:
            return self._observation(progress.query_id, query, "idle", at_ms)
        return self._observation(
            progress.query_id, query, "progress", at_ms, batch=progress.batch, began=progress.began
        )

    def _observation(
        self,
        query_id: str,
        query: _Query,
        cause: Cause,
        at_ms: int,
        *,
        batch: Batch | None = None,
        began: Mapping[int, Offsets | None] = _NOT_KNOWN,
        exception: str | None = None,
        activity: Activity | None = None,
    ) -> Observation | None:
        sources = positions(query.processed, began, query.description, query.named)
        if not sources:
            return None
        self._newest_ms = max(self._newest_ms, at_ms)
        return Observation(
            observation_id=self._new_id(),
            cluster=self._cluster,
            origin=self._origin,
            query_id=query_id,
            run_id=query.run_id,
            query=query.name,
            cause=cause,
            observed_at=self._newest_ms,
            batch_id=query.batch_id,
            processed_at=query.processed_at_ms,
            sources=sources,
            batch=batch,
            activity=activity,
            checkpoint_location=(
                query.description.checkpoint_location if self._publish_locations else None
            ),
            exception=exception,
        )


def _remember(kept: dict[str, Kept], key: str, value: Kept) -> None:
    """As the newest; the oldest goes where there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]
