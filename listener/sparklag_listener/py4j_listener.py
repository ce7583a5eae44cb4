"""Spark's own listener interface, implemented directly in Python through Py4J.

PySpark's `StreamingQueryListener` copies every field of an event, some 400 Py4J commands each
time. The interface below it hands over the Java event, and two commands take its JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from py4j.protocol import Py4JError

from sparklag_listener.query_events import Idled, Progressed, QueryEvent, Started, Terminated
from sparklag_listener.redaction import redact

_ONE_REPLY_CHARS = 7_500
"""A Py4J reply above 8 KiB leaves in two packets and waits some 40 ms between them (Nagle's
algorithm on one side, delayed acknowledgement on the other)."""

_SLICE_CHARS = 7_500
_EXCEPTION_CHARS = 8_000


class ProgressText:
    """Takes the JSON out of a progress event, in slices where it is long."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._to_builder: Any = None
        self._as_arguments: Any = None
        self._long = False
        self._can_slice = True

    def read(self, event: Any) -> str:
        """The JSON of `event.progress()`. 2 Py4J commands, or 3 and one for each slice."""
        text = self._read_sliced(event) if self._long and self._can_slice else None
        if text is None:
            text = str(event.progress().json())
        self._long = len(text) > _ONE_REPLY_CHARS
        return text

    def _read_sliced(self, event: Any) -> str | None:
        try:
            return self._sliced(event)
        except (Py4JError, TypeError):
            # A JVM in which the handle cannot be made: slow is better than not at all.
            self._can_slice = False
            return None

    def _sliced(self, event: Any) -> str:
        # Py4J turns every Java String into a Python one at once. Only a handle composed inside
        # the JVM keeps the text there, as a StringBuilder.
        if self._to_builder is None:
            self._to_builder = self._compose(event)
            # Kept: each step of a class's name costs a command.
            self._as_arguments = self._jvm.java.util.Collections.singletonList
        builder = self._to_builder.invokeWithArguments(self._as_arguments(event))
        length = builder.length()
        return "".join(
            builder.substring(start, min(start + _SLICE_CHARS, length))
            for start in range(0, length, _SLICE_CHARS)
        )

    def _compose(self, event: Any) -> Any:
        lang = self._jvm.java.lang
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
        public = handles.publicLookup()
        string = lang.Class.forName("java.lang.String")
        event_class, progress_class = event.getClass(), event.progress().getClass()
        progress = public.findVirtual(event_class, "progress", method_type(progress_class))
        json = public.findVirtual(progress_class, "json", method_type(string))
        builder = public.findConstructor(
            lang.Class.forName("java.lang.StringBuilder"), method_type(lang.Void.TYPE, string)
        )
        return handles.filterReturnValue(handles.filterReturnValue(progress, json), builder)


class Py4jListener:
    """Called by Spark on a Py4J thread. Hands each event over and returns; never raises.

    `hand_over` must not block: `onQueryStarted` runs inside the query's `start()`, and a slow
    callback makes Spark's listener bus drop events of every listener.
    """

    def __init__(
        self,
        jvm: Any,
        hand_over: Callable[[QueryEvent], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._progress_text = ProgressText(jvm)
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
            text = redact(exception.get()) if exception.isDefined() else None
            return Terminated(
                query_id=event.id().toString(),
                run_id=event.runId().toString(),
                exception=text and text[:_EXCEPTION_CHARS],
                at_ms=at_ms,
            )

        self._take(read)

    def _take(self, read: Callable[[int], QueryEvent]) -> None:
        try:
            self._hand_over(read(time.time_ns() // 1_000_000))
        except Exception as error:
            # Spark would log a stack trace for each event, for ever.
            self._on_error(error)

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
