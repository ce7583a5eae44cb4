"""Publishes lag events to `consumer-lag`, keyed by query id; and what they say of each partition,
where that is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from msgspec.structs import replace

from sparklag_schemas import LagEvent, MeasuredBy, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.headers import Headers, lag_event_headers
from sparklag_schemas.messages.topics import LagPartitions, key_of
from sparklag_schemas.runtime.tasks import cancel_and_wait, run_together
from sparklag_service.counters import Counters
from sparklag_service.evaluation.evaluator import unknown_event
from sparklag_service.intakes import Delivery
from sparklag_service.publishing.cadence import Cadence
from sparklag_service.publishing.partition_publisher import Outcome, PartitionPublisher, TopicWriter
from sparklag_service.publishing.traces import PUBLISHED_SPAN, PublishedTraces
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracked_queries import TrackedQueries


class Publishing:
    """Publishes the events that are due, one of a query at a time; the deliveries that an
    acknowledged event covers are settled."""

    def __init__(
        self,
        settings: ResolvedSettings,
        tracked: TrackedQueries,
        counters: Counters,
        formats: MessageFormats,
        measured_by: MeasuredBy,
        *,
        owns: Callable[[str], bool],
        successor: Callable[[LagEvent], str | None],
        request: Callable[[QueryState], None],
    ) -> None:
        """`owns`: whether this instance publishes a query id; `successor`: the id of the query that
        has taken over the name of an event's; `request` has a query measured."""
        self._cadence = Cadence(settings)
        topic = settings.lag_topic
        self.writer = TopicWriter(settings, topic, formats.writer(LagEvent, topic))
        """Of lag events and tombstones."""
        self._lag_partitions = LagPartitions(settings.own_partitions)
        self._by_partition: PartitionPublisher | None = None
        if settings.partition_records:
            self._by_partition = PartitionPublisher(settings, owns, counters, formats)
        self._counters = counters
        self._tracked = tracked
        self._measured_by = measured_by
        self._owns = owns
        self._successor = successor
        self._request = request
        self.traces = PublishedTraces(counters)
        """Of batches whose event is acknowledged."""
        self._in_flight: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._in_flight)

    async def run(self) -> None:
        """Get ready to publish, and stay so until cancelled."""
        by_partition = [] if self._by_partition is None else [self._by_partition.run()]
        await run_together(self.writer.stay_ready(), *by_partition)

    def is_idle(self, query_id: str) -> bool:
        """Whether nothing of a query is in flight, or waits to be published."""
        return query_id not in self._in_flight and query_id not in self._tracked.pending

    def refresh_due(self, state: QueryState, now_s: float) -> bool:
        """Whether to measure a query again at `now_s` (`time.monotonic()`)."""
        return self._cadence.refresh_due(state.query, state.query_id, now_s)

    def offer(self, event: LagEvent, state: QueryState, now_s: float) -> None:
        """Publish `event`, measured from `state`, if it is due at `now_s` (`time.monotonic()`)."""
        query_id = event.query_id
        if query_id in self._in_flight or not self._owns(query_id):
            return
        successor = self._successor(event)
        if successor is not None:
            event = replace(event, superseded_by=successor)
        if self._cadence.due(event, now_s):
            covered = self._tracked.pending.covered(state)
            self._cadence.published(event, now_s)
            if covered is not None:
                self._tracked.pending.take(query_id)
            self._start(query_id, self._publish(event, covered, state))

    async def publish(self, event: LagEvent, covered: Delivery | None = None) -> bool:
        """Write `event`, which covers that delivery; whether there is nothing more to do:
        acknowledged, or refused for good by its size."""
        headers = lag_event_headers(event, self.writer.content_type)
        trace = None if covered is None else covered.trace
        if trace is not None:
            headers.append(trace.context.span(PUBLISHED_SPAN).header)
        outcome = await self._write(event.query_id, event.query, event, headers)
        if outcome != "failed" and self._by_partition is not None:
            self._by_partition.published(event)
        if outcome == "acknowledged" and covered is not None and trace is not None:
            self.traces.add(trace, covered.observation, event)
        return outcome != "failed"

    async def forget(self, event: LagEvent) -> bool:
        """Write the tombstone of a query that any instance may track; whether it is acknowledged:
        its owner reads it there."""
        return await self._write(event.query_id, event.query, None, []) != "failed"

    def tombstone(self, query_id: str, on_written: Callable[[], None]) -> None:
        """Write the tombstone of a tracked query; call `on_written` once it is acknowledged."""
        name = self._tracked.queries[query_id].query

        async def write() -> None:
            if await self._write(query_id, name, None, []) != "failed":
                if self._by_partition is not None:
                    self._by_partition.forget(query_id)
                on_written()

        self._start(query_id, write())

    def adopt(self, event: LagEvent) -> None:
        """The query's newest event is another instance's."""
        if self._by_partition is not None:
            self._by_partition.adopt(event)

    def release(self, query_id: str, *, forgotten: bool = False) -> None:
        """Another instance publishes it, or nobody does: it is `forgotten`."""
        if self._by_partition is not None and not forgotten:
            self._by_partition.release(query_id)
        self._cadence.forget(query_id)

    async def finish(self, query_ids: Iterable[str], timeout_s: float) -> None:
        """Wait for what is in flight of these; cancel what is not acknowledged in time."""
        tasks = [task for i in query_ids if (task := self._in_flight.get(i)) is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            await cancel_and_wait(*late)

    async def aclose(self) -> None:
        """Cancel what is in flight, and disconnect."""
        await cancel_and_wait(*self._in_flight.values())
        await self.writer.aclose()

    @property
    def in_flight(self) -> list[str]:
        """Ids of the queries of which a message is in flight."""
        return list(self._in_flight)

    def _start(self, query_id: str, write: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(write)
        self._in_flight[query_id] = task
        task.add_done_callback(lambda _: self._in_flight.pop(query_id))

    async def _publish(self, event: LagEvent, covered: Delivery | None, state: QueryState) -> None:
        query_id, pending = event.query_id, self._tracked.pending
        try:
            published = await self._publish_or_unknown(event, covered, state)
        except asyncio.CancelledError:
            pending.drop(covered)
            raise
        if published:
            pending.settle(covered)
            if query_id in pending:
                self._request(self._tracked.queries[query_id])
            return
        # The next refresh measures and publishes it again.
        self._cadence.forget(query_id)
        if covered is not None and query_id in self._tracked:
            pending.put_back(covered)
        else:
            pending.drop(covered)

    async def _publish_or_unknown(
        self, event: LagEvent, covered: Delivery | None, state: QueryState
    ) -> bool:
        """Whether nothing is left to do. In place of an event that cannot be written, one without
        numbers is."""
        failures = self._tracked.failures
        try:
            return await self.publish(event, covered)
        except Exception as error:
            failures.add(event, "publishing", error)
        reason = failures.reason(event.query_id)
        # The next event may be writable.
        failures.recovered(event.query_id, "publishing")
        unknown = unknown_event(
            state, self._measured_by, event.measured_at, event_id=event.event_id, reason=reason
        )
        try:
            return await self.publish(unknown, covered)
        except Exception as error:
            failures.add(event, "publishing", error)
            return True

    async def _write(
        self, query_id: str, query: str | None, event: LagEvent | None, headers: Headers
    ) -> Outcome:
        """Write `event`, or without one the tombstone. But for `failed` nothing is left to do."""
        outcome = await self.writer.write(
            key_of(query_id), event, headers, self._lag_partitions.choice_of(query_id, query)
        )
        match outcome:
            case "acknowledged":
                self._counters.published += 1
            case "too large":
                self._counters.too_large += 1
            case "failed":
                self._counters.publish_failures += 1
        return outcome
