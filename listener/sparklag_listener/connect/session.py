"""A Spark Connect session, whose queries run on a server, and its listener (PySpark 4).

PySpark's client has a list of listeners, and one thread that reads the server's stream of events
for all of them. This module works around two bugs (SPARK-59623). When the stream is interrupted,
the client empties the list with a Python warning. Removing the last listener joins the thread,
which may wait for a lock that the removal holds: then every later `start()` hangs.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from sparklag_listener.connect.queries import ConnectClient, ConnectQueries
from sparklag_listener.errors import NoListener, ServerAway
from sparklag_listener.events.event_queue import (
    MAX_EXCEPTION_CHARS,
    Idled,
    Progressed,
    QueryEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.session import (
    ActiveQueries,
    OnError,
    OnEvent,
    SparkUnavailable,
    own_settings,
)
from sparklag_schemas import DriverEnd, Origin
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.settings.reading import SPARK_PREFIX
from sparklag_schemas.timestamps import epoch_ms

# A server that is busy with other sessions takes long to open this one.
_ANSWER_TIMEOUT_S = 60.0
_LOCK_TIMEOUT_S = 2.0
_STARTS = ("write_stream_operation_start", "pipeline_command")
_EXIT_WARNING = "(?s)(StreamingQuery|Failed to add).*(cannot schedule new futures|Channel closed)"


class ConnectSession:
    """See ObservedSession."""

    listener_method: Origin = "connect"

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._client = ConnectClient(spark)
        self.listener: ConnectListener | None = None
        self.queries = RestingQueries(self, spark.client, self._client)

    @property
    def label(self) -> str:
        return f"Spark Connect session {self._spark.session_id}"

    def program_end(self) -> tuple[DriverEnd, str | None]:
        # The queries continue on the server.
        return "closed", None

    def is_same(self, spark: Any) -> bool:
        return spark is self._spark or (
            is_connect_session(spark) and spark.session_id == self._spark.session_id
        )

    def configuration(self) -> dict[str, str]:
        """The settings in the configuration of the session on the server, without their prefix.

        Blocks until the server answers. Raises ServerAway.
        """
        with _requests() as request:
            return own_settings(request(partial(self._client.properties, SPARK_PREFIX)).items())

    def listen(self, on_event: OnEvent, on_error: OnError) -> None:
        """Raises ServerAway too."""
        try:
            with _requests() as request:
                request(self.queries.list_active)
                self.listener = ConnectListener(self._spark, self._client, on_event, on_error)
                request(partial(self.listener.register, again=False))
                client = self._spark.client
                client.release_session = partial(self.queries.release, client.release_session)
        except ServerAway:
            if self.listener is not None:
                # The registration may still succeed later.
                self.listener.is_closed = True
            raise

    def stop_listening(self, timeout_s: float) -> None:
        self.queries.close()
        if self.listener is None:
            return
        try:
            # At exit the server ends the stream of events with the connection.
            if not _is_exiting():
                self.listener.remove()
        except NoListener:
            # The listener stays registered, but is closed.
            return
        finally:
            self.listener.is_closed = True


class RestingQueries(ConnectQueries):
    """Lets an idle session expire as it would without sparklag: where no query ran at two polls, it
    has no listener, and no poll makes a request, until its client starts a query."""

    def __init__(self, session: ConnectSession, user_client: Any, client: ConnectClient) -> None:
        super().__init__(client)
        self._session = session
        self._user_client = user_client
        self._lock = threading.Lock()
        self._is_resting = False
        self._idle_polls = 0
        self._last_start: object = object()
        """None: the server has not answered it yet."""
        # From the first: a start that is on its way unseen would begin a rest.
        self._execute: Callable[..., Any] = user_client.execute_command
        user_client.execute_command = self._execute_command

    def close(self) -> None:
        for name in ("execute_command", "release_session"):
            vars(self._user_client).pop(name, None)

    def release(self, release_session: Callable[[], None]) -> None:
        """Called where the user stops the session: Spark logs errors of a stream that this ends."""
        if not _is_exiting():  # no thread can be started then
            with suppress(ServerAway), _requests() as request:
                request(self._pause)
        # The client releases the stream in a thread of its own.
        wait([*getattr(self._user_client, "_release_futures", ())], _LOCK_TIMEOUT_S)
        release_session()

    def list_active(
        self, retain: Collection[str] = (), with_activity: Collection[str] = ()
    ) -> ActiveQueries:
        if self._is_resting and not self._client.is_stopped:
            return ActiveQueries((), is_session_stopped=False)
        last_start = self._last_start
        active = super().list_active(retain, with_activity)
        is_idle = not active.queries and not retain and not active.is_session_stopped
        self._idle_polls = self._idle_polls + 1 if is_idle else 0
        if self._idle_polls > 1:
            self._rest(last_start)
        return active

    def await_events(self, timeout_s: float) -> bool | None:
        return True if _is_exiting() else None  # no event comes then

    def _rest(self, last_start: object) -> None:
        with self._lock:
            self._is_resting = last_start is not None and last_start is self._last_start
            if self._is_resting:
                # The server's stream of events keeps the session too.
                self._pause()

    def _pause(self) -> None:
        if self._session.listener is not None:
            self._session.listener.is_paused = True
            with suppress(NoListener):
                self._session.listener.remove()

    def _execute_command(self, command: Any, *arguments: Any, **named: Any) -> Any:
        if command.WhichOneof("command_type") not in _STARTS:
            return self._execute(command, *arguments, **named)
        self._last_start = None
        try:
            if self._is_resting:
                with suppress(ServerAway, NoListener), _requests() as request:
                    request(self._resume)
            return self._execute(command, *arguments, **named)
        finally:
            self._last_start = object()

    def _resume(self) -> None:
        with self._lock:
            self._is_resting, self._idle_polls = False, 0
            if self._session.listener is not None:
                # First: where the session has expired, the client would warn.
                super().list_active()
                self._session.listener.is_paused = False
                self._session.listener.register(again=False)


def _is_exiting() -> bool:
    """True: the interpreter exits, and the client's thread pool is shut down."""
    return not threading.main_thread().is_alive()


@contextmanager
def _requests() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Makes requests in a daemon thread, with one deadline for all. Raises ServerAway."""
    deadline_s = time.monotonic() + _ANSWER_TIMEOUT_S
    threads = DaemonThreads()

    def request(call: Callable[[], Any]) -> Any:
        return threads.submit(call).result(max(0.0, deadline_s - time.monotonic()))

    try:
        yield request
    except SparkUnavailable as error:
        raise ServerAway(f"the Spark Connect server does not answer: {error}") from error
    except FutureTimeoutError as error:
        raise ServerAway(
            f"the Spark Connect server does not answer within {_ANSWER_TIMEOUT_S:g} s"
        ) from error
    finally:
        threads.shutdown()


def is_connect_session(spark: Any) -> bool:
    """True for a session of PySpark's client, of any version. Imports nothing."""
    return any(each.__module__.startswith("pyspark.sql.connect") for each in type(spark).__mro__)


class ConnectListener:
    """A registration with a session's client.

    All methods but `is_registered` block until the server answers. Call them in daemon threads: the
    client's own thread inherits that from the thread that registers.
    """

    def __init__(
        self, spark: Any, client: ConnectClient, on_event: OnEvent, on_error: OnError
    ) -> None:
        """Raises NoListener where this client has no listeners of its own."""
        self._spark = spark
        self._client = client
        self._bus: Any = getattr(spark.streams, "_sqlb", None)
        parts = ("append", "remove", "_lock", "_listener_bus", "_execution_thread")
        if self._bus is None or not all(hasattr(self._bus, part) for part in parts):
            raise NoListener(
                "this Spark Connect client has no listeners of its own, PySpark 4 has"
                f" (the server's version is {spark.version})"
            )
        self.is_closed = False
        """True: all further events are dropped."""
        self.is_paused = False
        # An event may come when the client's thread pool is shut down.
        warnings.filterwarnings("ignore", _EXIT_WARNING, UserWarning)
        self._on_event = on_event
        self._listener = _make_listener(self._pass_on, on_error)

    def is_registered(self) -> bool:
        """See Listener. True in a stopped session, while paused, and at exit."""
        if self._client.is_stopped or self.is_paused or _is_exiting():
            return True
        thread = self._bus._execution_thread
        return thread is not None and thread.is_alive() and self._is_listed()

    def register(self, *, again: bool = True) -> None:
        """See Listener. `again`: the server may still have a stream of events. Raises NoListener
        where the client does not take it."""
        if self.is_closed:
            return
        dropped = []
        with self._client_lock():
            thread = self._bus._execution_thread
            if thread is None or not thread.is_alive():
                # Listeners that remain in the list no longer receive events.
                dropped = self._clear_listeners()
            elif self._is_listed():
                return
        try:
            if again and not self._bus._listener_bus:
                # The server still has the interrupted stream, and does not allow a second stream.
                self._end_stream()
            with self._client.errors_translated():
                for listener in (self._listener, *dropped):
                    self._spark.streams.addListener(listener)
        except (SparkUnavailable, Warning, AssertionError) as error:
            # Warning: Python may be configured to raise warnings as errors.
            text = " ".join(str(error).split())
            raise NoListener(f"Spark's client does not take a listener: {text}") from error
        if not self._is_listed() and not _is_exiting():
            raise NoListener("Spark's client does not take a listener, its warning has the reason")
        if self.is_closed:
            # Closed in the meantime by another thread.
            self.remove()

    def remove(self) -> None:
        """Remove the listener as the client does, but join its thread without the lock."""
        with self._client_lock():
            if not self._is_listed():
                return
            thread = self._bus._execution_thread
            has_ended = thread is None or not thread.is_alive() or self._client.is_stopped
            if has_ended or len(self._bus._listener_bus) > 1:
                self._bus._listener_bus.remove(self._listener)
                if has_ended and not self._bus._listener_bus:
                    self._bus._execution_thread = None
                return
        try:
            self._end_stream()
        except SparkUnavailable:
            # The client drops the listener once its retries end.
            return
        thread.join()
        with self._client_lock():
            remaining = self._clear_listeners()
        # These were registered in the meantime, and receive no events.
        for listener in remaining:
            self._spark.streams.addListener(listener)

    def _end_stream(self) -> None:
        command = self._client.command()
        command.streaming_query_listener_bus_command.remove_listener_bus_listener = True
        self._client.send(command)

    def _is_listed(self) -> bool:
        return any(item is self._listener for item in self._bus._listener_bus)

    def _clear_listeners(self) -> list[Any]:
        remaining = [item for item in self._bus._listener_bus if item is not self._listener]
        self._bus._listener_bus.clear()
        self._bus._execution_thread = None
        return remaining

    @contextmanager
    def _client_lock(self) -> Iterator[None]:
        """Hold the client's own lock, which a removal by the user may hold for ever."""
        if not self._bus._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            raise NoListener("Spark's client is stuck in removing a listener (SPARK-59623)")
        try:
            yield
        finally:
            self._bus._lock.release()

    def _pass_on(self, event: QueryEvent) -> None:
        if not self.is_closed:
            self._on_event(event)


def _make_listener(on_event: OnEvent, on_error: OnError) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    def dispatch(read: Callable[[], QueryEvent]) -> None:
        try:
            on_event(read())
        except Exception as error:
            # If this raised, the client would warn of each event.
            on_error(error)

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
            dispatch(lambda: Started(*_ids(event), event.name, epoch_ms()))

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            dispatch(lambda: Progressed(event.progress.json, epoch_ms()))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            dispatch(lambda: Idled(*_ids(event), epoch_ms()))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            dispatch(lambda: Terminated(*_ids(event), _exception(event), epoch_ms()))

    return Listener()


def _ids(event: Any) -> tuple[str, str]:
    return str(event.id), str(event.runId)


def _exception(event: Any) -> str | None:
    return event.exception[:MAX_EXCEPTION_CHARS] if event.exception else None
