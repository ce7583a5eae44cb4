"""Takes long text out of the JVM without waiting for its network buffers."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError

_ONE_REPLY_CHARS = 7_500
"""A Py4J reply above 8 KiB leaves in two packets and waits some 40 ms between them (Nagle's
algorithm on one side, delayed acknowledgement on the other)."""

_SLICE_CHARS = 7_500


class ProgressText:
    """Takes the JSON of a progress, in slices where it is long.

    `steps` are the methods to call, from the object that is read to the text.
    """

    def __init__(self, jvm: Any, *steps: str) -> None:
        self._jvm = jvm
        self._steps = steps
        self._to_builder: Any = None
        self._as_arguments: Any = None
        self._long = False
        self._can_slice = True

    def read(self, source: Any) -> str:
        """The text. A Py4J command for each step, or 3 and one for each slice."""
        text = self._read_sliced(source) if self._long and self._can_slice else None
        if text is None:
            text = str(_follow(source, self._steps)[-1])
        self._long = len(text) > _ONE_REPLY_CHARS
        return text

    def _read_sliced(self, source: Any) -> str | None:
        try:
            return self._sliced(source)
        except (Py4JError, TypeError):
            # A JVM in which the handle cannot be made: slow is better than not at all.
            self._can_slice = False
            return None

    def _sliced(self, source: Any) -> str:
        # Py4J turns every Java String into a Python one at once. Only a handle composed inside
        # the JVM keeps the text there, as a StringBuilder.
        if self._to_builder is None:
            self._to_builder = self._compose(source)
            # Kept: each step of a class's name costs a command.
            self._as_arguments = self._jvm.java.util.Collections.singletonList
        builder = self._to_builder.invokeWithArguments(self._as_arguments(source))
        return text_in(builder)

    def _compose(self, source: Any) -> Any:
        lang = self._jvm.java.lang
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
        public = handles.publicLookup()
        string = lang.Class.forName("java.lang.String")
        on_the_way = _follow(source, self._steps[:-1])
        classes = [*(each.getClass() for each in on_the_way), string]
        handle = public.findVirtual(classes[0], self._steps[0], method_type(classes[1]))
        for step, owner, answer in zip(self._steps[1:], classes[1:-1], classes[2:], strict=True):
            then = public.findVirtual(owner, step, method_type(answer))
            handle = handles.filterReturnValue(handle, then)
        builder = public.findConstructor(
            lang.Class.forName("java.lang.StringBuilder"), method_type(lang.Void.TYPE, string)
        )
        return handles.filterReturnValue(handle, builder)


def text_in(builder: Any) -> str:
    """The text in Java's StringBuilder or StringBuffer, in slices. A Py4J command, and one for
    each slice."""
    length = builder.length()
    return "".join(
        builder.substring(start, min(start + _SLICE_CHARS, length))
        for start in range(0, length, _SLICE_CHARS)
    )


def _follow(source: Any, steps: tuple[str, ...]) -> list[Any]:
    """`source`, and what each step answers."""
    answers = [source]
    for step in steps:
        answers.append(getattr(answers[-1], step)())
    return answers
