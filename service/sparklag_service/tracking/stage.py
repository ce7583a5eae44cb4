"""The tracking stage: asyncio queue ──▶ tracker ──▶ enricher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Final

from sparklag_schemas import LagEvent, Observation, ResolvedSettings
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery
from sparklag_service.tracking.query_limits import observed_partitions
from sparklag_service.tracking.query_state import QueryState, without_position
from sparklag_service.tracking.tracked_queries import TrackedQueries

_DELIVERIES_PER_PAUSE: Final = 20


class Tracking:
    """Takes deliveries off the queue; a query whose state changed is to be measured."""

    def __init__(
        self,
        settings: ResolvedSettings,
        queue: NewestQueue[Delivery],
        tracked: TrackedQueries,
        counters: Counters,
        *,
        last_event: Callable[[str], LagEvent | None],
        watches: Callable[[str], bool],
        record: Callable[[Observation], None] | None,
        request: Callable[[QueryState], None],
    ) -> None:
        """`last_event`: of a query id, as published; `watches`: whether this instance reads the
        position of a query without a driver; `record` keeps an observation that is on no topic;
        `request` has a query measured."""
        self._offsets_topic = settings.offsets_topic
        self._queue = queue
        self._tracked = tracked
        self._counters = counters
        self._last_event = last_event
        self._watches = watches
        self._record = record
        self._request = request

    async def run(self) -> None:
        """Track until cancelled."""
        for number in count(1):
            delivery = await self._queue.get()
            self._counters.observations += 1
            query_id = delivery.observation.query_id
            try:
                self._track(delivery)
            except Exception as error:
                self.failed(delivery.observation, error)
                # Read again it would only fail again.
                self._tracked.pending.settle(delivery)
            else:
                self._tracked.failures.recovered(query_id, "tracking")
            # A full queue is worked off without holding the loop, and without waiting for all
            # others after each delivery.
            if number % _DELIVERIES_PER_PAUSE == 0:
                await asyncio.sleep(0)

    def failed(self, message: Observation | LagEvent, error: Exception) -> None:
        """Track the query without a position, as far as the limits allow."""
        query_id, tracked = message.query_id, self._tracked
        tracked.failures.add(message, "tracking", error)
        if isinstance(error, OverLimit):
            what = f"position of query {query_id}: {error}"
            self._counters.refusals.add(self._offsets_topic, error.kind, what, query_id)
        if query_id in tracked:
            return
        try:
            tracked.limits.admit(query_id, 0)
        except OverLimit:
            tracked.failures.forget(query_id)
        else:
            tracked.queries[query_id] = without_position(message)

    def _track(self, delivery: Delivery) -> None:
        observation, tracked = delivery.observation, self._tracked
        query_id = observation.query_id
        if observation.run_id is None and not self._watches(query_id):
            # Another instance has owned it since it was read.
            tracked.pending.settle(delivery)
            return
        partitions = observed_partitions(observation)
        if partitions > tracked.limits.admitted(query_id):
            tracked.limits.admit(query_id, partitions)
        last_event = self._last_event(query_id)
        before = tracked.queries.get(query_id)
        is_new = tracked.tracker.observe(observation, last_event, delivery.offset, epoch_ms())
        if observation.run_id is not None and tracked.queries.get(query_id) is not before:
            # What is repeated is no sign of life.
            tracked.received(observation)
        if not is_new:
            if query_id not in tracked:
                tracked.limits.release(query_id)
            self._counters.stale += 1
            tracked.pending.settle(delivery)
            return
        state = tracked.queries[query_id]
        if state.run_id is None:
            tracked.received(observation)
            if self._record is not None:
                self._record(observation)
        tracked.pending.add(delivery)
        self._request(state)
