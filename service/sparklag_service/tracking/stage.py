"""The tracking stage: asyncio queue ──▶ tracker ──▶ enricher."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from itertools import count
from typing import Final

from sparklag_schemas import LagEvent, Observation, ResolvedSettings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery
from sparklag_service.tracking.query_state import MeasureTime, QueryState, restored
from sparklag_service.tracking.tracked_queries import TrackedQueries
from sparklag_service.tracking.tracker import Tracker

_DELIVERIES_PER_PAUSE: Final = 20


@dataclass(eq=False, repr=False)
class Tracking:
    """Takes deliveries off the queue, and requests measurements of queries whose state changed."""

    settings: ResolvedSettings
    queue: NewestQueue[Delivery]
    tracked: TrackedQueries
    counters: Counters
    last_event: Callable[[str], LagEvent | None]
    """Returns the published event of a query id."""
    watches: Callable[[str], bool]
    """Returns whether this instance reads the position of a query without a driver."""
    record: Callable[[Observation], None] | None
    """Stores an observation that is on no topic."""
    request: Callable[[QueryState], None]

    def __post_init__(self) -> None:
        ahead_ms = int(self.settings.limits.clock_ahead_s * 1000)
        self._tracker = Tracker(ClusterNames(self.settings).alias_of, ahead_ms)

    async def run(self) -> None:
        for number in count(1):
            delivery = await self.queue.get()
            self.counters.observations += 1
            try:
                self._track(delivery)
            except Exception as error:
                self.tracked.failed_to_track(delivery.observation, error)
                # A retry would fail again.
                self.tracked.settle(delivery)
            else:
                self.tracked.recovered(delivery.observation.query_id, "tracking")
            # Yields to the loop, but not after each delivery: that would delay a full queue.
            if number % _DELIVERIES_PER_PAUSE == 0:
                await asyncio.sleep(0)

    def adopt(self, event: LagEvent, at: MeasureTime) -> None:
        """Track the query of `event` from the position in it. Raises OverLimit."""
        self.tracked.adopt(event, at.now_s)

    def release(self, query_id: str) -> None:
        self.tracked.release(query_id)

    def _track(self, delivery: Delivery) -> None:
        observation, tracked = delivery.observation, self.tracked
        query_id = observation.query_id
        if observation.run_id is None and not self.watches(query_id):
            # Another instance became the owner after the observation was read.
            tracked.settle(delivery)
            return
        current = tracked.get(query_id)
        if current is None and (last_event := self.last_event(query_id)) is not None:
            current = restored(last_event)
        change = self._tracker.observe(current, observation, delivery.offset, epoch_ms())
        if change is None:
            self.counters.stale += 1
            tracked.settle(delivery)
            return
        query = tracked.track(change.state, observed_partitions(observation))
        # A watcher's observation does not show that the driver lives.
        if observation.run_id is not None or query.state.run_id is None:
            query.received(time.monotonic())
        if not change.is_news:
            self.counters.stale += 1
            tracked.settle(delivery)
            return
        if query.state.run_id is None and self.record is not None:
            self.record(observation)
        tracked.add_pending(query, delivery)
        self.request(query.state)


def observed_partitions(observation: Observation) -> int:
    """Upper bound of the partitions and topics in an observation."""
    return sum(
        len(source.topics or ())
        + max(_count(source.processed), _count(source.planned), _count(source.assigned))
        for source in observation.sources
    )


def _count(position: Mapping[str, Sized] | None) -> int:
    return sum(map(len, (position or {}).values()))
