"""Spark's own listener interface, implemented directly in Python through Py4J.

PySpark's `StreamingQueryListener` copies every field of an event, some 400 Py4J commands each
time. The interface below it passes the Java event, whose JSON two commands read; `text_listener`
passes that JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sparklag_listener.classic.py4j_text import ProgressReader, read_text
from sparklag_listener.classic.queries import fails_by_stop
from sparklag_listener.events.query_events import (
    MAX_EXCEPTION_CHARS,
    Idled,
    Progressed,
    QueryEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.session import OnError, OnEvent
from sparklag_schemas.timestamps import epoch_ms


class Py4jListener:
    """Called by Spark on a Py4J thread. Passes each event on and returns; never raises.

    `on_event` must not block: `onQueryStarted` runs inside the query's `start()`, and a slow
    callback makes Spark's listener bus drop events of every listener.
    """

    def __init__(self, jvm: Any, on_event: OnEvent, on_error: OnError) -> None:
        self._progress_reader = ProgressReader(jvm, "progress", "json")
        self._on_event = on_event
        self._on_error = on_error

    def onQueryStarted(self, event: Any) -> None:
        self._dispatch(lambda at_ms: Started(*_ids(event), event.name(), at_ms))

    def accept(self, progress: Any) -> None:
        """For `text_listener`: JSON, or a StringBuilder with it."""
        self._dispatch(
            lambda at_ms: Progressed(
                progress if isinstance(progress, str) else read_text(progress), at_ms
            )
        )

    def onQueryProgress(self, event: Any) -> None:
        """Where `text_listener` is not allowed."""
        self._dispatch(lambda at_ms: Progressed(self._progress_reader.read(event), at_ms))

    def onQueryIdle(self, event: Any) -> None:
        self._dispatch(lambda at_ms: Idled(*_ids(event), at_ms))

    def onQueryTerminated(self, event: Any) -> None:
        def read(at_ms: int) -> Terminated | None:
            exception = event.exception()
            text = str(exception.get()) if exception.isDefined() else None
            if text and fails_by_stop(text):
                # A poll finds out who stopped Spark.
                return None
            return Terminated(*_ids(event), text and text[:MAX_EXCEPTION_CHARS], at_ms)

        self._dispatch(read)

    def _dispatch(self, read: Callable[[int], QueryEvent | None]) -> None:
        try:
            event = read(epoch_ms())
            if event is not None:
                self._on_event(event)
        except Exception as error:
            # Raised, Spark would log a stack trace for each event.
            self._on_error(error)

    class Java:
        implements: ClassVar = [
            "org.apache.spark.sql.streaming.PythonStreamingQueryListener",
            "java.util.function.Consumer",
        ]


def _ids(event: Any) -> tuple[str, str]:
    return event.id().toString(), event.runId().toString()
