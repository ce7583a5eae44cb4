"""`observe(spark)`: two lines in a driver, and its queries' lag is known."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import threading
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from sparklag_listener.background_loop import BackgroundLoop
from sparklag_listener.counters import Stats
from sparklag_listener.driver_pipeline import DriverPipeline, Sink
from sparklag_listener.errors import MissingService
from sparklag_listener.publisher import OffsetsPublisher
from sparklag_listener.py4j_listener import Py4jListener
from sparklag_listener.query_events import QueryEvent
from sparklag_listener.spark_session import (
    add_listener,
    describe_query,
    remove_listener,
    require_observable,
    running_queries,
)
from sparklag_schemas import Observation, Settings, load_settings
from sparklag_schemas.connection import quiet_client_logs
from sparklag_schemas.queue import NewestQueue

_log = logging.getLogger("sparklag")
_CLOSE_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 10.0

# A session is observed once, whoever asks: the JVM holds a listener for each registration.
_handles: WeakKeyDictionary[Any, ObserverHandle] = WeakKeyDictionary()


def observe(
    spark: Any,
    bootstrap_servers: str | None = None,
    *,
    embedded: bool = False,
    config: str | Path | None = None,
    **settings: Any,
) -> ObserverHandle:
    """Observe every streaming query of `spark`, those already running too.

    `bootstrap_servers`: the Kafka that carries sparklag's topics; without it (and without
    SPARKLAG_BOOTSTRAP_SERVERS) that of the first query with a Kafka source.
    `embedded`: run the whole service in this process; needs the `service` extra.
    `settings`: any field of `Settings`, over `config` (a TOML file) and the environment.

    Returns at once, Kafka there or not; from then on nothing is raised into the driver. A session
    that is observed already answers with the handle it has.
    Raises ListenerError for a session that cannot be observed, SettingsError for a wrong setting.
    """
    require_observable(spark)
    known = _handles.get(spark)
    if known is not None and not known.closed:
        return known
    resolved = load_settings(
        config=Path(config) if config is not None else None,
        overrides={"bootstrap_servers": bootstrap_servers, **settings},
    )
    handle = ObserverHandle(spark, resolved, _embedded_sink() if embedded else _publish)
    _handles[spark] = handle
    return handle


async def _publish(
    queue: NewestQueue[Observation], settings: Settings, bootstrap_servers: str, stats: Stats
) -> None:
    await OffsetsPublisher(queue, settings, bootstrap_servers, stats).run()


def _embedded_sink() -> Sink:
    try:
        from sparklag_service.embedded import serve_embedded
    except ModuleNotFoundError as error:
        raise MissingService(
            f"embedded=True needs {error.name}: pip install 'sparklag[service]'"
        ) from error
    return serve_embedded


class ObserverHandle:
    """What `observe` returns. Also a context manager that closes."""

    def __init__(self, spark: Any, settings: Settings, sink: Sink) -> None:
        quiet_client_logs()
        self._spark = spark
        self._process_id = os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._stats = Stats()
        self._loop = BackgroundLoop()
        self._pipeline, self._running = self._loop.submit(self._begin(settings, sink)).result(
            _START_TIMEOUT_S
        )
        self._listener = Py4jListener(spark._jvm, self._hand_over, self._count_failure)
        self._wrapper = add_listener(spark, self._listener)
        for event in running_queries(spark):
            self._hand_over(event)
        atexit.register(self.close)
        self._previous_sigterm = self._take_sigterm()

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or this is a fork of the process that observes."""
        return self._closed or os.getpid() != self._process_id

    def stats(self) -> Stats:
        """Counts since `observe`."""
        return self._pipeline.stats()

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Stop observing. Publishes what was observed first, for at most `timeout_s` seconds.

        Idempotent, never raises. What could not be published in time is logged.
        """
        with self._closing:
            if self.closed:
                return
            self._closed = True
        deadline = time.monotonic() + timeout_s
        self._remove_listener(deadline)
        self._finish(deadline)
        self._give_sigterm_back()
        atexit.unregister(self.close)
        _handles.pop(self._spark, None)

    def __enter__(self) -> ObserverHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def _begin(
        self, settings: Settings, sink: Sink
    ) -> tuple[DriverPipeline, asyncio.Task[None]]:
        pipeline = DriverPipeline(
            settings, lambda query_id: describe_query(self._spark, query_id), sink, self._stats
        )
        return pipeline, asyncio.create_task(pipeline.run())

    def _hand_over(self, event: QueryEvent) -> None:
        if not self.closed:
            self._loop.call(self._pipeline.receive, event)

    def _count_failure(self, error: BaseException) -> None:
        if not self.closed:
            self._stats.fail(f"callback: {type(error).__name__}: {error}")

    def _remove_listener(self, deadline: float) -> None:
        # In a thread of its own: a JVM that is going down may never answer, and Spark deadlocks
        # when a listener is removed inside a callback, which then must not wait for it.
        remover = threading.Thread(
            target=remove_listener, args=(self._spark, self._wrapper), daemon=True
        )
        remover.start()
        if not self._listener.called_from_callback:
            remover.join(max(0.0, (deadline - time.monotonic()) / 2))

    def _finish(self, deadline: float) -> None:
        """Flush, end the tasks, stop the loop: all within `deadline`."""
        left_s = max(0.0, deadline - time.monotonic())
        try:
            ended = self._loop.submit(self._flush_and_cancel(left_s * 0.7))
            flushed = ended.result(max(0.1, deadline - time.monotonic()))
        except (FutureTimeoutError, RuntimeError):
            flushed = False
        if not flushed:
            stats = self._pipeline.stats()
            _log.warning(
                "sparklag: closed with %d observations not published (%s)",
                stats.queued,
                stats.last_error or "Kafka did not answer in time",
            )
        self._loop.stop(max(0.1, deadline - time.monotonic()))

    async def _flush_and_cancel(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._pipeline.flush(), timeout_s)
            flushed = True
        except asyncio.TimeoutError:
            flushed = False
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        return flushed

    def _take_sigterm(self) -> bool:
        """By default SIGTERM ends Python on the spot, without `atexit`. Nobody else's handler is
        replaced, and only the main thread may set one."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        signal.signal(signal.SIGTERM, self._on_sigterm)
        return True

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        # Py4J may be in the middle of a command on this very thread: nothing is asked of the JVM.
        if not self.closed:
            self._closed = True
            self._finish(time.monotonic() + _CLOSE_TIMEOUT_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _give_sigterm_back(self) -> None:
        if (
            self._previous_sigterm
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._on_sigterm
        ):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
