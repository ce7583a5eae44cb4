"""The publishing stage: writes lag events to `consumer-lag`, keyed by query id, and, if configured,
partition records to `consumer-lag-partitions`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from sparklag_schemas import LagEvent, MeasuredBy, PartitionRecord, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.headers import Headers, lag_event_headers, partition_headers
from sparklag_schemas.messages.topics import LagPartitions, key_of
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.runtime.tasks import cancel_and_wait, run_together
from sparklag_service.counters import Counters
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.evaluator import unknown_event
from sparklag_service.intakes import Delivery
from sparklag_service.publishing.own_topics import Outcome, TopicWriter
from sparklag_service.publishing.published_query import (
    Cadence,
    Change,
    PartitionChanges,
    PublishedQuery,
)
from sparklag_service.publishing.traces import PUBLISHED_SPAN, PublishedTraces
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracked_queries import TrackedQueries

_AT_ONCE: Final = 200
_RETRY_S: Final = 2.0


@dataclass(eq=False, repr=False)
class Publishing:
    """Publishes the events that are due, one at a time for each query, and settles the deliveries
    that an acknowledged event covers."""

    _settings: ResolvedSettings
    _tracked: TrackedQueries
    _counters: Counters
    _formats: MessageFormats
    _measured_by: MeasuredBy
    owns: Callable[[str], bool]
    """Returns whether this instance publishes a query id."""
    successor: Callable[[LagEvent], str | None]
    """Returns the id of the query that took over the name of an event's query."""
    request: Callable[[QueryState], None]
    _queries: dict[str, PublishedQuery] = field(default_factory=dict)
    _in_flight: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        settings, formats = self._settings, self._formats
        topic = settings.lag_topic
        self.writer = TopicWriter(settings, topic, formats.writer(LagEvent, topic))
        self._lag_partitions = LagPartitions(settings.own_partitions)
        self._by_partition: PartitionPublisher | None = None
        if settings.partition_records:
            topic = settings.partition_topic
            writer = TopicWriter(settings, topic, formats.writer(PartitionRecord, topic))
            self._by_partition = PartitionPublisher(
                writer, self.owns, self._counters, self._drop_if_over
            )
        self.traces = PublishedTraces(self._counters)
        """The traces of batches whose event is acknowledged."""

    def __len__(self) -> int:
        return len(self._in_flight)

    async def run(self) -> None:
        by_partition = [] if self._by_partition is None else [self._by_partition.run()]
        await run_together(self.writer.stay_ready(), *by_partition)

    def adopt(self, event: LagEvent, at: MeasureTime) -> None:
        query = self._query(event.query_id)
        if self._by_partition is not None:
            query.partitions.take_over(event)

    def release(self, query_id: str) -> None:
        query = self._queries.get(query_id)
        if query is not None:
            query.is_released = True
            query.cadence.forget()
            self.writer.forget(key_of(query_id))
            if not query.is_forgotten:
                query.unwritten = None
                query.partitions = PartitionChanges(self._settings.partition_heartbeat_s)
            self._drop_if_over(query)

    def refresh_due(self, state: QueryState, now_s: float) -> bool:
        """Returns whether to measure a query again at `now_s` (`time.monotonic()`)."""
        query = self._queries.get(state.query_id)
        return query is None or query.cadence.refresh_due(state.query, state.query_id, now_s)

    def offer(self, event: LagEvent, state: QueryState, now_s: float) -> None:
        """Publish `event`, measured from `state`, if it is due at `now_s` (`time.monotonic()`)."""
        query = self._query(event.query_id)
        if query.in_flight is not None or not self.owns(event.query_id):
            return
        successor = self.successor(event)
        if successor is not None:
            event = replace(event, superseded_by=successor)
        if query.cadence.due(event, now_s):
            query.cadence.published(event, now_s)
            tracked = self._tracked.record(event.query_id)
            covered = None if tracked is None else tracked.take_covered(state)
            self._start(query, self._publish(query, event, covered, state))

    async def publish(self, event: LagEvent, covered: Delivery | None = None) -> bool:
        """Write `event`, which covers a delivery. Returns True if it is acknowledged, or too large
        for a retry."""
        group_id = self._settings.group_id if self._measured_by == "service" else None
        headers = lag_event_headers(event, self.writer.form.content_type, group_id)
        trace = None if covered is None else covered.trace
        if trace is not None:
            headers.append(trace.context.span(PUBLISHED_SPAN).header)
        outcome = await self._write(event.query_id, event.query, event, headers)
        query = self._queries.get(event.query_id)
        if outcome != "failed" and self._by_partition is not None and query is not None:
            self._by_partition.published(query, event)
        if outcome == "acknowledged" and covered is not None and trace is not None:
            self.traces.add(trace, covered.observation, event)
        return outcome != "failed"

    async def forget(self, event: LagEvent) -> bool:
        """Write the tombstone of a query that any instance may track. Returns whether it is
        acknowledged: the query's owner reads it from the topic."""
        return await self._write(event.query_id, event.query, None, []) != "failed"

    def tombstone(self, query_id: str, on_written: Callable[[], None]) -> bool:
        """Write the tombstone of a tracked query, and call `on_written` once it is acknowledged.
        Returns False if an event of the query is in flight or to be published."""
        tracked = self._tracked.record(query_id)
        if tracked is None or tracked.pending is not None:
            return False
        query = self._query(query_id)
        if query.in_flight is not None:
            return False
        name = tracked.state.query

        async def write() -> None:
            if await self._write(query_id, name, None, []) != "failed":
                if self._by_partition is not None:
                    self._by_partition.forget(query)
                on_written()

        self._start(query, write())
        return True

    async def finish_unowned(self, timeout_s: float) -> None:
        """Wait for writes of queries that this instance no longer owns; cancel those that are not
        acknowledged in time."""
        tasks = [
            query.in_flight
            for query in self._queries.values()
            if query.in_flight is not None and not self.owns(query.query_id)
        ]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            await cancel_and_wait(*late)

    async def aclose(self) -> None:
        """Cancel all writes in flight, and disconnect."""
        await cancel_and_wait(*self._in_flight)
        await self.writer.producer.aclose()

    def _query(self, query_id: str) -> PublishedQuery:
        """The record of a query that this instance publishes; creates it if missing."""
        query = self._queries.get(query_id)
        if query is None:
            query = self._queries[query_id] = PublishedQuery(
                query_id,
                Cadence(self._settings),
                PartitionChanges(self._settings.partition_heartbeat_s),
            )
        query.is_released = False
        return query

    def _drop_if_over(self, query: PublishedQuery) -> None:
        if query.is_released and query.in_flight is None and not query.is_forgotten:
            self._queries.pop(query.query_id, None)

    def _start(self, query: PublishedQuery, write: Coroutine[Any, Any, None]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._in_flight.discard(task)
            assert query.in_flight is task, f"two writes of query {query.query_id} are in flight"
            query.in_flight = None
            self._drop_if_over(query)

        task = query.in_flight = asyncio.create_task(write)
        self._in_flight.add(task)
        task.add_done_callback(ended)

    async def _publish(
        self, query: PublishedQuery, event: LagEvent, covered: Delivery | None, state: QueryState
    ) -> None:
        tracked = self._tracked
        try:
            published = await self._publish_or_unknown(event, covered, state)
        except asyncio.CancelledError:
            tracked.drop(covered)
            raise
        if published:
            tracked.settle(covered)
            record = tracked.record(event.query_id)
            if record is not None and record.pending is not None:
                self.request(record.state)
            return
        # The next refresh measures and publishes the query again.
        query.cadence.forget()
        if covered is not None:
            tracked.put_back(covered)

    async def _publish_or_unknown(
        self, event: LagEvent, covered: Delivery | None, state: QueryState
    ) -> bool:
        """Write `event`, or an event without numbers if `event` fails. Returns False if a retry is
        needed."""
        try:
            return await self.publish(event, covered)
        except Exception as error:
            reason = self._tracked.failed(event, "publishing", error)
        # The next event may not fail.
        self._tracked.recovered(event.query_id, "publishing")
        unknown = unknown_event(
            state, self._measured_by, event.measured_at, event_id=event.event_id, reason=reason
        )
        try:
            return await self.publish(unknown, covered)
        except Exception as error:
            self._tracked.failed(event, "publishing", error)
            return True

    async def _write(
        self, query_id: str, query: str | None, event: LagEvent | None, headers: Headers
    ) -> Outcome:
        """Write `event`, or the tombstone without an event. Only `failed` needs a retry."""
        partitioner = partial(self._lag_partitions.choose, query_id, query)
        outcome = await self.writer.write(key_of(query_id), event, headers, partitioner)
        match outcome:
            case "acknowledged":
                self._counters.published += 1
            case "too large":
                self._counters.too_large += 1
            case "failed":
                self._counters.publish_failures += 1
        return outcome


@dataclass(eq=False, repr=False)
class PartitionPublisher:
    """Writes partition records next to the events. A failed record is written again with the
    query's next event, at the latest at the heartbeat."""

    _writer: TopicWriter
    _owns: Callable[[str], bool]
    _counters: Counters
    _on_forgotten: Callable[[PublishedQuery], None]
    """Called once every partition of a query has its tombstone."""
    _queue: asyncio.Queue[PublishedQuery] = field(default_factory=asyncio.Queue)

    def published(self, query: PublishedQuery, event: LagEvent) -> None:
        """Queue the partition records that `event` changes."""
        if not query.is_released:
            query.unwritten, query.is_forgotten = event, False
            self._enqueue(query)

    def forget(self, query: PublishedQuery) -> None:
        """Queue a tombstone for each partition of a query."""
        query.unwritten, query.is_forgotten = None, True
        self._enqueue(query)

    async def run(self) -> None:
        try:
            while True:
                query = await self._queue.get()
                query.is_queued = False
                event, query.unwritten = query.unwritten, None
                if event is not None:
                    if self._owns(query.query_id):
                        changes = query.partitions.due(event, time.monotonic())
                        await self._write_all(query, changes, event.cluster)
                elif query.is_forgotten:
                    if await self._write_all(query, query.partitions.all_gone()):
                        query.is_forgotten = False
                        self._on_forgotten(query)
                    else:
                        # The query has no further event that would retry.
                        self._enqueue(query)
                        await asyncio.sleep(_RETRY_S)
        finally:
            await self._writer.producer.aclose()

    def _enqueue(self, query: PublishedQuery) -> None:
        if not query.is_queued:
            query.is_queued = True
            self._queue.put_nowait(query)

    async def _write_all(
        self, query: PublishedQuery, changes: list[Change], cluster: str = ""
    ) -> bool:
        """Write records. Returns whether no record needs a retry."""
        succeeded, partitions = True, query.partitions
        for chunk in by_count(changes, _AT_ONCE):
            written = await asyncio.gather(*(self._write(change, cluster) for change in chunk))
            for change, is_written in zip(chunk, written, strict=True):
                if is_written:
                    partitions.written(change)
                succeeded = succeeded and is_written
        return succeeded

    async def _write(self, change: Change, cluster: str) -> bool:
        headers = []
        if change.record is not None:
            headers = partition_headers(
                change.record, change.key, cluster, self._writer.form.content_type
            )
        outcome = await self._writer.write(change.key.encode(), change.record, headers)
        if outcome == "acknowledged":
            self._counters.partition_records += 1
        else:
            self._counters.partition_failures += 1
        return outcome != "failed"
