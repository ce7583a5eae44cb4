"""Decides which queries this instance measures: those of its partitions of `processed-offsets`,
except those that embedded services measure, until their keep time ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import LagEvent, MeasuredBy, ResolvedSettings
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.runtime.tasks import with_pauses
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.evaluation.stage import Evaluation
from sparklag_service.intakes import Intake
from sparklag_service.publishing.stage import Publishing
from sparklag_service.tracking.query_state import MeasureTime, QueryState
from sparklag_service.tracking.stage import Tracking
from sparklag_service.tracking.tracked_queries import TrackedQueries
from sparklag_service.view.feed import Arrival, ViewReader
from sparklag_service.view.view import View, is_forgettable

_log = logging.getLogger(__name__)
_REBALANCE_STEP_S: Final = 5.0
_EVICTED_AT_ONCE: Final = 100
_QUERIES_PER_PAUSE: Final = 25
"""Other tasks run after this many queries: each takes up to 0.2 ms, more with many topics."""


class Stage(Protocol):
    """A stage keeps one record of each query that this instance measures."""

    async def run(self) -> None:
        """Run until cancelled."""

    def adopt(self, event: LagEvent, at: MeasureTime) -> None:
        """Continue a query at `at` from the newest event of its previous owner. A query without an
        event is adopted by its first observation."""

    def release(self, query_id: str) -> None:
        """Forget a query that this instance no longer measures."""


@dataclass(eq=False, repr=False)
class Assignment:
    """The queries that this instance owns at present. Pure but for the clock."""

    intake: Intake
    tracked: TrackedQueries
    view: View
    _measured_by: MeasuredBy
    _silent_after_s: float

    def watches(self, query_id: str) -> bool:
        """Returns whether this instance reads the query's position itself: from a checkpoint or
        group."""
        if query_id in self.tracked:
            return self.intake.owns(query_id)
        return self.intake.may_adopt(query_id) and not self.is_measured_in_driver(query_id)

    def known_name(self, query_id: str) -> str | None:
        """See Refusals in `contract_records`. None: only a checkpoint was read, in a folder."""
        known = self.tracked.get(query_id) or self.view.event(query_id)
        return None if known is None or known.runs is None else known.display_name

    def is_measured_in_driver(self, query_id: str) -> bool:
        """Returns whether an embedded service, in the query's driver, measures it."""
        entry = self.view.get(query_id)
        return (
            entry is not None
            and self._measured_by == "service"
            and entry.event.measured_by == "embedded"
            and entry.received_s >= time.monotonic() - self._silent_after_s
        )


@dataclass(eq=False, repr=False)
class Ownership:
    """Adopts queries and releases them: on a rebalance of the group, and at each refresh."""

    _settings: ResolvedSettings
    _assignment: Assignment
    _tracking: Tracking
    _enricher: Enricher
    _evaluation: Evaluation
    _publishing: Publishing
    _view_reader: ViewReader
    _counters: Counters
    _tombstones: set[str] = field(default_factory=set)
    """Ids of queries whose tombstones were read since the last refresh."""

    def __post_init__(self) -> None:
        owned = self._assignment
        self._intake, self._tracked, self._view = owned.intake, owned.tracked, owned.view
        # In the order of the data.
        self._stages: list[Stage] = [self._tracking, self._enricher]
        self._stages += [self._evaluation, self._publishing]

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """See Follower."""

    def arrived(self, arrival: Arrival) -> None:
        if arrival.event is None:
            self._tombstones.add(arrival.query_id)

    async def forget(self, event: LagEvent) -> bool:
        """Forget a query that no source reports, whichever instance owns it. Returns whether Kafka
        acknowledged its tombstone."""
        if not await self._publishing.forget(event):
            return False
        self._counters.tombstones += 1
        self._view.remove(event.query_id)
        return True

    async def refresh(self) -> None:
        """Adopt, release and measure each `refresh_interval_s`, until cancelled: the lag of a stuck
        query grows without messages."""
        due_s = time.monotonic()
        while True:
            self._tracked.caught_up(self._intake.caught_up_s)
            await self._adopt()
            await self._release_unowned()
            self._forget_tombstoned()
            self._forget_expired()
            await self._request_tracked(self._publishing.refresh_due)
            # Missed refreshes are skipped.
            due_s = max(due_s + self._settings.refresh_interval_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    async def on_revoked(self) -> None:
        """See RebalanceHandler. Waits a limited time for events in flight. A later acknowledgement
        is harmless: readers keep the event with the highest version."""
        self._tracked.drop_queued()
        await self._publishing.finish_unowned(_REBALANCE_STEP_S)
        unowned = [i for i in self._tracked if not self._intake.owns(i)]
        async for query_id in with_pauses(unowned, _QUERIES_PER_PAUSE):
            if query_id in self._tracked:
                self._release(query_id)

    async def on_assigned(self) -> None:
        try:
            await asyncio.wait_for(self._view_reader.reach_end(), _REBALANCE_STEP_S)
        except KAFKA_FAILURES:
            _log.warning("queries are taken over from a view that may lack their newest events")
        await self._adopt()
        # Publish every adopted query before newer observations: if this instance dies, the next
        # owner reads the queries in the view.
        await self._request_tracked()

    def tracks(self, query_id: str) -> bool:
        return query_id in self._tracked

    async def _request_tracked(
        self, due: Callable[[QueryState, float], bool] | None = None
    ) -> None:
        """Request a measurement of each tracked query that is `due` now, in its newest state."""
        for query_ids in by_count(list(self._tracked), _QUERIES_PER_PAUSE):
            now_s = time.monotonic()
            records = map(self._tracked.record, query_ids)
            states = [record.state for record in records if record is not None]
            self._enricher.request(*(s for s in states if due is None or due(s, now_s)))
            await asyncio.sleep(0)

    async def _adopt(self) -> None:
        """Measure queries that nobody else measures."""
        silent_before_s = time.monotonic() - self._settings.silent_after_s
        async for query_id in with_pauses(self._view.query_ids(), _QUERIES_PER_PAUSE):
            if query_id in self._tracked or not self._intake.may_adopt(query_id):
                continue
            entry = self._view.get(query_id)
            if entry is None:
                continue  # forgotten meanwhile
            # An embedded service measures its query until it is silent.
            if entry.event.measured_by == "embedded" and entry.received_s >= silent_before_s:
                continue
            try:
                at = MeasureTime(epoch_ms(), time.monotonic(), time.monotonic())
                for stage in self._stages:
                    stage.adopt(entry.event, at)
                self._counters.adopted += 1
            except Exception as error:
                self._tracked.failed_to_track(entry.event, error)

    async def _release_unowned(self) -> None:
        """Release queries that another instance, or a driver, measures now."""
        async for query_id in with_pauses(list(self._tracked), _QUERIES_PER_PAUSE):
            state = self._tracked.get(query_id)
            if state is None:
                continue  # released meanwhile
            newest = self._view.get(query_id)
            if not self._intake.owns(query_id):
                self._release(query_id)
            elif self._assignment.is_measured_in_driver(query_id) or (
                newest is not None and newest.event.observed_at > state.observed_at
            ):
                self._tracked.settle_pending(query_id)
                self._release(query_id)

    def _forget_tombstoned(self) -> None:
        """Forget the queries whose tombstone any instance wrote, unless the driver is back. This
        instance may have published an event after that tombstone, so it writes another."""
        for query_id in list(self._tombstones):
            last = self._evaluation.last_event(query_id)
            if query_id in self._tracked and last is not None and is_forgettable(last):
                self._forget(query_id)
            else:
                self._tombstones.discard(query_id)

    def _forget_expired(self) -> None:
        """Forget queries past their keep time. At a limit also forget finished queries, the
        earliest first; dead and failed queries are alarms and stay."""
        expired_before_ms = epoch_ms() - int(self._settings.keep_s * 1000)
        for query_id in list(self._tracked.expired(expired_before_ms)):
            self._forget(query_id)
        if not self._tracked.is_full:
            return
        self._tracked.is_full = False
        finished = (
            (state.observed_at, query_id)
            for query_id, state in self._tracked.items()
            if (last := self._evaluation.last_event(query_id)) is not None
            and last.status == "FINISHED"
        )
        for _, query_id in sorted(finished)[:_EVICTED_AT_ONCE]:
            self._counters.evicted += self._forget(query_id)

    def _forget(self, query_id: str) -> bool:
        """Write a query's tombstone, then release the query. Returns whether the write began: it
        does not while an event of the query is to be published."""

        def forgotten() -> None:
            self._counters.tombstones += 1
            self._view.remove(query_id)
            self._tracked.settle_pending(query_id)
            self._release(query_id)

        return self._publishing.tombstone(query_id, forgotten)

    def _release(self, query_id: str) -> None:
        """Stop measuring a query. Its pending delivery is dropped, for the next owner."""
        self._counters.released += 1
        for stage in self._stages:
            stage.release(query_id)
