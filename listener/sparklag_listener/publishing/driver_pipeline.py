"""The listener's side of the picture, on the background loop:

query events ──▶ inbox ──▶ observer ──▶ asyncio queue ──▶ publisher, or the embedded service
       census ────▲             └─────▶ asyncio queue ──▶ offset store
                  (without a listener, the census is all)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from sparklag_listener.classic.listener_watch import Listener, ListenerWatch
from sparklag_listener.events.census import Census
from sparklag_listener.events.event_inbox import EventInbox
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.observer import Observer
from sparklag_listener.events.queries import Queries
from sparklag_listener.events.query_events import Found, Refreshed, Started, Terminated, Told
from sparklag_listener.publishing.counters import Stats
from sparklag_schemas import MalformedMessage, Observation, Origin, ResolvedSettings, Settings
from sparklag_schemas.origins import traits_of
from sparklag_schemas.runtime.queue import NewestQueue

_log = logging.getLogger("sparklag")
_DESCRIBE_TIMEOUT_S = 5.0
_RESTART_PAUSE_S = 5.0
_LOSS_OVER_S = 600.0
"""After so long without one, a lost event is told of again."""
_NO_BROKERS = "no query says which brokers it reads from, pass bootstrap_servers to observe()"
_LOST = {
    False: (
        "Spark's listener bus",
        "a listener is slow, or spark.scheduler.listenerbus.eventqueue.streams.capacity is too"
        " small",
    ),
    True: ("Spark Connect's client", "the stream of its events was interrupted"),
}
"""Whether it is a Connect client: what lost an event, and why it may have."""

Describe = Callable[[str], QueryDescription]
"""Query id to what the query says of itself. Blocks: it asks the JVM."""


class Sink(Protocol):
    """Where observations go. Marks each as done on the queue once it is safe."""

    def __call__(
        self,
        queue: NewestQueue[Observation],
        settings: ResolvedSettings,
        stats: Stats,
    ) -> Awaitable[None]:
        """Run until cancelled."""


Record = Callable[[NewestQueue[Observation], Stats], Awaitable[None]]
"""Keeps observations in the offset store, marks each as done on the queue once it is; runs until
cancelled."""


class DriverPipeline:
    """Everything that runs on the loop. Create it there."""

    def __init__(
        self,
        settings: Settings,
        describe: Describe,
        sink: Sink | None,
        stats: Stats,
        queries: Queries | None = None,
        origin: Origin = "listener",
        record: Record | None = None,
    ) -> None:
        """Without `queries` nobody asks which of them still run. `sink` or `record` may be None,
        not both."""
        self._settings = settings
        self._describe = describe
        self._sink = sink
        self._record = record
        self._stats = stats
        self._origin = origin
        self._has_events = traits_of(origin).has_events
        self._observer = Observer(
            settings.cluster,
            origin=origin,
            publish_exceptions=settings.publish_exceptions,
            publish_locations=settings.publish_locations,
        )
        self._ended = False
        self._undescribed: dict[str, str] = {}
        """Query, and its run that Spark did not describe in time."""
        self._lost_at_s: float | None = None
        self._events = EventInbox(settings.queue_size)
        self._census: Census | None = None
        if queries is not None:
            self._census = Census(
                queries,
                self._observer,
                self._events.put,
                stats,
                settings.heartbeat_s,
                None if self._has_events else settings.refresh_interval_s,
            )
        self._watch: ListenerWatch | None = None
        self._asking: list[asyncio.Task[None]] = []
        """What asks Spark something by itself."""
        self._observations = _queue(settings)
        self._to_record = _queue(settings)
        self._resolved: asyncio.Future[ResolvedSettings] = (
            asyncio.get_running_loop().create_future()
        )
        """Once it is known where Kafka is."""
        if settings.bootstrap_servers:
            self._resolved.set_result(settings.resolved())

    def watch(self, listener: Listener | None) -> None:
        """Before it runs: see to it that this listener is not forgotten."""
        if listener is not None:
            interval_s = self._settings.refresh_interval_s
            self._watch = ListenerWatch(listener, self._stats, interval_s)

    def receive(self, event: Told) -> None:
        """Take an event, on any thread. Never blocks. RuntimeError once the loop is closed."""
        # What comes after the end is nobody's.
        if not self._ended:
            self._events.put(event)

    async def run(self) -> None:
        """Observe and publish until cancelled."""
        tasks = [asyncio.create_task(self._kept_running("observer", self._observe))]
        if self._sink is not None:
            publishing = partial(self._publish, self._sink)
            tasks.append(asyncio.create_task(self._kept_running("publisher", publishing)))
        if self._record is not None:
            recording = partial(self._record, self._to_record, self._stats)
            tasks.append(asyncio.create_task(self._kept_running("offset store", recording)))
        for name, ask in (("census", self._census), ("listener watch", self._watch)):
            if ask is not None:
                asking = self._kept_running(name, partial(self._ask, ask))
                self._asking.append(asyncio.create_task(asking))
        tasks += self._asking
        try:
            # Not `gather`: it cancels them too, and the second cancellation, below, would catch
            # the publisher in the middle of disconnecting.
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end_asking(self) -> None:
        """Spark is asked nothing more."""
        for task in self._asking:
            task.cancel()

    async def ask_finally(self) -> None:
        """Without a listener: find what happened since it was asked. After `end_asking`."""
        if self._census is not None and not self._has_events:
            await self._census.run_once()

    async def flush(self) -> None:
        """Wait until all that was received is safe. Without brokers that is not waited for."""
        await self._events.join()
        waited_for = [self._to_record.join()]
        if self._resolved.done():
            waited_for.append(self._observations.join())
        await asyncio.gather(*waited_for)

    def drop_rest(self) -> None:
        """Nothing is published any more: count and tell what is lost by it."""
        lost = self._waiting()
        if lost:
            self._stats.dropped += lost
            why = self._stats.last_error or "there was no answer in time"
            unsaid = "not published" if self._record is None else "not published or not recorded"
            _log.warning("sparklag: closed with %d observations %s (%s)", lost, unsaid, why)
        self._ended = True

    def stats(self) -> Stats:
        """The counts now. On any thread."""
        return replace(
            self._stats,
            observed=self._stats.observed + self._events.dropped,
            dropped=self._stats.dropped
            + self._events.dropped
            + self._observations.dropped
            + self._to_record.dropped,
            queued=0 if self._ended else self._waiting(),
        )

    def _waiting(self) -> int:
        return self._events.qsize() + self._observations.unfinished + self._to_record.unfinished

    async def _observe(self) -> None:
        while True:
            told = await self._events.get()
            try:
                await self._observe_one(told)
            except MalformedMessage as error:
                self._stats.fail(str(error))
                _log.warning("sparklag: skipped an event: %s", error)
            finally:
                self._events.task_done()

    async def _observe_one(self, told: Told) -> None:
        event = told.event if isinstance(told, Found) else told
        from_spark = not isinstance(told, Refreshed)
        if self._has_events:
            from_spark = from_spark and not isinstance(told, Found)
        self._stats.observed += from_spark
        if isinstance(event, Started):
            # A listener's start is told of as well where its run is known already.
            if isinstance(told, Found) and self._observer.knows(event.query_id, event.run_id):
                return
            await self._learn(event)
        elif isinstance(event, Refreshed):
            if self._undescribed.get(event.query_id) == event.run_id:
                await self._learn(event)
        elif isinstance(event, Terminated):
            self._undescribed.pop(event.query_id, None)
        observation = self._observer.observe(event)
        if observation is None:
            self._stats.ignored += from_spark
            return
        # Where an idle query stands has no event of its own.
        if isinstance(told, Found) and told.lost and observation.cause != "idle":
            self._count_lost(observation)
        if self._census is not None:
            self._census.heard(observation.query_id)
        if self._record is not None:
            self._to_record.put_nowait(observation)
        if self._sink is not None:
            self._resolve(observation)
            self._observations.put_nowait(observation)

    def _count_lost(self, found: Observation) -> None:
        """Log the first of a series."""
        self._stats.recovered += 1
        now_s = time.monotonic()
        if self._lost_at_s is None or now_s - self._lost_at_s > _LOSS_OVER_S:
            bus, why = _LOST[self._origin == "connect"]
            _log.warning(
                "sparklag: %s did not bring that query %s %s (found by asking): %s",
                bus,
                found.query or found.query_id,
                found.cause,
                why,
            )
        self._lost_at_s = now_s

    async def _learn(self, event: Started | Refreshed) -> None:
        """Ask the query what it reads. Its start must not wait for this, so it is done here."""
        query_id, run_id = event.query_id, event.run_id
        if isinstance(event, Started) and self._observer.knows(query_id, run_id):
            return
        try:
            loop = asyncio.get_running_loop()
            description = await asyncio.wait_for(
                loop.run_in_executor(None, self._describe, query_id), _DESCRIBE_TIMEOUT_S
            )
        except asyncio.TimeoutError:
            self._stats.fail(f"Spark did not describe query {query_id} in {_DESCRIBE_TIMEOUT_S} s")
            self._undescribed[query_id] = run_id
            description = QueryDescription()
        else:
            self._undescribed.pop(query_id, None)
        self._observer.describe(query_id, run_id, description)

    def _resolve(self, observation: Observation) -> None:
        if self._resolved.done():
            return
        for source in observation.sources:
            if source.bootstrap_servers:
                self._resolved.set_result(self._settings.resolved(source.bootstrap_servers))
                return
        if self._stats.last_error != _NO_BROKERS:
            self._stats.fail(_NO_BROKERS)
            _log.warning("sparklag: nothing is published yet: %s", _NO_BROKERS)

    async def _publish(self, sink: Sink) -> None:
        # A second await after a restart: the future is shielded from the cancellation of one.
        settings = await asyncio.shield(self._resolved)
        await sink(self._observations, settings, self._stats)

    async def _ask(self, ask: Census | ListenerWatch) -> None:
        await ask.run()
        # The session is over, or the JVM gone: there is nobody to ask any more.
        await asyncio.get_running_loop().create_future()

    async def _kept_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A guest does not give up on one unforeseen error, nor take the driver's log over."""
        while True:
            try:
                await run()
            except Exception as error:
                self._stats.fail(f"{name}: {type(error).__name__}: {error}")
                _log.exception("sparklag: %s failed, starting it again", name)
                await asyncio.sleep(_RESTART_PAUSE_S)


def _queue(settings: Settings) -> NewestQueue[Observation]:
    return NewestQueue(settings.queue_size, key=lambda observation: observation.query_id)
