"""The queries of a classic session and their state, by requests to the JVM."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from sparklag_listener.classic.active_jobs import ActiveJobs, BatchTasks, Job, RunningScans, Stage
from sparklag_listener.classic.listener import STOPPED, UNAVAILABLE, ProgressReader, brief
from sparklag_listener.classic.query_description import describe_execution, trigger_of
from sparklag_listener.events.event_queue import (
    MAX_EXCEPTION_CHARS,
    ActiveQuery,
    Progressed,
    Terminated,
)
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.session import (
    KEPT_PROGRESSES,
    ActiveQueries,
    ConnectionLost,
    SparkUnavailable,
    activity_of,
)
from sparklag_schemas import Activity, RunningBatch
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.messages.bounds import HTTP_URL, MAX_NAME
from sparklag_schemas.messages.enumerations import Mode
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag")
_AFTER_STOP = re.compile(rf"{STOPPED.pattern}|\[INTERNAL_ERROR\]|NullPointerException")
"""The failures of a batch that is planned while Spark stops. They have no event."""


class _Status(msgspec.Struct):
    isTriggerActive: bool  # noqa: N815 - Spark's names
    isDataAvailable: bool  # noqa: N815


_status = msgspec.json.Decoder(_Status)


@dataclass
class _Run:
    query_id: str
    run_id: str
    name: str | None
    java: Any
    progress_at: str | None = None
    """The timestamp of the last progress that was read. It differs for each trigger."""
    batch_id: int | None = None
    """The last completed batch, by that progress."""
    tasks: BatchTasks | None = None
    mode: Mode | None = None


class ClassicQueries:
    """See Queries.

    Holds the Java objects of the queries, so that the end of a query can be read afterwards. They
    never leave this class.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._session = spark._jsparkSession
        self._context = spark._jsparkSession.sparkContext()
        self._jvm = spark._jvm
        self._progress_reader = ProgressReader(spark._jvm)
        self._runs: dict[str, _Run] = {}
        self._streams: Any = None
        self._equals: Any = None
        self._active: Any = None
        """Java's array, as of the last call, and the run of each query in it."""
        self._active_runs: list[_Run] = []
        self._active_jobs: ActiveJobs | None = None
        self._scans: RunningScans | None = None
        self._are_tasks_unknown = False

    def list_active(
        self, retain: Collection[str] = (), with_activity: Collection[str] = ()
    ) -> ActiveQueries:
        """Py4J commands: 3, and 2 for each query. For each query, 2 more after a query started or
        ended, 3 more after a completed batch, 2 more for the activity. Those of ActiveJobs where a
        query of `with_activity` runs a batch."""
        with _errors_translated():
            is_stopped = bool(self._context.isStopped())
            is_stopping = is_stopped and not self._is_stopped_by_driver
            # Without a context no batch runs any more, but the queries are still listed as active.
            runs = [] if is_stopped else self._list_runs()
            active = tuple(self._active_query(run, with_activity) for run in runs)
        active = self._with_running_batches(active)
        retained = {query.run_id for query in active}.union(retain)
        for run_id in [run_id for run_id in self._runs if run_id not in retained]:
            self._runs.pop(run_id, None)
        return ActiveQueries(active, is_stopped, is_stopping)

    def describe(self, query_id: str) -> QueryDescription:
        description = QueryDescription()
        with suppress(*UNAVAILABLE):
            query = self._session.streams().get(query_id)
            if query is not None:
                self._track(query)
                description = describe_execution(query.streamingQuery())
                return replace(
                    description,
                    application=str(self._context.applicationId()),
                    spark_ui_url=self._ui_url(),
                )
        return description

    def _ui_url(self) -> str | None:
        """None: switched off (`spark.ui.enabled`), or no address that a page can link to."""
        url = self._context.uiWebUrl()
        text = "" if url.isEmpty() else str(url.get())
        return text if len(text) <= MAX_NAME and re.fullmatch(HTTP_URL, text) else None

    def kept_progresses(self) -> int | None:
        with suppress(ValueError, *UNAVAILABLE):
            return int(self._session.conf().get(KEPT_PROGRESSES))
        return None

    def await_events(self, timeout_s: float) -> bool | None:
        """None: this Spark lacks the method, which is not public.

        A query's end is visible before its last events have reached the listener.
        """
        try:
            if not self._context.isStopped():
                self._context.listenerBus().waitUntilEmpty(int(timeout_s * 1000))
            return True
        except Py4JJavaError:
            # Too many events, or an event that takes too long.
            return False
        except UNAVAILABLE:
            return None

    def last_progress(self, run_id: str, after: int | None) -> Progressed | None:
        with _errors_translated():
            run = self._runs.get(run_id)
            progress = run.java.lastProgress() if run is not None else None
            if run is None or progress is None:
                return None
            batch_id = _completed_batch(progress)
            if after is not None and (batch_id is None or batch_id <= after):
                return None
            if not _ran_a_batch(progress):
                recent = run.java.recentProgress()
                numbers = reversed(range(len(recent)))
                progress = next((p for n in numbers if _ran_a_batch(p := recent[n])), progress)
            return Progressed(self._progress_reader.read(progress), epoch_ms())

    def is_active(self, run_id: str) -> bool:
        with _errors_translated():
            run = self._runs.get(run_id)
            return run is not None and bool(run.java.isActive())

    def termination(self, query_id: str, run_id: str) -> Terminated:
        with _errors_translated():
            run = self._runs.get(run_id)
            text = None
            if run is not None and (exception := run.java.exception()).isDefined():
                text = self._stack_trace(exception.get())
            if not self._context.isStopped():
                return Terminated(query_id, run_id, text, epoch_ms())
            if self._is_stopped_by_driver:
                text = None if text and _AFTER_STOP.search(text) else text
            else:
                text = text or "SparkContext was shut down, and not by its driver"
            return Terminated(query_id, run_id, text, epoch_ms(), "stopped")

    @property
    def _is_stopped_by_driver(self) -> bool:
        # True once `spark.stop()` has returned; Spark itself may stop too.
        return self._spark.sparkContext._jsc is None

    def _list_runs(self) -> list[_Run]:
        if self._streams is None:
            self._streams = self._session.streams()
            # Cached: each part of a class's name costs a command.
            self._equals = self._jvm.java.util.Objects.deepEquals
        active = self._streams.active()
        # The Java objects are the same while the queries are the same.
        if self._active is None or not self._equals(active, self._active):
            self._active_runs = [self._track(query) for query in active]
            self._active = active
        return self._active_runs

    def _active_query(self, run: _Run, with_activity: Collection[str]) -> ActiveQuery:
        self._runs.setdefault(run.run_id, run)
        try:
            progress = run.java.lastProgress()
            progress_at = progress.timestamp() if progress is not None else None
            if progress_at != run.progress_at:
                run.batch_id = _completed_batch(progress) if progress is not None else None
                run.progress_at = progress_at
            batch_id = run.batch_id
            activity = _activity(run) if run.run_id in with_activity else None
        except Py4JJavaError:
            # A failure of one query must not hide the others.
            batch_id = activity = None
        return ActiveQuery(run.query_id, run.run_id, epoch_ms(), run.name, batch_id, activity)

    def _with_running_batches(self, queries: tuple[ActiveQuery, ...]) -> tuple[ActiveQuery, ...]:
        if all(query.activity != "running" for query in queries):
            return queries
        try:
            if self._active_jobs is None:
                self._active_jobs = ActiveJobs(self._jvm, self._context)
            jobs, stages = self._active_jobs.read()
            look = partial(self._running_batch, self._active_jobs, jobs, stages)
            return tuple(
                replace(query, running_batch=look(query.run_id))
                if query.activity == "running"
                else query
                for query in queries
            )
        except Exception as error:
            # PySpark has its own types for Java's errors.
            if not self._are_tasks_unknown:
                self._are_tasks_unknown = True
                _log.debug("sparklag: cannot read Spark's active jobs: %s", brief(error))
            return queries

    def _running_batch(
        self, active: ActiveJobs, jobs: Sequence[Job], stages: Sequence[Stage], run_id: str
    ) -> RunningBatch:
        run, now_ms = self._runs[run_id], epoch_ms()
        tasks = run.tasks
        if tasks is None or tasks.completed_batch_id != run.batch_id:
            tasks = run.tasks = BatchTasks(run.batch_id, now_ms)
        if tasks.batch_id is None:
            tasks.batch_id = _planned_batch(run)
        of_run = [job for job in jobs if job.job_group == run_id]
        # Many short jobs may all begin and end between two requests.
        newest = max(job.job_id for job in of_run) if of_run else active.newest_job(run_id)
        if run.mode is None:
            run.mode = trigger_of(run.java.streamingQuery())[0]
        rows_read = self._rows_read(of_run) if run.mode == "real-time" else None
        return tasks.observe(of_run, stages, active.oldest_task, now_ms, newest, rows_read)

    def _rows_read(self, jobs: Sequence[Job]) -> int | None:
        # PySpark has its own types for Java's errors.
        with suppress(Exception):
            if self._scans is None:
                self._scans = RunningScans(self._jvm, self._session)
            return self._scans.rows(jobs)
        return None

    def _track(self, query: Any) -> _Run:
        run_id = str(query.runId().toString())
        if run_id not in self._runs:
            self._runs[run_id] = _Run(str(query.id().toString()), run_id, query.name(), query)
        return self._runs[run_id]

    def _stack_trace(self, exception: Any) -> str:
        writer = self._jvm.java.io.StringWriter()
        # The cause alone, as in the event: Spark's exception around it has the query's whole plan.
        cause = exception.getCause() or exception
        cause.printStackTrace(self._jvm.java.io.PrintWriter(writer))
        return str(writer.toString())[:MAX_EXCEPTION_CHARS]


@contextmanager
def _errors_translated() -> Iterator[None]:
    try:
        yield
    except UNAVAILABLE as error:
        # A broken connection is a bare Py4JError; Java's exceptions have a trace.
        is_bare = type(error) is Py4JError and "Trace" not in str(error)
        if is_bare or isinstance(error, Py4JNetworkError | OSError):
            raise ConnectionLost(brief(error)) from error
        raise SparkUnavailable(brief(error)) from error


def _completed_batch(progress: Any) -> int | None:
    # The progress of an idle trigger has the id of the next batch.
    batch_id = int(progress.batchId()) - (not _ran_a_batch(progress))
    return batch_id if batch_id >= 0 else None


def _planned_batch(run: _Run) -> int | None:
    """The id of the running batch. None: it is not planned yet."""
    if run.batch_id is not None:
        return run.batch_id + 1
    execution = run.java.streamingQuery().lastExecution()
    return int(execution.currentBatchId()) if execution is not None else None


def _activity(run: _Run) -> Activity | None:
    # Reading the status as text takes one command fewer than reading its two fields.
    try:
        status = _status.decode(str(run.java.status().json()))
    except NOT_JSON:
        return None
    return activity_of(status.isTriggerActive and status.isDataAvailable, run.progress_at)


def _ran_a_batch(progress: Any) -> bool:
    return bool(progress.durationMs().containsKey("addBatch"))
