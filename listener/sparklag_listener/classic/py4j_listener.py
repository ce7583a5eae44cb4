"""Spark's own listener interface, implemented directly in Python through Py4J.

PySpark's `StreamingQueryListener` copies every field of an event, some 400 Py4J commands each
time. The interface below it hands over the Java event, and two commands take its JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sparklag_listener.classic.progress_text import ProgressText
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


class Py4jListener:
    """Called by Spark on a Py4J thread. Hands each event over and returns; never raises.

    `hand_over` must not block: `onQueryStarted` runs inside the query's `start()`, and a slow
    callback makes Spark's listener bus drop events of every listener.
    """

    def __init__(
        self,
        jvm: Any,
        hand_over: HandOver,
        on_error: OnError,
    ) -> None:
        self._progress_text = ProgressText(jvm, "progress", "json")
        self._hand_over = hand_over
        self._on_error = on_error

    def onQueryStarted(self, event: Any) -> None:
        self._take(
            lambda at_ms: Started(
                query_id=event.id().toString(),
                run_id=event.runId().toString(),
                name=event.name(),
                at_ms=at_ms,
            )
        )

    def onQueryProgress(self, event: Any) -> None:
        self._take(lambda at_ms: Progressed(text=self._progress_text.read(event), at_ms=at_ms))

    def onQueryIdle(self, event: Any) -> None:
        self._take(
            lambda at_ms: Idled(
                query_id=event.id().toString(), run_id=event.runId().toString(), at_ms=at_ms
            )
        )

    def onQueryTerminated(self, event: Any) -> None:
        def read(at_ms: int) -> Terminated:
            exception = event.exception()
            text = str(exception.get()) if exception.isDefined() else None
            return Terminated(
                query_id=event.id().toString(),
                run_id=event.runId().toString(),
                exception=text and text[:MOST_EXCEPTION_CHARS],
                at_ms=at_ms,
            )

        self._take(read)

    def _take(self, read: Callable[[int], QueryEvent]) -> None:
        try:
            self._hand_over(read(epoch_ms()))
        except Exception as error:
            # Spark would log a stack trace for each event, for ever.
            self._on_error(error)

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
