"""The handle that `observe` returns: one session, observed until it is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, TypeVar

from sparklag_listener.background_loop import CLOSE_TIMEOUT_S, BackgroundLoop, process_exit
from sparklag_listener.driver_pipeline import NO_BROKERS, DriverEnding, DriverPipeline, Record, Sink
from sparklag_listener.errors import HandleClosed, LagUnavailable, NoListener
from sparklag_listener.events.session import ObservedSession
from sparklag_listener.lag import (
    LAG_TIMEOUT_S,
    EmbeddedService,
    EmbeddedSource,
    LagSource,
    require_name,
)
from sparklag_listener.lag.lags import (
    REFRESH_TIMEOUT_S,
    Lags,
    LiveTable,
    kernel_shell,
    lag_html,
    show_in_notebooks,
)
from sparklag_listener.stats import Stats
from sparklag_schemas import DriverEnd, LagEvent, Origin, Settings
from sparklag_schemas.text.printable import printable
from sparklag_schemas.text.redaction import redact

_Result = TypeVar("_Result")

_log = logging.getLogger("sparklag")
_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 0.1
_MIN_CLOSE_S = 0.5


class ObserverHandle:
    """A context manager, whose exit is `close`."""

    def __init__(
        self,
        session: ObservedSession,
        settings: Settings,
        sink: Sink | None,
        method: Origin | None = None,
        record: Record | None = None,
        embedded: EmbeddedService | None = None,
        destination: str = "",
    ) -> None:
        """`sink`, `record`: see DriverPipeline. `method`: the session's listener or "poll". None:
        polls only where Spark takes no listener. `embedded`: the service that `sink` runs.
        `destination`: text about where observations go.

        Raises ListenerError where Spark takes no listener and `method` requires it.
        """
        self._session = session
        self._settings = settings
        self._process_id = os.getpid()
        self._closed = False
        self._shutdown: asyncio.Task[None] | None = None
        self._program_end: tuple[DriverEnd, str | None] = "closed", None
        self._stats = Stats()
        self._record = record
        self._embedded = embedded
        self.label = printable(session.label, 300)
        """The observed application or session, for people."""
        self._destination = destination
        self._lag_source: LagSource | None = None
        self._live_table: LiveTable | None = None
        self._loop = BackgroundLoop()
        try:
            self.method, self._pipeline = self._listen(sink, method)
            """How queries are observed: "listener", "connect" or "poll"."""
            self._on_loop(self._pipeline.start())
        except BaseException:
            self._loop.stop(_START_TIMEOUT_S)
            raise
        if self.method != "poll":
            # A query that ends from now on has a position. After a timeout, a later poll adds it.
            with suppress(FutureTimeoutError):
                self._on_loop(self._pipeline.poller.first_poll.wait())
        process_exit.register(self._exit)

    @property
    def closed(self) -> bool:
        """True once `close` was called, and in a fork of the observing process."""
        return self._closed or self._is_fork()

    def observes(self, spark: Any) -> bool:
        """True where this handle is open and observes the session of `spark`."""
        return not self.closed and self._session.is_same(spark)

    def stats(self) -> Stats:
        """Counts since `observe`."""
        return self._pipeline.stats()

    def lag(self, query: str, *, timeout_s: float = LAG_TIMEOUT_S) -> LagEvent:
        """The newest lag of a query, by its name, its id or the first characters of the id.

        A name means the one live query with that name, else the newest. It may be another driver's.
        From the embedded service; else from the service at `service_url`; else from the topic
        `consumer-lag`, which a service writes. Blocks, for at most `timeout_s`. Raises
        QueryNotFound, AmbiguousQueryName, LagUnavailable, HandleClosed.
        """
        require_name(query)
        show_in_notebooks()
        return self._source().find(query, timeout_s)

    def lags(self, *, timeout_s: float = LAG_TIMEOUT_S) -> Lags:
        """The newest lag of each query that this handle observes or observed (the last 200), sorted
        by name. Queries without a lag yet are left out.

        The source is that of `lag`. Raises LagUnavailable, HandleClosed.
        """
        events = self._source().newest(list(self._pipeline.query_ids), timeout_s)
        return Lags(sorted(events, key=lambda event: (event.display_name, event.query_id)))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Stop observing. Publishes the remaining observations, for at most `timeout_s` seconds
        (half a second at least).

        Idempotent, never raises; concurrent calls wait for the same shutdown. Observations that
        could not be published in time are counted as dropped and logged.
        """
        if self._is_fork():
            return
        self._closed = True
        timeout_s = max(timeout_s, _MIN_CLOSE_S)
        deadline_s = time.monotonic() + timeout_s
        try:
            shutdown = self._loop.submit(self._await_shutdown(deadline_s))
        except RuntimeError:
            # Already closed.
            return
        try:
            shutdown.result(max(0.0, deadline_s - time.monotonic()))
        except CancelledError:
            # A concurrent call has stopped the loop.
            pass
        except FutureTimeoutError:
            _log.warning("sparklag: did not close within %g s", timeout_s)
        except Exception as error:
            _log.warning("sparklag: did not close cleanly: %s: %s", type(error).__name__, error)
        self._loop.stop(max(_STOP_TIMEOUT_S, deadline_s - time.monotonic()))
        process_exit.unregister(self._exit)

    def _exit(self, timeout_s: float) -> None:
        self._program_end = self._session.program_end()
        self.close(timeout_s)

    def __enter__(self) -> ObserverHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """The session, the destination and the counts. Calls neither Spark nor Kafka."""
        stats = self.stats()
        parts = [
            f"{'closed' if self.closed else 'observing'} {self.label}, method {self.method}",
            self._destination,
            f"observed {stats.observed:,}, published {stats.published:,}, dropped"
            f" {stats.dropped:,}, failed {stats.failed:,}",
        ]
        if stats.last_error is not None:
            parts.append(f"last error: {printable(redact(stats.last_error), 300)}")
        return f"<ObserverHandle: {'; '.join(filter(None, parts))}>"

    def _repr_html_(self) -> str:
        return lag_html(repr(self), self._lags_while_open)

    def _ipython_display_(self) -> None:
        """Display a table that refreshes itself, in a notebook."""
        shell = kernel_shell()
        if self._live_table is not None:
            self._live_table.stop("it is displayed again")
        self._live_table = LiveTable(self.__repr__, self._lags_while_open, shell)
        self._live_table.show()

    def _lags_while_open(self) -> Lags | None:
        return None if self.closed else self.lags(timeout_s=REFRESH_TIMEOUT_S)

    def _source(self) -> LagSource:
        """Raises HandleClosed, LagUnavailable."""
        if self._is_fork():
            raise HandleClosed("this process is a fork of the observing one: call observe() again")
        if self._closed:
            raise HandleClosed("this handle is closed: call observe() again")
        if self._lag_source is None:
            self._lag_source = self._make_source()
        return self._lag_source

    def _make_source(self) -> LagSource:
        # Imported here: a driver that only observes imports no HTTP client.
        from sparklag_listener.lag.rest_source import RestSource
        from sparklag_listener.lag.topic_source import TopicSource
        from sparklag_schemas.service_access import ServiceAccess

        url, client = self._settings.service_url, self._settings.service_client
        if url is not None and self._embedded is None:
            return RestSource(ServiceAccess(url, client))
        resolved = self._pipeline.resolved_settings
        if resolved is None:
            raise LagUnavailable(f"lag cannot be read yet: {NO_BROKERS}")
        if self._embedded is not None:
            return EmbeddedSource(self._embedded, self._loop.submit)
        return TopicSource(resolved)

    def _listen(self, sink: Sink | None, required: Origin | None) -> tuple[Origin, DriverPipeline]:

        async def make(origin: Origin) -> DriverPipeline:
            return DriverPipeline(
                self._settings, self._session, sink, self._stats, origin, self._record
            )

        if required != "poll":
            method = self._session.listener_method
            pipeline = self._on_loop(make(method))
            try:
                self._session.listen(pipeline.receive, self._on_error)
                return method, pipeline
            except NoListener as error:
                if required is not None:
                    raise
                interval_s = self._settings.refresh_interval_s
                _log.warning("sparklag: polling Spark every %g s instead: %s", interval_s, error)
        return "poll", self._on_loop(make("poll"))

    def _on_loop(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return self._loop.submit(coroutine).result(_START_TIMEOUT_S)

    def _on_error(self, error: BaseException) -> None:
        # RuntimeError: closed in the meantime.
        with suppress(RuntimeError):
            self._loop.call(self._stats.fail, f"callback: {type(error).__name__}: {error}")

    def _is_fork(self) -> bool:
        return os.getpid() != self._process_id

    def _ending(self) -> DriverEnding:
        return DriverEnding(*self._program_end, process_exit.by_sigterm)

    async def _await_shutdown(self, deadline_s: float) -> None:
        """Shut down once; the shutdown continues when a signal interrupts the caller."""
        if self._shutdown is None:
            shutdown = self._pipeline.shut_down(deadline_s, self._ending)
            self._shutdown = asyncio.create_task(shutdown)
        await asyncio.shield(self._shutdown)
