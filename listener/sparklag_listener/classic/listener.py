"""Spark's listener interface: in Python through Py4J, or composed inside the JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from sparklag_listener.classic.py4j_text import CHUNK_CHARS, ProgressReader, read_text
from sparklag_listener.classic.queries import fails_by_stop
from sparklag_listener.events.event_queue import (
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


_SPARK: Final = "org.apache.spark.sql.streaming."


def text_listener(gateway: Any, listener: Any) -> Any:
    """A PythonStreamingQueryListener in the JVM: `listener.accept` gets the JSON of each progress,
    as a StringBuilder where it is long, and `listener` every other event.

    Raises Py4JError or TypeError where this JVM or this Spark does not allow it.
    """
    lang = gateway.jvm.java.lang
    handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
    find = handles.publicLookup().findVirtual
    load = lang.Thread.currentThread().getContextClassLoader().loadClass
    anything, string = load("java.lang.Object"), load("java.lang.String")
    boolean, nothing = lang.Boolean.TYPE, lang.Void.TYPE
    handler = load("java.lang.reflect.InvocationHandler")
    takes = handler.getMethods()[0].getParameterTypes()  # proxy, method, arguments

    event, progress = (
        load(f"{_SPARK}{name}")
        for name in ("StreamingQueryListener$QueryProgressEvent", "StreamingQueryProgress")
    )
    text = handles.filterReturnValue(
        find(event, "progress", method_type(progress)),
        find(progress, "json", method_type(string)),
    )
    is_long = handles.insertArguments(
        find(string, "startsWith", method_type(boolean, [string, lang.Integer.TYPE])),
        *(1, _array(gateway, lang.Object, "", CHUNK_CHARS + 1)),
    )
    builder = handles.publicLookup().findConstructor(
        load("java.lang.StringBuilder"), method_type(nothing, string)
    )
    as_object = method_type(anything, string)
    passed = handles.guardWithTest(
        is_long, builder.asType(as_object), handles.identity(string).asType(as_object)
    )
    accept = find(load("java.util.function.Consumer"), "accept", method_type(nothing, anything))
    deliver = handles.filterReturnValue(
        handles.filterReturnValue(text, passed), accept.bindTo(listener)
    )
    deliver = deliver.asSpreader(takes[2], 1).asType(method_type(anything, takes[2]))

    equals = find(string, "equals", method_type(boolean, anything)).bindTo("onQueryProgress")
    is_progress = handles.filterReturnValue(
        find(takes[1], "getName", method_type(string)),
        equals.asType(method_type(boolean, string)),
    )
    others = find(handler, "invoke", method_type(anything, takes))
    handle = handles.guardWithTest(
        handles.dropArguments(is_progress, 0, [takes[0]]),
        handles.dropArguments(deliver, 0, [takes[0], takes[1]]),
        others.bindTo(lang.reflect.Proxy.getInvocationHandler(listener)),
    )
    interface = load(f"{_SPARK}PythonStreamingQueryListener")
    return lang.reflect.Proxy.newProxyInstance(
        interface.getClassLoader(),
        _array(gateway, lang.Class, interface),
        lang.invoke.MethodHandleProxies.asInterfaceInstance(handler, handle),
    )


def _array(gateway: Any, of: Any, *values: Any) -> Any:
    array = gateway.new_array(of, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
