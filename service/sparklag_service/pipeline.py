"""The way of the data through the service, and its life:

intake ──▶ asyncio queue ──▶ tracker ──▶ enricher ──▶ evaluator ──▶ publisher ──▶ view
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiokafka.errors import KafkaError

from sparklag_schemas import Cause, LagEvent, MeasuredBy, Settings, SparklagError
from sparklag_schemas.connection import client_options, explain_failure
from sparklag_schemas.queue import NewestQueue
from sparklag_schemas.topic_setup import create_missing, find_problems
from sparklag_schemas.topics import own_topics
from sparklag_service.counters import Counters
from sparklag_service.enricher import Enricher
from sparklag_service.evaluator import Measurement, evaluate
from sparklag_service.intakes import Delivery, Intake, delivery_queue
from sparklag_service.publisher import Cadence, LagPublisher
from sparklag_service.tasks import run_together
from sparklag_service.tracker import QueryState, Tracker
from sparklag_service.view import View
from sparklag_service.view_reader import ViewReader

_log = logging.getLogger(__name__)
_RETRY_S = 2.0
_SILENT_HEARTBEATS = 3
"""A query that nobody has published for so long is adopted by the owner of its key."""

MakeIntake = Callable[[NewestQueue[Delivery], Counters], Intake]


class Pipeline:
    """One instance of the service without its HTTP side. Create it on the loop it runs on."""

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str,
        make_intake: MakeIntake,
        measured_by: MeasuredBy,
    ) -> None:
        self.settings = settings
        self.bootstrap_servers = bootstrap_servers
        self._measured_by = measured_by
        self.counters = Counters()
        self.view = View()
        self._queue = delivery_queue(settings.queue_size, self._count_superseded)
        self._intake = make_intake(self._queue, self.counters)
        self._tracker = Tracker()
        self._enricher = Enricher(settings, bootstrap_servers, epoch_ms)
        self._publisher = LagPublisher(settings, bootstrap_servers, self.counters)
        self._view_reader = ViewReader(settings, bootstrap_servers, self.view, self.counters)
        self._cadence = Cadence(settings.publish_interval_s, settings.heartbeat_s)
        self._waiting: dict[str, _Waiting] = {}
        self._topics_ready: str | None = "the topics were not looked at yet"
        self._on_their_way: dict[str, asyncio.Task[None]] = {}

    def not_ready(self) -> dict[str, str]:
        """The parts that are not ready, and why. Empty when all are."""
        parts = {
            "topics": self._topics_ready,
            "intake": self._intake.ready,
            "view": self._view_reader.ready,
            "kafka": self._enricher.unreachable if self._tracker.queries else None,
        }
        return {part: reason for part, reason in parts.items() if reason is not None}

    async def run(self) -> None:
        """Run until cancelled, Kafka there or not: while it is away, `not_ready` says why."""
        try:
            await self._until_topics_are_ready()
            await run_together(
                self._view_reader.run(),
                self._after_view(self._intake.run),
                self._after_view(self._track),
                self._after_view(self._measure),
            )
        finally:
            for publishing in self._on_their_way.values():
                publishing.cancel()
            await asyncio.gather(*self._on_their_way.values(), return_exceptions=True)
            await self._publisher.aclose()
            await self._enricher.aclose()

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing more in, publish what was; whether that was done in time."""
        self._intake.pause()
        try:
            await asyncio.wait_for(self._queue.join(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def _until_topics_are_ready(self) -> None:
        while self._topics_ready is not None:
            try:
                await self._prepare_topics()
            except (KafkaError, SparklagError, OSError, asyncio.TimeoutError) as error:
                reason = str(error)
                if not isinstance(error, SparklagError):
                    cause = await explain_failure(self.bootstrap_servers, self.settings.kafka)
                    reason = f"Kafka at {self.bootstrap_servers}: {cause or reason}"
                if reason != self._topics_ready:
                    self._topics_ready = reason
                    _log.warning("%s; trying on", reason)
                await asyncio.sleep(_RETRY_S)
            else:
                self._topics_ready = None

    async def _prepare_topics(self) -> None:
        settings = self.settings
        specs = own_topics(settings)
        options = client_options(self.bootstrap_servers, settings.kafka)
        if settings.create_topics:
            for name in await create_missing(options, specs):
                _log.info("created topic %s", name)
        for problem in await find_problems(options, specs):
            _log.warning("%s", problem)

    async def _after_view(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A query that restarts without data is where the view says it is: that comes first."""
        await self._view_reader.caught_up.wait()
        await run()

    async def _track(self) -> None:
        while True:
            delivery = await self._queue.get()
            self.counters.observations += 1
            observation = delivery.observation
            entry = self.view.get(observation.query_id)
            if self._tracker.observe(observation, entry.event if entry else None):
                self._wait(observation.query_id, observation.cause, [delivery])
                self._enricher.ask(observation.query_id)
            else:
                self.counters.stale += 1
                self._settle([delivery])
            # A full queue is worked off without holding the loop.
            await asyncio.sleep(0)

    async def _measure(self) -> None:
        while True:
            asked = await self._enricher.next_asked()
            if asked is None:
                await self._share()
            queries = self._tracker.queries
            states = [queries[i] for i in (queries if asked is None else asked) if i in queries]
            if not states:
                continue
            # What is waiting now is in these states; what comes during the pass is not.
            waiting = {state.query_id: self._waiting.pop(state.query_id, None) for state in states}
            measurement = await self._enricher.measure(states)
            self.counters.passes += 1
            for state in states:
                self._offer(state, measurement, waiting[state.query_id])
                await asyncio.sleep(0)

    def _offer(self, state: QueryState, measurement: Measurement, waiting: _Waiting | None) -> None:
        """Publish the lag of a query, if that is due."""
        cause: Cause = waiting.cause if waiting else "refresh"
        event = evaluate(state, measurement, str(uuid4()), cause, self._measured_by)
        deliveries = waiting.deliveries if waiting else []
        now_s = time.monotonic()
        if state.query_id in self._on_their_way or not self._cadence.due(event, now_s):
            self._wait(state.query_id, cause, deliveries)
            return
        self._cadence.published(event, now_s)
        self._on_their_way[state.query_id] = asyncio.create_task(self._publish(event, deliveries))

    async def _publish(self, event: LagEvent, deliveries: list[Delivery]) -> None:
        query_id = event.query_id
        try:
            if await self._publisher.publish(event):
                self._settle(deliveries)
                if query_id in self._waiting:
                    self._enricher.ask(query_id)
            else:
                # The next refresh measures and publishes it again.
                self._cadence.forget(query_id)
                self._wait(query_id, event.cause, deliveries)
        finally:
            del self._on_their_way[query_id]

    def _wait(self, query_id: str, cause: Cause, deliveries: list[Delivery]) -> None:
        """Remember what the next event of a query covers; the newest cause names it."""
        if not deliveries:
            return
        waiting = self._waiting.setdefault(query_id, _Waiting(cause))
        newest = max((*waiting.deliveries, *deliveries), key=lambda d: d.observation.observed_at)
        waiting.deliveries += deliveries
        waiting.cause = newest.observation.cause

    def _settle(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.done()
            self._queue.task_done()

    async def _share(self) -> None:
        """Queries change hands: some are ours now, some another's, some nobody's any more."""
        now_ms = epoch_ms()
        silent_before_ms = now_ms - int(_SILENT_HEARTBEATS * self.settings.heartbeat_s * 1000)
        for entry in self.view:
            query_id = entry.event.query_id
            if query_id in self._tracker.queries or not self._intake.adopts(query_id):
                continue
            # An embedded service still runs beside its query, unless it has fallen silent.
            if entry.event.measured_by == "service" or entry.published_at_ms < silent_before_ms:
                self._tracker.adopt(entry.event)
        for query_id, state in list(self._tracker.queries.items()):
            newest = self.view.get(query_id)
            known_better = newest is not None and newest.event.observed_at > state.observed_at_ms
            if known_better or not self._intake.keeps(query_id):
                self._release(query_id)
        expired_before_ms = now_ms - int(self.settings.keep_s * 1000)
        for query_id in list(self._tracker.unheard_since(expired_before_ms)):
            if await self._publisher.forget(query_id):
                self.counters.tombstones += 1
                self._release(query_id)

    def _release(self, query_id: str) -> None:
        self._tracker.forget(query_id)
        self._cadence.forget(query_id)
        waiting = self._waiting.pop(query_id, None)
        if waiting:
            self._settle(waiting.deliveries)

    def _count_superseded(self) -> None:
        self.counters.superseded += 1


@dataclass
class _Waiting:
    """Observations that the next event of a query covers, and why it will be written."""

    cause: Cause
    deliveries: list[Delivery] = field(default_factory=list)


def epoch_ms() -> int:
    """Now."""
    return time.time_ns() // 1_000_000
