"""What a session answers about its queries when it is asked through the JVM, whatever its listener
bus says."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from sparklag_listener.classic.progress_text import ProgressText
from sparklag_listener.classic.spark_session import await_events, brief, describe
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.queries import (
    ActiveQuery,
    ConnectionLost,
    Look,
    Unanswered,
    activity_of,
)
from sparklag_listener.events.query_events import MOST_EXCEPTION_CHARS, Progressed, Terminated
from sparklag_schemas import Activity
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.runtime.clock import epoch_ms


class _Status(msgspec.Struct):
    isTriggerActive: bool  # noqa: N815 - Spark's names
    isDataAvailable: bool  # noqa: N815


_status = msgspec.json.Decoder(_Status)


@dataclass
class _Held:
    query_id: str
    run_id: str
    name: str | None
    java: Any
    progress_at: str | None = None
    """Timestamp of the last progress that was looked at. Each trigger has its own."""
    batch_id: int | None = None
    """The last completed, by that."""


class SessionQueries:
    """See Queries.

    Java's objects of the queries are held, so that one that has ended can still say why. They never
    leave this class.
    """

    def __init__(self, spark: Any) -> None:
        self._session = spark._jsparkSession
        self._context = spark._jsparkSession.sparkContext()
        self._jvm = spark._jvm
        self._progress_text = ProgressText(spark._jvm, "json")
        self._held: dict[str, _Held] = {}
        self._streams: Any = None
        self._equals: Any = None
        self._active: Any = None
        """Java's array, as it was at the last look, and what is held of each in it."""
        self._active_held: list[_Held] = []

    def look(self, keep: Collection[str] = (), asked: Collection[str] = ()) -> Look:
        """Who is active, and what those runs do that are `asked`. Forgets runs that are not
        active, but for those to `keep`.

        3 Py4J commands, and 2 for each query; where a query was started or has ended 2 more for
        each, where it has completed a batch 3 more, where it is asked 2 more.
        """
        with _asking():
            over = bool(self._context.isStopped())
            # Without a context a query runs no batch any more, though without data it never
            # notices.
            held = [] if over else self._look_who_is_active()
            found = tuple(self._seen(each, asked) for each in held)
        still = {query.run_id for query in found}.union(keep)
        for run_id in [run_id for run_id in self._held if run_id not in still]:
            self._held.pop(run_id, None)
        return Look(found, over)

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
        """The last progress of a run, where it is of a batch later than `than`."""
        with _asking():
            held = self._held.get(run_id)
            progress = held.java.lastProgress() if held is not None else None
            batch_id = _completed_batch(progress)
            if held is None or (than is not None and (batch_id is None or batch_id <= than)):
                return None
            if progress is not None and not _ran_a_batch(progress):
                progress = _last_that_ran_a_batch(held.java.recentProgress()) or progress
            if progress is None:
                return None
            return Progressed(self._progress_text.read(progress), epoch_ms())

    def is_active(self, run_id: str) -> bool:
        """Whether a run that was active still is."""
        with _asking():
            held = self._held.get(run_id)
            return held is not None and bool(held.java.isActive())

    def end(self, query_id: str, run_id: str) -> Terminated:
        """How a run that is no longer active ended: as its event would say it."""
        with _asking():
            held = self._held.get(run_id)
            text = None
            if held is not None and (exception := held.java.exception()).isDefined():
                text = self._stack_trace(exception.get())
            return Terminated(query_id, run_id, text, epoch_ms())

    def _look_who_is_active(self) -> list[_Held]:
        if self._streams is None:
            self._streams = self._session.streams()
            # Kept: each step of a class's name costs a command.
            self._equals = self._jvm.java.util.Objects.deepEquals
        active = self._streams.active()
        # Java's objects are the same as long as the queries are.
        if self._active is None or not self._equals(active, self._active):
            self._active_held = [self._hold(query) for query in active]
            self._active = active
        return self._active_held

    def _seen(self, held: _Held, asked: Collection[str]) -> ActiveQuery:
        self._held.setdefault(held.run_id, held)
        try:
            progress = held.java.lastProgress()
            progress_at = progress.timestamp() if progress is not None else None
            if progress_at != held.progress_at:
                held.batch_id = _completed_batch(progress)
                held.progress_at = progress_at
            batch_id = held.batch_id
            activity = _activity(held) if held.run_id in asked else None
        except Py4JJavaError:
            # One query that does not say how far it is must not hide the others.
            batch_id = activity = None
        return ActiveQuery(held.query_id, held.run_id, held.name, batch_id, epoch_ms(), activity)

    def _hold(self, query: Any) -> _Held:
        run_id = str(query.runId().toString())
        held = self._held.get(run_id)
        if held is None:
            held = _Held(str(query.id().toString()), run_id, query.name(), query)
            self._held[run_id] = held
        return held

    def _stack_trace(self, exception: Any) -> str:
        writer = self._jvm.java.io.StringWriter()
        # The event tells the cause: what Spark puts around it is the query's whole plan.
        cause = exception.getCause() or exception
        cause.printStackTrace(self._jvm.java.io.PrintWriter(writer))
        return str(writer.toString())[:MOST_EXCEPTION_CHARS]


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (Py4JError, OSError, AttributeError, TypeError) as error:
        if _is_of_the_connection(error):
            # The JVM is gone, and its queries with it.
            raise ConnectionLost(brief(error)) from error
        # A Spark with other internals, or a session that is just being stopped.
        raise Unanswered(brief(error)) from error


def _is_of_the_connection(error: Exception) -> bool:
    # An answer that breaks off is a bare Py4JError; what Java says comes with its trace.
    bare = type(error) is Py4JError and "Trace" not in str(error)
    return bare or isinstance(error, Py4JNetworkError | OSError)


def _completed_batch(progress: Any) -> int | None:
    """By Java's `progress`, or by None."""
    if progress is None:
        return None
    # One of an idle trigger carries the number of the batch to come, and has no event of its own.
    batch_id = int(progress.batchId()) - (not _ran_a_batch(progress))
    return batch_id if batch_id >= 0 else None


def _activity(held: _Held) -> Activity | None:
    # Its status as text takes a command less than its two parts.
    try:
        status = _status.decode(str(held.java.status().json()))
    except NOT_JSON:
        return None
    return activity_of(
        trigger_active=status.isTriggerActive,
        data_available=status.isDataAvailable,
        any_progress=held.progress_at is not None,
    )


def _ran_a_batch(progress: Any) -> bool:
    return bool(progress.durationMs().containsKey("addBatch"))


def _last_that_ran_a_batch(recent: Any) -> Any:
    for number in reversed(range(len(recent))):
        progress = recent[number]
        if _ran_a_batch(progress):
            return progress
    return None
