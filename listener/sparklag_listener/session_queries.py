"""What a session answers about its queries when it is asked, whatever its listener bus says."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sparklag_listener.progress_text import ProgressText
from sparklag_listener.query_events import (
    MOST_EXCEPTION_CHARS,
    Progressed,
    QueryEvent,
    Started,
    Terminated,
)
from sparklag_listener.redaction import redact
from sparklag_listener.spark_session import QueryDescription, await_events, brief, describe

_log = logging.getLogger("sparklag")


@dataclass(frozen=True)
class ActiveQuery:
    """A run that goes on."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int | None
    """The last completed. None before the first, and for a continuous query."""
    at_ms: int

    def started(self) -> Started:
        """What its first event says."""
        return Started(self.query_id, self.run_id, self.name, self.at_ms)


@dataclass(frozen=True)
class Look:
    """All runs that are active; none in a session that is stopped."""

    active: tuple[ActiveQuery, ...]
    session_over: bool
    """The session is stopped."""


@dataclass(frozen=True)
class _Held:
    query_id: str
    name: str | None
    java: Any


class SessionQueries:
    """Each method asks the JVM, and blocks as long as that takes.

    Java's objects of the queries are held, so that one that has ended can still say why. They never
    leave this class.
    """

    def __init__(self, spark: Any) -> None:
        self._session = spark._jsparkSession
        self._context = spark._jsparkSession.sparkContext()
        self._jvm = spark._jvm
        self._progress_text = ProgressText(spark._jvm, "json")
        self._held: dict[str, _Held] = {}

    def look(self, keep: Collection[str] = ()) -> Look:
        """Who is active. Forgets runs that are not, but for those to `keep`.

        Some 8 Py4J commands for each query. Raises what Py4J raises.
        """
        over = bool(self._context.isStopped())
        # Without a context a query runs no batch any more, though without data it never notices.
        active = () if over else self._session.streams().active()
        found = tuple(self._active(query) for query in active)
        still = {query.run_id for query in found}.union(keep)
        for run_id in [run_id for run_id in self._held if run_id not in still]:
            self._held.pop(run_id, None)
        return Look(found, over)

    def already_running(self) -> list[QueryEvent]:
        """The active runs as the events that a listener came too late for. Raises nothing."""
        found: list[QueryEvent] = []
        try:
            for query in self.look().active:
                found.append(query.started())
                progress = self.last_progress(query.run_id, None)
                if progress is not None:
                    found.append(progress)
        except (Py4JError, OSError) as error:
            # The next census finds them.
            _log.warning("sparklag: not all running queries could be read: %s", brief(error))
        return found

    def describe(self, query_id: str) -> QueryDescription:
        """Kafka sources and checkpoint of a query that is active; empty where Spark does not say.

        Raises nothing.
        """
        try:
            query = self._session.streams().get(query_id)
            if query is None:
                return QueryDescription()
            self._hold(query)
        except (Py4JError, OSError, AttributeError, TypeError):
            return QueryDescription()
        return describe(query)

    def await_events(self, timeout_s: float) -> bool | None:
        """Wait until the listener bus is empty, and say whether it is; None if it does not say."""
        return await_events(self._context, timeout_s)

    def last_progress(self, run_id: str, than: int | None) -> Progressed | None:
        """The last progress of a run, where it is of a batch later than `than`.

        Of an idle query, whose last progress is of no batch, the last one of a batch if it is among
        Spark's recent ones.
        """
        held = self._held.get(run_id)
        progress = held.java.lastProgress() if held is not None else None
        batch_id = _completed_batch(progress)
        if held is None or (than is not None and (batch_id is None or batch_id <= than)):
            return None
        if progress is not None and not _ran_a_batch(progress):
            progress = _last_that_ran_a_batch(held.java.recentProgress()) or progress
        if progress is None:
            return None
        return Progressed(self._progress_text.read(progress), _now_ms())

    def is_active(self, run_id: str) -> bool:
        """Whether a run that was active still is."""
        held = self._held.get(run_id)
        return held is not None and bool(held.java.isActive())

    def end(self, query_id: str, run_id: str) -> Terminated:
        """How a run that is no longer active ended: as its event would say it."""
        held = self._held.get(run_id)
        text = None
        if held is not None and (exception := held.java.exception()).isDefined():
            text = self._stack_trace(exception.get())
        return Terminated(query_id, run_id, text, _now_ms())

    def _active(self, query: Any) -> ActiveQuery:
        run_id, held = self._hold(query)
        try:
            batch_id = _completed_batch(held.java.lastProgress())
        except Py4JJavaError:
            # One query that does not say how far it is must not hide the others.
            batch_id = None
        return ActiveQuery(held.query_id, run_id, held.name, batch_id, _now_ms())

    def _hold(self, query: Any) -> tuple[str, _Held]:
        run_id = str(query.runId().toString())
        held = self._held.get(run_id)
        if held is None:
            held = _Held(str(query.id().toString()), query.name(), query)
            self._held[run_id] = held
        return run_id, held

    def _stack_trace(self, exception: Any) -> str:
        writer = self._jvm.java.io.StringWriter()
        # The event tells the cause: what Spark puts around it is the query's whole plan.
        cause = exception.getCause() or exception
        cause.printStackTrace(self._jvm.java.io.PrintWriter(writer))
        return redact(str(writer.toString()))[:MOST_EXCEPTION_CHARS]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _completed_batch(progress: Any) -> int | None:
    """By Java's `progress`, or by None."""
    if progress is None:
        return None
    # One of an idle trigger carries the number of the batch to come, and has no event of its own.
    batch_id = int(progress.batchId()) - (not _ran_a_batch(progress))
    return batch_id if batch_id >= 0 else None


def _ran_a_batch(progress: Any) -> bool:
    return bool(progress.durationMs().containsKey("addBatch"))


def _last_that_ran_a_batch(recent: Any) -> Any:
    for number in reversed(range(len(recent))):
        progress = recent[number]
        if _ran_a_batch(progress):
            return progress
    return None
