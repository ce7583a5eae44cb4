"""A listener composed inside the JVM, of the JDK's method handles: Python gets a progress as text.

Py4J passes a Java object as a reference, which then needs two commands to read its JSON, and two
more to release. A String is passed as it is: the callback needs no command.
"""

from __future__ import annotations

from typing import Any, Final

from sparklag_listener.classic.py4j_text import CHUNK_CHARS

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
