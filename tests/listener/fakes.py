"""Stand-ins by name, for what cannot be had for real or must fail at will."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from sparklag_listener.errors import NoListener
from sparklag_listener.events.event_queue import ActiveQuery, Progressed, Terminated
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.session import ActiveQueries, ConnectionLost, OnError, OnEvent
from sparklag_schemas import Activity, DriverEnd, Origin


@dataclass
class FakeContext:
    stopped: bool = False

    def isStopped(self) -> bool:  # noqa: N802 - Java's name
        return self.stopped


@dataclass
class FakeConfiguration:
    properties: dict[str, str] = field(default_factory=dict)

    def getAll(self) -> FakeConfiguration:  # noqa: N802
        return self

    def mkString(self, between: str) -> str:  # noqa: N802
        return between.join(f"{name} -> {value}" for name, value in self.properties.items())


@dataclass
class FakeJavaSession:
    context: FakeContext = field(default_factory=FakeContext)
    configuration: FakeConfiguration = field(default_factory=FakeConfiguration)

    def conf(self) -> FakeConfiguration:
        return self.configuration

    def sparkContext(self) -> FakeContext:  # noqa: N802
        return self.context


@dataclass
class FakeSession:
    version: str = "4.0.0"
    _jsparkSession: Any = field(default_factory=FakeJavaSession)  # noqa: N815 - PySpark's name
    _jvm: Any = field(default_factory=object)


def connect_session(stopped: bool = False) -> Any:
    """An object whose class is where Spark Connect has its own, without a server."""
    fields = {"__module__": "pyspark.sql.connect.session", "is_stopped": stopped}
    return type("SparkSession", (), fields)()


class FakeMap(dict[str, str]):
    def keySet(self) -> list[str]:  # noqa: N802
        return list(self)


@dataclass
class FakeEvent:
    query_id: str = "query"
    run_id: str = "run"
    query_name: str | None = "orders"
    error: str | None = None
    progress_text: str = "{}"

    def id(self) -> Any:
        return SimpleNamespace(toString=lambda: self.query_id)

    def runId(self) -> Any:  # noqa: N802
        return SimpleNamespace(toString=lambda: self.run_id)

    def name(self) -> str | None:
        return self.query_name

    def exception(self) -> Any:
        return SimpleNamespace(isDefined=lambda: self.error is not None, get=lambda: self.error)

    def progress(self) -> Any:
        return SimpleNamespace(json=lambda: self.progress_text)


@dataclass
class FailingEvent:
    """An event of a JVM that answers nothing but errors: every call raises what `error` makes."""

    error: Callable[[], Exception]

    def __getattr__(self, name: str) -> Any:
        raise self.error()


class FakeQueries:
    """A session's queries as the query poller calls it, from any thread."""

    def __init__(self) -> None:
        self.polls = 0
        self.texts_read = 0
        self.statuses_read = 0
        self.activities: dict[str, Activity] = {}
        """The activity of runs by their id."""
        self.is_session_stopped = False
        self.is_stopping = False
        self.stopping: set[str] = set()
        """Runs that are active when Spark is looked at, and no more a moment later."""
        self.fail: Callable[[], Exception] | None = None
        self.fail_once: Exception | None = None
        self.bus: bool | None = True
        """True where the listener bus is empty. None: unknown."""
        self.answering = threading.Event()
        self.answering.set()
        self._active: dict[str, ActiveQuery] = {}
        self._texts: dict[str, tuple[int, str]] = {}
        self._exceptions: dict[str, str | None] = {}

    def runs(
        self,
        query_id: str,
        run_id: str,
        batch_id: int | None,
        text: str | None = None,
        name: str | None = None,
    ) -> None:
        if batch_id is not None and text is not None:
            self._texts[run_id] = batch_id, text
        self._active[run_id] = ActiveQuery(query_id, run_id, 1, name, batch_id)

    def ends(
        self,
        run_id: str,
        exception: str | None,
        batch_id: int | None = None,
        text: str | None = None,
    ) -> None:
        if batch_id is not None and text is not None:
            self._texts[run_id] = batch_id, text
        self._exceptions[run_id] = exception
        self._active.pop(run_id, None)

    def list_active(
        self, retain: Collection[str] = (), with_activity: Collection[str] = ()
    ) -> ActiveQueries:
        active = tuple(
            replace(
                query, activity=self.activities.get(run_id) if run_id in with_activity else None
            )
            for run_id, query in self._active.items()
        )
        self.statuses_read += len(with_activity)
        self.polls += 1
        self.answering.wait(60)
        if self.fail is not None:
            raise self.fail()
        if self.fail_once is not None:
            error, self.fail_once = self.fail_once, None
            raise error
        return ActiveQueries(active, self.is_session_stopped, self.is_stopping)

    def describe(self, query_id: str) -> QueryDescription:
        return QueryDescription()

    def kept_progresses(self) -> int | None:
        return None

    def await_events(self, timeout_s: float) -> bool | None:
        return self.bus

    def last_progress(self, run_id: str, after: int | None) -> Progressed | None:
        batch_id, text = self._texts.get(run_id, (-1, ""))
        if batch_id <= (-1 if after is None else after):
            return None
        self.texts_read += 1
        return Progressed(text, 2)

    def is_active(self, run_id: str) -> bool:
        return run_id in self._active and run_id not in self.stopping

    def termination(self, query_id: str, run_id: str) -> Terminated:
        return Terminated(query_id, run_id, self._exceptions.get(run_id), 3)


class FakeListener:
    def __init__(self, *, registered: bool = True, refusals: int = 0) -> None:
        self.registered = registered
        self.refusals = refusals
        """The number of first attempts that are refused."""
        self.attempts = 0
        self.answering = threading.Event()
        self.answering.set()

    def is_registered(self) -> bool:
        return self.registered

    def register(self) -> None:
        self.attempts += 1
        self.answering.wait(60)
        if self.attempts <= self.refusals:
            raise NoListener("it does not want to")
        self.registered = True


@dataclass
class FakeObservedSession:
    queries: FakeQueries = field(default_factory=FakeQueries)
    listener: FakeListener | None = None
    listener_method: Origin = "listener"
    label = "a fake session"

    def program_end(self) -> tuple[DriverEnd, str | None]:
        return "exited", None

    def is_same(self, spark: Any) -> bool:
        return False

    def listen(self, on_event: OnEvent, on_error: OnError) -> None: ...

    def stop_listening(self, timeout_s: float) -> None: ...


def session_without_jvm(
    describe: Callable[[str], QueryDescription] = lambda query_id: QueryDescription(),
) -> FakeObservedSession:
    """It describes queries, and is not polled again."""
    session = FakeObservedSession()
    session.queries.fail = lambda: ConnectionLost("gone")
    session.queries.describe = describe  # type: ignore[assignment]  # a fake
    return session
