"""A listener on the client's side of Spark Connect, as PySpark 4 has them.

PySpark's client keeps listeners in a list, and one thread that reads the server's stream of events
for all of them. Two of its faults are dealt with here (SPARK-59623): where the stream breaks off,
the list is emptied with a Python warning; and removing the last one waits for that thread, which
may wait for a lock that the removal holds: then every later `start()` of a query hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparklag_listener.connect.client import ConnectClient
from sparklag_listener.errors import NoListener
from sparklag_listener.events.queries import Unanswered
from sparklag_listener.events.query_events import (
    MOST_EXCEPTION_CHARS,
    Idled,
    Progressed,
    QueryEvent,
    Started,
    Terminated,
)
from sparklag_listener.observed_session import HandOver, OnError
from sparklag_schemas.runtime.clock import epoch_ms

_LOCK_TIMEOUT_S = 2.0


class ConnectListener:
    """Our registration with a session's client.

    All but `is_registered` block as long as the server takes, so they belong in threads; daemons,
    so that the client's own thread, which is made like the one that registers, is one too.
    """

    def __init__(
        self, spark: Any, client: ConnectClient, hand_over: HandOver, on_error: OnError
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
        self._closed = False
        self._listener = _make_listener(self._take(hand_over), on_error)

    def is_registered(self) -> bool:
        """Whether the client has it, and reads the server's events, as long as there are any."""
        if self._client.is_stopped:
            return True
        thread = self._bus._execution_thread
        return thread is not None and thread.is_alive() and self._has_it()

    def register(self) -> None:
        """Add it. Raises NoListener where the client does not take it."""
        if self._closed:
            return
        again = []
        with self._client_lock():
            thread = self._bus._execution_thread
            if thread is None or not thread.is_alive():
                # Where the list is not empty, nobody in it is told anything any more.
                again = [each for each in self._emptied() if each is not self._listener]
            elif self._has_it():
                return
        try:
            if not self._bus._listener_bus:
                # The server keeps the stream that broke off, and gives no other beside it.
                self._end_stream()
            with self._client.translated():
                for each in (self._listener, *again):
                    self._spark.streams.addListener(each)
        except (Unanswered, Warning, AssertionError) as error:
            # Where warnings are errors, the client's own is one.
            told = " ".join(str(error).split())
            raise NoListener(f"Spark's client does not take a listener: {told}") from error
        if not self._has_it():
            raise NoListener("Spark's client does not take a listener, its warning says why")
        if self._closed:
            # In the meantime, by somebody who did not wait.
            self.remove()

    def close(self) -> None:
        """From now on nothing is handed over."""
        self._closed = True

    def remove(self) -> None:
        """Take it off the client's list, as the client does but without its lock."""
        with self._client_lock():
            if not self._has_it():
                return
            thread = self._bus._execution_thread
            ended = thread is None or not thread.is_alive() or self._client.is_stopped
            if ended or len(self._bus._listener_bus) > 1:
                self._bus._listener_bus.remove(self._listener)
                if ended and not self._bus._listener_bus:
                    self._bus._execution_thread = None
                return
        try:
            self._end_stream()
        except Unanswered:
            # The client drops it itself once it gives up on the server.
            return
        thread.join()
        with self._client_lock():
            others = [each for each in self._emptied() if each is not self._listener]
        # Somebody's who registered in the meantime, and was told of nothing.
        for each in others:
            self._spark.streams.addListener(each)

    def _end_stream(self) -> None:
        """Have the server end its stream of events, if there is one. Raises Unanswered."""
        command = self._client.command()
        command.streaming_query_listener_bus_command.remove_listener_bus_listener = True
        self._client.send(command)

    def _has_it(self) -> bool:
        return any(each is self._listener for each in self._bus._listener_bus)

    def _emptied(self) -> list[Any]:
        were = list(self._bus._listener_bus)
        self._bus._listener_bus.clear()
        self._bus._execution_thread = None
        return were

    def _client_lock(self) -> _Lock:
        return _Lock(self._bus._lock)

    def _take(self, hand_over: HandOver) -> HandOver:
        def take(event: QueryEvent) -> None:
            if not self._closed:
                hand_over(event)

        return take


class _Lock:
    """The client's own, for a while: somebody else's removal may hold it for ever."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            raise NoListener("Spark's client is stuck in removing a listener (SPARK-59623)")

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()


def _make_listener(hand_over: HandOver, on_error: OnError) -> Any:
    """A listener as PySpark wants it. Made here: nothing of pyspark is imported before."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    def take(read: Callable[[Any], QueryEvent], event: object) -> None:
        try:
            hand_over(read(event))
        except Exception as error:
            # The client would warn of each event, for ever.
            on_error(error)

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: object) -> None:  # noqa: N802 - Spark's names
            take(_started, event)

        def onQueryProgress(self, event: object) -> None:  # noqa: N802
            take(_progressed, event)

        def onQueryIdle(self, event: object) -> None:  # noqa: N802
            take(_idled, event)

        def onQueryTerminated(self, event: object) -> None:  # noqa: N802
            take(_terminated, event)

    return Listener()


def _started(event: Any) -> Started:
    return Started(str(event.id), str(event.runId), event.name, epoch_ms())


def _progressed(event: Any) -> Progressed:
    return Progressed(event.progress.json, epoch_ms())


def _idled(event: Any) -> Idled:
    return Idled(str(event.id), str(event.runId), epoch_ms())


def _terminated(event: Any) -> Terminated:
    text = event.exception[:MOST_EXCEPTION_CHARS] if event.exception else None
    return Terminated(str(event.id), str(event.runId), text, epoch_ms())
