"""What `observe` returns: one session, observed from now until it is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from sparklag_kafka.clients.connection import quiet_client_logs
from sparklag_listener.errors import NoListener
from sparklag_listener.events.queries import already_running
from sparklag_listener.events.query_events import QueryEvent
from sparklag_listener.observed_session import ObservedSession
from sparklag_listener.publishing.background_loop import BackgroundLoop
from sparklag_listener.publishing.counters import Stats
from sparklag_listener.publishing.driver_pipeline import DriverPipeline, Record, Sink
from sparklag_listener.publishing.process_end import CLOSE_TIMEOUT_S, process_end
from sparklag_schemas import Origin, Settings

Result = TypeVar("Result")

_log = logging.getLogger("sparklag")
_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 0.1
_SHORTEST_CLOSE_S = 0.5


class ObserverHandle:
    """Also a context manager that closes."""

    def __init__(
        self,
        session: ObservedSession,
        settings: Settings,
        sink: Sink | None,
        method: Origin | None = None,
        record: Record | None = None,
    ) -> None:
        """`sink`, `record`: see DriverPipeline. `method`: the session's listener or "poll". None:
        polls only where there is no listener.

        Raises ListenerError where Spark takes no listener and `method` insists on it.
        """
        quiet_client_logs()
        self._session = session
        self._settings = settings
        self._process_id = os.getpid()
        self._closed = False
        self._end: asyncio.Task[None] | None = None
        self._stats = Stats()
        self._record = record
        self._loop = BackgroundLoop()
        try:
            self._method, self._pipeline = self._listen(sink, method)
            self._running = self._on_loop(self._begin())
        except BaseException:
            self._loop.stop(_START_TIMEOUT_S)
            raise
        if self._method != "poll":
            self._hand_over_running()
        process_end.watch(self.close)

    @property
    def method(self) -> Origin:
        """How queries are observed: "listener", "connect" or "poll"."""
        return self._method

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or this is a fork of the process that observes."""
        return self._closed or self._is_fork()

    def observes(self, spark: Any) -> bool:
        """Whether `spark` is the session that this one watches, and still does."""
        return not self.closed and self._session.is_same(spark)

    def stats(self) -> Stats:
        """Counts since `observe`."""
        return self._pipeline.stats()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Stop observing. Publishes what was observed first, for at most `timeout_s` seconds (and
        half a second at least).

        Idempotent, never raises. Whoever calls while another closes waits for the same end. What
        could not be published in time is counted as dropped and logged.
        """
        if self._is_fork():
            return
        self._closed = True
        timeout_s = max(timeout_s, _SHORTEST_CLOSE_S)
        deadline = time.monotonic() + timeout_s
        try:
            ending = self._loop.submit(self._ended(deadline))
        except RuntimeError:
            # It has ended already.
            return
        try:
            ending.result(max(0.0, deadline - time.monotonic()))
        except CancelledError:
            # Another one that closes has stopped the loop in the meantime.
            pass
        except FutureTimeoutError:
            _log.warning("sparklag: did not close within %g s", timeout_s)
        except Exception as error:
            _log.warning("sparklag: did not close cleanly: %s: %s", type(error).__name__, error)
        self._loop.stop(max(_STOP_TIMEOUT_S, deadline - time.monotonic()))
        process_end.forget(self.close)

    def __enter__(self) -> ObserverHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _listen(self, sink: Sink | None, wanted: Origin | None) -> tuple[Origin, DriverPipeline]:
        """Register a listener, or do without."""
        if wanted != "poll":
            method = self._session.listener_method
            self._pipeline = self._on_loop(self._make_pipeline(sink, method))
            try:
                self._session.listen(self._hand_over, self._count_failure)
                return method, self._pipeline
            except NoListener as error:
                if wanted is not None:
                    raise
                interval_s = self._settings.refresh_interval_s
                _log.warning("sparklag: asks Spark every %g s instead: %s", interval_s, error)
        return "poll", self._on_loop(self._make_pipeline(sink, "poll"))

    def _hand_over_running(self) -> None:
        """What runs already. The listener is there, so that no query starts unseen in between."""
        try:
            for event in self._on_loop(_in_thread(partial(already_running, self._session.queries))):
                self._hand_over(event)
        except FutureTimeoutError:
            # The next census finds them.
            return

    async def _make_pipeline(self, sink: Sink | None, method: Origin) -> DriverPipeline:
        return DriverPipeline(
            self._settings,
            self._session.queries.describe,
            sink,
            self._stats,
            self._session.queries,
            method,
            self._record,
        )

    async def _begin(self) -> asyncio.Task[None]:
        self._pipeline.watch(self._session.listener if self._method != "poll" else None)
        return asyncio.create_task(self._pipeline.run())

    def _on_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.submit(coroutine).result(_START_TIMEOUT_S)

    def _hand_over(self, event: QueryEvent) -> None:
        self._pipeline.receive(event)

    def _count_failure(self, error: BaseException) -> None:
        try:
            self._loop.call(self._stats.fail, f"callback: {type(error).__name__}: {error}")
        except RuntimeError:
            # Closed: an event that came after the end is nobody's.
            return

    def _is_fork(self) -> bool:
        return os.getpid() != self._process_id

    async def _ended(self, deadline: float) -> None:
        """Wait for the one end there is. It goes on where a signal interrupts whoever waits."""
        if self._end is None:
            self._end = asyncio.create_task(self._flush_and_end(deadline))
        await asyncio.shield(self._end)

    async def _flush_and_end(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        self._pipeline.end_asking()
        await _at_most(_share(deadline, 0.4), self._pipeline.ask_finally())
        leave = partial(self._session.leave, _share(deadline, 0.4))
        await _at_most(_share(deadline, 0.5), loop.run_in_executor(None, leave))
        await _at_most(_share(deadline, 0.7), self._pipeline.flush())
        self._running.cancel()
        await _at_most(_share(deadline, 0.9), asyncio.gather(self._running, return_exceptions=True))
        self._pipeline.drop_rest()


async def _in_thread(call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, call)


def _share(deadline: float, share: float) -> float:
    """Seconds: that share of the time left."""
    return share * max(0.0, deadline - time.monotonic())


async def _at_most(timeout_s: float, awaitable: Awaitable[object]) -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(awaitable, timeout_s)
