"""Spark's listener in Python, composed inside the JVM where that is allowed; and reading text from
the JVM in chunks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JError

from sparklag_listener.events.event_queue import (
    MAX_EXCEPTION_CHARS,
    Idled,
    Progressed,
    QueryEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.session import OnError, OnEvent
from sparklag_schemas.text.redaction import redact
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag")
UNAVAILABLE: Final = (Py4JError, OSError, AttributeError, TypeError)
"""The errors where the JVM is gone, Spark is stopping, or this Spark has other internals."""
STOPPED: Final = re.compile(
    "stopped SparkContext|SparkContext (?:was|is|has been) (?:already )?(?:shut ?down|stopped)"
)
"""The text of the exception of a batch that failed because Spark was stopped."""
NOT_ALLOWED: Final = re.compile(
    "Py4JSecurityException|(?:white|allow)listed|JVM_ATTRIBUTE_|no attribute '_j(?:vm|spark)"
)
"""The text of the errors of a platform that allows only some methods of the JVM, or none."""
_REMEDY: Final = (
    "; its access mode does not allow that: use the access mode dedicated (single user), or let"
    " the service read the checkpoints of its queries"
)
_CHUNK_CHARS: Final = 7_500
"""A Py4J reply above 8 KiB leaves in two packets and waits some 40 ms between them (Nagle's
algorithm on one side, delayed acknowledgement on the other)."""


class ProgressReader:
    """Reads the JSON of Spark's progress objects; long JSON in chunks."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._to_builder: Any = None
        self._as_arguments: Any = None
        self._is_long = False
        self._can_chunk = True

    def read(self, progress: Any) -> str:
        """The JSON. One Py4J command, or 3 and one for each chunk."""
        text = self._read_chunks(progress) if self._is_long and self._can_chunk else None
        if text is None:
            text = str(progress.json())
        self._is_long = len(text) > _CHUNK_CHARS
        return text

    def _read_chunks(self, progress: Any) -> str | None:
        # Py4J converts every Java String at once. Only a method handle, composed inside the JVM,
        # leaves the text there, as a StringBuilder.
        try:
            if self._to_builder is None:
                self._to_builder = self._compose(progress.getClass())
                # Cached: each part of a class's name costs a command.
                self._as_arguments = self._jvm.java.util.Collections.singletonList
            return read_text(self._to_builder.invokeWithArguments(self._as_arguments(progress)))
        except (Py4JError, TypeError):
            # This JVM does not allow the handle: read slowly.
            self._can_chunk = False
            return None

    def _compose(self, progress_class: Any) -> Any:
        lang = self._jvm.java.lang
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
        string, builder = (
            lang.Class.forName(f"java.lang.{n}") for n in ("String", "StringBuilder")
        )
        public = handles.publicLookup()
        return handles.filterReturnValue(
            public.findVirtual(progress_class, "json", method_type(string)),
            public.findConstructor(builder, method_type(lang.Void.TYPE, string)),
        )


def read_text(builder: Any) -> str:
    """The text in Java's StringBuilder or StringBuffer, by one Py4J command and one for each chunk.
    A String is already text in Python."""
    if isinstance(builder, str):
        return builder
    length = builder.length()
    return "".join(
        builder.substring(start, min(start + _CHUNK_CHARS, length))
        for start in range(0, length, _CHUNK_CHARS)
    )


def brief(error: BaseException) -> str:
    """The texts of Py4J and Java, without the stack frames; a remedy where the platform refuses."""
    lines = [line.strip(": ") for line in str(error).splitlines()[:2]]
    text = redact(": ".join(line for line in lines if line)) or type(error).__name__
    return text + _REMEDY if NOT_ALLOWED.search(text) else text


class Py4jListener:
    """Called by Spark on a Py4J thread. Passes each event on and returns; never raises.

    `on_event` must not block: `onQueryStarted` runs inside the query's `start()`, and a slow
    callback makes Spark's listener bus drop events of every listener.
    """

    def __init__(self, jvm: Any, on_event: OnEvent, on_error: OnError) -> None:
        self._progress_reader = ProgressReader(jvm)
        self._on_event = on_event
        self._on_error = on_error

    def onQueryStarted(self, event: Any) -> None:
        self._dispatch(lambda at_ms: Started(*_ids(event), event.name(), at_ms))

    def accept(self, progress: Any) -> None:
        """Called by `text_listener`, with JSON or a StringBuilder of it."""
        self._dispatch(lambda at_ms: Progressed(read_text(progress), at_ms))

    def onQueryProgress(self, event: Any) -> None:
        """Called where this JVM or Spark does not allow `text_listener`."""
        self._dispatch(
            lambda at_ms: Progressed(self._progress_reader.read(event.progress()), at_ms)
        )

    def onQueryIdle(self, event: Any) -> None:
        self._dispatch(lambda at_ms: Idled(*_ids(event), at_ms))

    def onQueryTerminated(self, event: Any) -> None:
        def read(at_ms: int) -> Terminated | None:
            exception = event.exception()
            text = str(exception.get()) if exception.isDefined() else None
            if text and STOPPED.search(text):
                # A poll reports this end, and knows what stopped Spark.
                return None
            return Terminated(*_ids(event), text and text[:MAX_EXCEPTION_CHARS], at_ms)

        self._dispatch(read)

    # Py4J passes these methods of Java's Object to Python too.
    toString = object.__repr__

    def hashCode(self) -> int:
        return id(self) & 0x7FFF_FFFF

    def equals(self, other: Any) -> bool:
        return str(other) == repr(self)  # Java has a proxy of this object

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A callback of a newer Spark, ignored: Py4J would log an error for each call."""
        if name.startswith("__"):
            raise AttributeError(name)
        _log.debug("sparklag: the callback %s of this Spark is ignored", name)
        setattr(self, name, lambda *_: None)
        return lambda *_: None

    def _dispatch(self, read: Callable[[int], QueryEvent | None]) -> None:
        try:
            event = read(epoch_ms())
            if event is not None:
                self._on_event(event)
        except Exception as error:
            # If this raised, Spark would log a stack trace for each event.
            self._on_error(error)

    class Java:
        implements: ClassVar = [
            "org.apache.spark.sql.streaming.PythonStreamingQueryListener",
            "java.util.function.Consumer",
        ]


def _ids(event: Any) -> tuple[str, str]:
    return event.id().toString(), event.runId().toString()


def text_listener(gateway: Any, listener: Any) -> Any:
    """A PythonStreamingQueryListener in the JVM: `listener.accept` gets the JSON of each progress,
    as a StringBuilder where it is long, and `listener` every other event.

    Raises Py4JError or TypeError where this JVM or this Spark does not allow it.
    """
    spark = "org.apache.spark.sql.streaming"
    lang = gateway.jvm.java.lang
    handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
    find = handles.publicLookup().findVirtual
    load = lang.Thread.currentThread().getContextClassLoader().loadClass
    anything, string = load("java.lang.Object"), load("java.lang.String")
    boolean, nothing = lang.Boolean.TYPE, lang.Void.TYPE
    handler = load("java.lang.reflect.InvocationHandler")
    takes = handler.getMethods()[0].getParameterTypes()  # proxy, method, arguments

    event = load(f"{spark}.StreamingQueryListener$QueryProgressEvent")
    progress = load(f"{spark}.StreamingQueryProgress")
    text = handles.filterReturnValue(
        find(event, "progress", method_type(progress)), find(progress, "json", method_type(string))
    )
    is_long = handles.insertArguments(
        find(string, "startsWith", method_type(boolean, [string, lang.Integer.TYPE])),
        *(1, _array(gateway, lang.Object, "", _CHUNK_CHARS + 1)),
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
        find(takes[1], "getName", method_type(string)), equals.asType(method_type(boolean, string))
    )
    forward = find(handler, "invoke", method_type(anything, takes))
    handle = handles.guardWithTest(
        handles.dropArguments(is_progress, 0, [takes[0]]),
        handles.dropArguments(deliver, 0, [takes[0], takes[1]]),
        forward.bindTo(lang.reflect.Proxy.getInvocationHandler(listener)),
    )
    interface = load(f"{spark}.PythonStreamingQueryListener")
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
