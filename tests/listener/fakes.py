"""Stand-ins by name, for what cannot be had for real or must fail at will."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class FakeContext:
    """The JVM's SparkContext, as far as it is asked."""

    def __init__(self, stopped: bool = False) -> None:
        self._stopped = stopped

    def isStopped(self) -> bool:  # noqa: N802 - Java's name
        return self._stopped


@dataclass
class FakeJavaSession:
    """The JVM's SparkSession, as far as it is asked."""

    context: FakeContext = field(default_factory=FakeContext)

    def sparkContext(self) -> FakeContext:  # noqa: N802
        return self.context


@dataclass
class FakeSession:
    """A PySpark session of any version."""

    version: str = "4.0.0"
    _jsparkSession: Any = field(default_factory=FakeJavaSession)  # noqa: N815 - PySpark's name
    _jvm: Any = field(default_factory=object)


def connect_session() -> Any:
    """An object whose class is where Spark Connect has its own; the real one needs grpc."""
    made = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    return made()


@dataclass
class FakeText:
    """A Java object with a `toString`."""

    text: str

    def toString(self) -> str:  # noqa: N802
        return self.text


@dataclass
class FakeOption:
    """Scala's Option."""

    value: str | None

    def isDefined(self) -> bool:  # noqa: N802
        return self.value is not None

    def get(self) -> str:
        assert self.value is not None
        return self.value


@dataclass
class FakeProgress:
    """The JVM's StreamingQueryProgress."""

    text: str

    def json(self) -> str:
        return self.text


@dataclass
class FakeEvent:
    """Any of the JVM's listener events."""

    query_id: str = "query"
    run_id: str = "run"
    query_name: str | None = "orders"
    error: str | None = None
    progress_text: str = "{}"

    def id(self) -> FakeText:
        return FakeText(self.query_id)

    def runId(self) -> FakeText:  # noqa: N802
        return FakeText(self.run_id)

    def name(self) -> str | None:
        return self.query_name

    def exception(self) -> FakeOption:
        return FakeOption(self.error)

    def progress(self) -> FakeProgress:
        return FakeProgress(self.progress_text)


class FailingEvent:
    """An event of a JVM that answers nothing but errors: every call raises what `error` makes."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error()
