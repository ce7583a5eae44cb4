"""Reads text from the JVM: long text without network delays, and errors without stack traces."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError

from sparklag_schemas.text.redaction import redact

CHUNK_CHARS = 7_500
"""A Py4J reply above 8 KiB leaves in two packets and waits some 40 ms between them (Nagle's
algorithm on one side, delayed acknowledgement on the other)."""


class ProgressReader:
    """Reads the JSON of a progress, in chunks where it is long.

    `steps` are the methods to call, from the object that is read to the text.
    """

    def __init__(self, jvm: Any, *steps: str) -> None:
        self._jvm = jvm
        self._steps = steps
        self._to_builder: Any = None
        self._as_arguments: Any = None
        self._is_long = False
        self._can_chunk = True

    def read(self, source: Any) -> str:
        """The text. A Py4J command for each step, or 3 and one for each chunk."""
        text = self._read_chunks(source) if self._is_long and self._can_chunk else None
        if text is None:
            text = str(_follow(source, self._steps)[-1])
        self._is_long = len(text) > CHUNK_CHARS
        return text

    def _read_chunks(self, source: Any) -> str | None:
        # Py4J converts every Java String at once. Only a method handle, composed inside the JVM,
        # leaves the text there, as a StringBuilder.
        try:
            if self._to_builder is None:
                self._to_builder = self._compose(source)
                # Cached: each part of a class's name costs a command.
                self._as_arguments = self._jvm.java.util.Collections.singletonList
            return read_text(self._to_builder.invokeWithArguments(self._as_arguments(source)))
        except (Py4JError, TypeError):
            # This JVM does not allow the handle: read slowly.
            self._can_chunk = False
            return None

    def _compose(self, source: Any) -> Any:
        lang = self._jvm.java.lang
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
        public = handles.publicLookup()
        string = lang.Class.forName("java.lang.String")
        objects = _follow(source, self._steps[:-1])
        classes = [*(each.getClass() for each in objects), string]
        handle = public.findVirtual(classes[0], self._steps[0], method_type(classes[1]))
        for step, owner, result in zip(self._steps[1:], classes[1:-1], classes[2:], strict=True):
            then = public.findVirtual(owner, step, method_type(result))
            handle = handles.filterReturnValue(handle, then)
        builder = public.findConstructor(
            lang.Class.forName("java.lang.StringBuilder"), method_type(lang.Void.TYPE, string)
        )
        return handles.filterReturnValue(handle, builder)


def read_text(builder: Any) -> str:
    """The text in Java's StringBuilder or StringBuffer. A Py4J command, and one for each chunk."""
    length = builder.length()
    return "".join(
        builder.substring(start, min(start + CHUNK_CHARS, length))
        for start in range(0, length, CHUNK_CHARS)
    )


def brief(error: BaseException) -> str:
    """The texts of Py4J and Java, without the stack frames."""
    lines = [line.strip(": ") for line in str(error).splitlines()[:2]]
    return redact(": ".join(line for line in lines if line)) or type(error).__name__


def _follow(source: Any, steps: tuple[str, ...]) -> list[Any]:
    """`source`, and the result of each step."""
    results = [source]
    for step in steps:
        results.append(getattr(results[-1], step)())
    return results
