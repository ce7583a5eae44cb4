"""The listener's side of the picture, on the background loop:

query events ──▶ event queue ──▶ observer ──▶ asyncio queue ──▶ publisher, or the embedded service
 query poller ────▲                 └───────▶ asyncio queue ──▶ offset store
                  (without a listener, the poller is the only source)
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from sparklag_listener.events.event_queue import (
    ActiveQuery,
    EventQueue,
    PolledEvent,
    QueuedEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.kafka_source import QueryDescription, matched_topics
from sparklag_listener.events.observer import Observer
from sparklag_listener.events.query_poller import QueryPoller
from sparklag_listener.events.session import ObservedSession
from sparklag_listener.stats import Stats
from sparklag_schemas import (
    DriverEnd,
    MalformedMessage,
    Observation,
    Origin,
    ResolvedSettings,
    Settings,
    SettingsError,
)
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.topics import own_topic_names
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag")
_DESCRIBE_TIMEOUT_S = 5.0
_RESTART_PAUSE_S = 5.0
_LOSS_LOG_INTERVAL_S = 600.0
"""A lost event is logged again after this time without one."""
NO_BROKERS = "no query names its brokers: pass bootstrap_servers to observe()"
_MAX_QUERY_IDS = 200
_LOST_BY_BUS = (
    "Spark's listener bus",
    "a listener is slow, or spark.scheduler.listenerbus.eventqueue.streams.capacity is too small",
)
_LOST_BY_CLIENT = ("Spark Connect's client", "the stream of its events was interrupted")

Sink = Callable[[NewestQueue[Observation], ResolvedSettings, Stats], Awaitable[None]]
"""The destination of observations. Marks each observation as done on the queue once it is
delivered; runs until cancelled."""

Record = Callable[[NewestQueue[Observation], Stats], Awaitable[None]]
"""Writes observations to the offset store, and marks each as done on the queue; runs until
cancelled."""


class DriverEnding(NamedTuple):
    """Why the handle is closed, for the last observation of each query that still runs."""

    driver_end: DriverEnd
    exception: str | None
    by_sigterm: bool

    @property
    def may_end_jvm(self) -> bool:
        """True: a signal to both processes also ends the JVM, just before this process."""
        return self.by_sigterm or self.driver_end == "interrupted"


@dataclass(eq=False, repr=False)
class DriverPipeline:
    """Everything that runs on the loop. Create it on the loop."""

    _settings: Settings
    _session: ObservedSession
    _sink: Sink | None
    _stats: Stats
    _origin: Origin = "listener"
    _record: Record | None = None
    _is_closed: bool = False
    _undescribed: dict[str, str] = field(default_factory=dict)
    """The run of each query that Spark did not describe in time."""
    query_ids: dict[str, None] = field(default_factory=dict)
    """The observed queries, including ended ones, the newest last."""
    _last_loss_at_s: float = -math.inf
    _polling: asyncio.Task[None] | None = None
    _running: asyncio.Task[None] | None = None
    _unresolved: set[str] = field(default_factory=set)
    """Why the brokers are not known, as logged."""

    def __post_init__(self) -> None:
        settings = self._settings
        self._has_events = traits_of(self._origin).has_events
        self._observer = Observer(
            settings.cluster, self._origin, settings.publish_exceptions, settings.publish_locations
        )
        self._events = EventQueue(settings.queue_size)
        self.poller = QueryPoller(
            *(self._session, self._observer, self._events.put, self._stats, settings.heartbeat_s),
            None if self._has_events else settings.refresh_interval_s,
        )
        self._observations = _queue(settings)
        self._to_record = _queue(settings)
        loop = asyncio.get_running_loop()
        self._resolved: asyncio.Future[ResolvedSettings] = loop.create_future()
        """Done once the brokers are known."""
        if settings.bootstrap_servers:
            self._resolved.set_result(settings.resolved())

    def receive(self, event: QueuedEvent) -> None:
        """Thread-safe, never blocks. RuntimeError once the loop is closed."""
        if not self._is_closed:
            self._events.put(event)

    async def start(self) -> None:
        """Begin to `run`, until `shut_down`."""
        self._running = asyncio.create_task(self.run())

    async def run(self) -> None:
        """Observe and publish until cancelled."""
        tasks = [self._start("observer", self._observe)]
        if self._sink is not None:
            tasks.append(self._start("publisher", partial(self._publish, self._sink)))
        if self._record is not None:
            recording = partial(self._record, self._to_record, self._stats)
            tasks.append(self._start("offset store", recording))
        self._polling = self._start("query poller", self._poll)
        tasks.append(self._polling)
        try:
            # Not `gather`: it also cancels the tasks, and the second cancellation, below, would
            # interrupt the publisher while it disconnects.
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def shut_down(self, deadline_s: float, ending: Callable[[], DriverEnding]) -> None:
        """Poll a last time, unregister the listener, publish the queued events, and end `run`, each
        in its share of the time until `deadline_s` (monotonic). Counts and logs lost events.

        `ending` is called when it is needed: the process may end while the handle is closed.
        """

        def share_s(share: float) -> float:
            return share * max(0.0, deadline_s - time.monotonic())

        if self._polling is not None:
            self._polling.cancel()
        last_poll = self.poller.run_once(may_be_stopping=ending().may_end_jvm)
        await _at_most(share_s(0.4), last_poll)
        unregister = asyncio.to_thread(self._session.stop_listening, share_s(0.4))
        await _at_most(share_s(0.5), unregister)
        await _at_most(share_s(0.3), self._events.join())
        self._end_runs(ending())
        await _at_most(share_s(0.7), self.flush())
        if self._running is not None:
            self._running.cancel()
            ended = asyncio.gather(self._running, return_exceptions=True)
            await _at_most(share_s(0.9), ended)
        self.drop_remaining()

    def _end_runs(self, ending: DriverEnding) -> None:
        driver_end, exception, by_sigterm = ending
        is_killed = self.poller.is_lost if by_sigterm else self.poller.lost_connections > 0
        if is_killed and exception is None and driver_end != "interrupted":
            return
        for run_id, query_id in self._observer.runs().items():
            end = Terminated(query_id, run_id, exception, epoch_ms(), driver_end)
            self._events.put(PolledEvent(end, lost=False))

    async def flush(self) -> None:
        """Wait until all observations are delivered, or, without brokers, recorded."""
        await self._events.join()
        pending = [self._to_record.join()]
        if self._resolved.done():
            pending.append(self._observations.join())
        await asyncio.gather(*pending)

    def drop_remaining(self) -> None:
        """Count and log the observations that are not published or recorded. Drops later events."""
        lost = self._unfinished()
        if lost:
            self._stats.dropped += lost
            reason = self._stats.last_error or "there was no answer in time"
            outcome = "not published" if self._record is None else "not published or not recorded"
            _log.warning("sparklag: closed with %d observations %s (%s)", lost, outcome, reason)
        self._is_closed = True

    @property
    def resolved_settings(self) -> ResolvedSettings | None:
        """None: no query has named the brokers yet. Thread-safe."""
        return self._resolved.result() if self._resolved.done() else None

    def stats(self) -> Stats:
        """The current counts. Thread-safe."""
        queues = self._events, self._observations, self._to_record
        return replace(
            self._stats,
            observed=self._stats.observed + self._events.dropped,
            dropped=self._stats.dropped + sum(queue.dropped for queue in queues),
            queued=0 if self._is_closed else self._unfinished(),
        )

    def _unfinished(self) -> int:
        return self._events.qsize() + self._observations.unfinished + self._to_record.unfinished

    async def _observe(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await self._observe_event(event)
            except MalformedMessage as error:
                self._stats.fail(str(error))
                _log.warning("sparklag: skipped an event: %s", error)
            finally:
                self._events.task_done()

    async def _observe_event(self, queued: QueuedEvent) -> None:
        polled = queued if isinstance(queued, PolledEvent) else None
        event = queued.event if isinstance(queued, PolledEvent) else queued
        is_from_spark = not isinstance(event, ActiveQuery) and not (self._has_events and polled)
        self._stats.observed += is_from_spark
        if isinstance(event, Started):
            # A start from the listener counts even after a polled start.
            if polled and self._observer.has_start(event.query_id, event.run_id):
                return
            await self._load_description(event)
        elif isinstance(event, ActiveQuery):
            if self._undescribed.get(event.query_id) == event.run_id:
                await self._load_description(event)
        elif isinstance(event, Terminated):
            self._undescribed.pop(event.query_id, None)
        observation = self._observer.observe(event)
        if observation is None:
            self._stats.ignored += is_from_spark
            return
        # The last progress of an idle query has no event of its own.
        if polled and polled.lost and observation.cause != "idle":
            self._count_lost(observation)
        self.poller.mark_observed(observation.query_id)
        self.query_ids.setdefault(observation.query_id)
        if len(self.query_ids) > _MAX_QUERY_IDS:
            del self.query_ids[next(iter(self.query_ids))]
        if self._record is not None:
            self._to_record.put_nowait(observation)
        if self._sink is not None:
            self._resolve(observation)
            self._observations.put_nowait(observation)

    def _count_lost(self, observation: Observation) -> None:
        self._stats.recovered += 1
        now_s = time.monotonic()
        if now_s - self._last_loss_at_s > _LOSS_LOG_INTERVAL_S:
            bus, reason = _LOST_BY_CLIENT if self._origin == "connect" else _LOST_BY_BUS
            _log.warning(
                "sparklag: %s lost an event (%s) of query %s, recovered by polling: %s",
                *(bus, observation.cause, observation.display_name, reason),
            )
        self._last_loss_at_s = now_s

    async def _load_description(self, event: Started | ActiveQuery) -> None:
        """Request the query's sources: here, since the query's start must not wait for this."""
        query_id, run_id = event.query_id, event.run_id
        if isinstance(event, Started) and self._observer.has_start(query_id, run_id):
            return
        try:
            description = await asyncio.wait_for(
                asyncio.to_thread(self._session.queries.describe, query_id), _DESCRIBE_TIMEOUT_S
            )
        except asyncio.TimeoutError:
            self._stats.fail(f"Spark did not describe query {query_id} in {_DESCRIBE_TIMEOUT_S} s")
            self._undescribed[query_id] = run_id
            description = QueryDescription()
        else:
            self._undescribed.pop(query_id, None)
            self._warn_of_feedback(query_id, description)
        self._observer.describe(query_id, run_id, description)

    def _warn_of_feedback(self, query_id: str, description: QueryDescription) -> None:
        names, home = ClusterNames(self._settings), self._settings.cluster
        for source in description.sources:
            own = matched_topics(source, own_topic_names(self._settings))
            if own and names.alias_of(source.bootstrap_servers, home) == home:
                _log.warning(
                    "sparklag: the subscribePattern of query %s also matches sparklag's own %s:"
                    " each of its batches adds records there, so it never catches up; name its"
                    " topics, or exclude these",
                    query_id,
                    ", ".join(own),
                )

    def _resolve(self, observation: Observation) -> None:
        if self._resolved.done():
            return
        problem = NO_BROKERS
        for source in observation.sources:
            if source.bootstrap_servers:
                try:
                    self._resolved.set_result(self._settings.resolved(source.bootstrap_servers))
                    return
                except SettingsError as error:
                    problem = f"option kafka.bootstrap.servers of a query: {error}"
        if problem not in self._unresolved:
            self._unresolved.add(problem)
            self._stats.fail(problem)
            _log.warning("sparklag: nothing is published yet: %s", problem)

    async def _publish(self, sink: Sink) -> None:
        # Shielded: a cancelled `_publish` must not cancel the future.
        settings = await asyncio.shield(self._resolved)
        await sink(self._observations, settings, self._stats)

    async def _poll(self) -> None:
        await self.poller.run()
        # The session is stopped, or the JVM gone: wait for the cancellation.
        await asyncio.get_running_loop().create_future()

    def _start(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self._restart_on_error(name, run))

    async def _restart_on_error(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Restarts `run` after an unexpected error, without flooding the driver's log."""
        logged = ""
        while True:
            try:
                await run()
            except (Exception, SystemExit) as error:  # a broken package may call sys.exit
                failure = f"{name}: {type(error).__name__}: {error}"
                self._stats.fail(failure)
                if failure != logged:
                    _log.exception("sparklag: %s failed, starting it again", name)
                logged = failure
                await asyncio.sleep(_RESTART_PAUSE_S)


async def _at_most(timeout_s: float, awaitable: Awaitable[object]) -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(awaitable, timeout_s)


def _queue(settings: Settings) -> NewestQueue[Observation]:
    return NewestQueue(settings.queue_size, key=lambda observation: observation.query_id)
