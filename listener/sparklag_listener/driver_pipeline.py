"""The listener's side of the picture, on the background loop:

query events ──▶ observer ──▶ asyncio queue ──▶ publisher, or the embedded service
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from sparklag_listener.counters import Stats
from sparklag_listener.observer import Observer
from sparklag_listener.query_events import QueryEvent, Started
from sparklag_listener.spark_session import QueryDescription
from sparklag_schemas import MalformedMessage, Observation, Settings
from sparklag_schemas.queue import NewestQueue

_log = logging.getLogger("sparklag")
_DESCRIBE_TIMEOUT_S = 5.0
_RESTART_PAUSE_S = 5.0
_NO_BROKERS = "no query says which brokers it reads from, pass bootstrap_servers to observe()"

Describe = Callable[[str], QueryDescription]
"""Query id to what the query says of itself. Blocks: it asks the JVM."""


class Sink(Protocol):
    """Where observations go. Marks each as done on the queue once it is safe."""

    def __call__(
        self,
        queue: NewestQueue[Observation],
        settings: Settings,
        bootstrap_servers: str,
        stats: Stats,
    ) -> Awaitable[None]:
        """Run until cancelled."""


class DriverPipeline:
    """Everything that runs on the loop. Create it there."""

    def __init__(self, settings: Settings, describe: Describe, sink: Sink, stats: Stats) -> None:
        self._settings = settings
        self._describe = describe
        self._sink = sink
        self._stats = stats
        self._observer = Observer(settings.cluster)
        self._ended = False
        self._events: asyncio.Queue[QueryEvent] = asyncio.Queue()
        self._observations: NewestQueue[Observation] = NewestQueue(
            settings.queue_size, key=lambda observation: observation.query_id
        )
        self._bootstrap_servers: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if settings.bootstrap_servers:
            self._bootstrap_servers.set_result(settings.bootstrap_servers)

    def receive(self, event: QueryEvent) -> None:
        """Take an event, on the loop. Never blocks."""
        self._stats.observed += 1
        self._events.put_nowait(event)

    async def run(self) -> None:
        """Observe and publish until cancelled."""
        tasks = [
            asyncio.create_task(self._kept_running("observer", self._observe)),
            asyncio.create_task(self._kept_running("publisher", self._publish)),
        ]
        try:
            # Not `gather`: it cancels them too, and the second cancellation, below, would catch
            # the publisher in the middle of disconnecting.
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def flush(self) -> None:
        """Wait until all that was received is safe. Without brokers that is not waited for."""
        await self._events.join()
        if self._bootstrap_servers.done():
            await self._observations.join()

    def drop_rest(self) -> None:
        """Nothing is published any more: count and tell what is lost by it."""
        lost = self._waiting()
        if lost:
            self._stats.dropped += lost
            why = self._stats.last_error or "Kafka did not acknowledge in time"
            _log.warning("sparklag: closed with %d observations not published (%s)", lost, why)
        self._ended = True

    def stats(self) -> Stats:
        """The counts now. On any thread."""
        return replace(
            self._stats,
            dropped=self._stats.dropped + self._observations.dropped,
            queued=0 if self._ended else self._waiting(),
        )

    def _waiting(self) -> int:
        return self._events.qsize() + self._observations.unfinished

    async def _observe(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await self._observe_one(event)
            except MalformedMessage as error:
                self._stats.fail(str(error))
                _log.warning("sparklag: skipped an event: %s", error)
            finally:
                self._events.task_done()

    async def _observe_one(self, event: QueryEvent) -> None:
        if isinstance(event, Started):
            await self._learn(event)
        observation = self._observer.observe(event)
        if observation is None:
            self._stats.ignored += 1
            return
        self._find_bootstrap_servers(observation)
        self._observations.put_nowait(observation)

    async def _learn(self, started: Started) -> None:
        """Ask the query what it reads. Its start must not wait for this, so it is done here."""
        query_id, run_id = started.query_id, started.run_id
        if self._observer.knows(query_id, run_id):
            return
        try:
            loop = asyncio.get_running_loop()
            description = await asyncio.wait_for(
                loop.run_in_executor(None, self._describe, query_id), _DESCRIBE_TIMEOUT_S
            )
        except asyncio.TimeoutError:
            self._stats.fail(f"Spark did not describe query {query_id} in {_DESCRIBE_TIMEOUT_S} s")
            description = QueryDescription()
        self._observer.describe(query_id, run_id, description)

    def _find_bootstrap_servers(self, observation: Observation) -> None:
        if self._bootstrap_servers.done():
            return
        for source in observation.sources:
            if source.bootstrap_servers:
                self._bootstrap_servers.set_result(source.bootstrap_servers)
                return
        if self._stats.last_error != _NO_BROKERS:
            self._stats.fail(_NO_BROKERS)
            _log.warning("sparklag: nothing is published yet: %s", _NO_BROKERS)

    async def _publish(self) -> None:
        # A second await after a restart: the future is shielded from the cancellation of one.
        bootstrap_servers = await asyncio.shield(self._bootstrap_servers)
        await self._sink(self._observations, self._settings, bootstrap_servers, self._stats)

    async def _kept_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A guest does not give up on one unforeseen error, nor take the driver's log over."""
        while True:
            try:
                await run()
            except Exception as error:
                self._stats.fail(f"{name}: {type(error).__name__}: {error}")
                _log.exception("sparklag: %s failed, starting it again", name)
                await asyncio.sleep(_RESTART_PAUSE_S)
