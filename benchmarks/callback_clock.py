"""Measures, inside the JVM, what Spark's listener bus spends in a listener's callback.

The bus calls listeners in the order they were added. One that notes `System.nanoTime()` stands
before the listener that is measured and one behind it; both are composed of the JDK's own method
handles, so that no jar is needed and nothing between the two notes is ours but the listener.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

_DEADLINE_S = 30.0


class CallbackClock:
    """Posts a progress event on the session's bus and tells how long the callback took."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._streams: Any = spark._jsparkSession.streams()
        self._notes = jvm.java.util.concurrent.ConcurrentLinkedQueue()
        self._before = self._note_taker(spark)
        self._behind = self._note_taker(spark)

    def measure(self, listener: Any, event: Any, times: int, pause_s: float) -> list[float]:
        """Milliseconds of each callback, `pause_s` between the events.

        `listener` is a Java StreamingQueryListener; `event` a QueryProgressEvent of a query that
        runs in this session (the bus passes over those of others).
        """
        around = (self._before, listener, self._behind)
        self._notes.clear()
        for each in around:
            self._streams.addListener(each)
        try:
            for number in range(times):
                time.sleep(pause_s)
                self._streams.postListenerEvent(event)
                self._wait_for(2 * (number + 1))
        finally:
            for each in around:
                self._streams.removeListener(each)
        notes = [int(note) for note in self._notes.toString().strip("[]").split(",")]
        pairs = zip(notes[::2], notes[1::2], strict=True)
        return [(behind - before) / 1e6 for before, behind in pairs]

    def _wait_for(self, notes: int) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while self._notes.size() < notes:
            # Coarse: asking wakes the JVM, and that must not help the callback.
            time.sleep(0.02)
            if time.monotonic() > deadline:
                raise TimeoutError(f"the listener bus did not deliver within {_DEADLINE_S:g} s")

    def _note_taker(self, spark: SparkSession) -> Any:
        jvm: Any = spark._jvm
        interface = _load(jvm, "org.apache.spark.sql.streaming.PythonStreamingQueryListener")
        gateway: Any = spark.sparkContext._gateway
        interfaces = gateway.new_array(jvm.java.lang.Class, 1)
        interfaces[0] = interface
        proxy = jvm.java.lang.reflect.Proxy.newProxyInstance(
            interface.getClassLoader(), interfaces, self._handler(jvm)
        )
        return jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(proxy)

    def _handler(self, jvm: Any) -> Any:
        """An InvocationHandler that adds the time to the notes, whatever is called."""
        lang = jvm.java.lang
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
        public = handles.publicLookup()
        anything = _load(jvm, "java.lang.Object")
        clock = public.findStatic(
            _load(jvm, "java.lang.System"), "nanoTime", method_type(lang.Long.TYPE)
        )
        add = public.findVirtual(
            self._notes.getClass(), "add", method_type(lang.Boolean.TYPE, anything)
        )
        note = handles.filterReturnValue(
            clock.asType(method_type(anything)), add.bindTo(self._notes)
        )
        # Spark's interface returns nothing, and for that a handler must answer null.
        note = note.asType(method_type(lang.Void.TYPE)).asType(method_type(anything))
        handler = _load(jvm, "java.lang.reflect.InvocationHandler")
        takes = handler.getMethods()[0].getParameterTypes()
        return lang.invoke.MethodHandleProxies.asInterfaceInstance(
            handler, handles.dropArguments(note, 0, takes)
        )


def _load(jvm: Any, name: str) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
