"""The client of a Spark Connect session, and the session's queries by its requests."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sparklag_listener.events.event_queue import (
    MAX_EXCEPTION_CHARS,
    ActiveQuery,
    Progressed,
    Terminated,
)
from sparklag_listener.events.kafka_source import WHOLE_NAMES, QueryDescription
from sparklag_listener.events.progress import parse_progress
from sparklag_listener.events.session import (
    KEPT_PROGRESSES,
    ActiveQueries,
    ConnectionLost,
    SparkUnavailable,
    activity_of,
)
from sparklag_schemas import MalformedMessage
from sparklag_schemas.text.redaction import redact
from sparklag_schemas.timestamps import epoch_ms

_GONE = ("INVALID_HANDLE.SESSION_", "SESSION_CHANGED", "SESSION_NOT_FOUND", "SESSION_SWITCHED",
         "NO_ACTIVE_SESSION", "Channel closed", "closed channel")  # fmt: skip
_MAX_CHARS = 300
_APP_ID = "spark.app.id"


class ConnectClient:
    """Sends commands of the Spark Connect protocol in the session of `spark`, over its channel.

    Unlike the user's commands, these are not retried for ten minutes while the server does not
    respond, and show no progress. Each blocks until the server responds.
    """

    def __init__(self, spark: Any) -> None:
        from grpc import RpcError  # type: ignore[import-untyped]  # grpc has no types
        from pyspark.errors import PySparkException
        from pyspark.sql.connect import proto

        self._spark = spark
        self.command: Any = proto.Command
        """Makes an empty command of the protocol."""
        self._make_operation: Any = proto.ConfigRequest.Operation
        # Other errors: the channel is closed, or the response has another form.
        errors = (OSError, ValueError, AttributeError, TypeError, LookupError)
        self._failures: tuple[type[Exception], ...] = (RpcError, PySparkException, *errors)
        # A shallow copy: it shares the channel, and has its own settings.
        self._client = copy.copy(spark.client)
        vars(self._client).pop("execute_command", None)  # of another ConnectSession
        self._client.disable_reattachable_execute()
        if hasattr(self._client, "set_retry_policies"):
            self._client.set_retry_policies([])
        # pyspark 3.5's, which the copy would else share.
        policy = getattr(spark.client, "_retry_policy", {})
        self._client._retry_policy = {**policy, "max_retries": 0}
        self._client._progress_handlers = []

    @property
    def is_stopped(self) -> bool:
        """True once the user has stopped the session."""
        return bool(self._spark.is_stopped)

    @property
    def ends_with_session(self) -> bool:
        """True where stopping the session ends its queries on the server too."""
        return bool(getattr(self._spark, "release_session_on_close", True))

    def send(self, command: Any, result: str | None = None) -> Any:
        """Returns the result named `result`, if given. Raises SparkUnavailable, or ConnectionLost
        where the session is gone."""
        with self.errors_translated():
            results = self._client.execute_command(command)[1]
            return results[result] if result is not None else None

    def properties(self, prefix: str) -> dict[str, str]:
        """Spark's properties in this session whose names begin with `prefix`. Raises as `send`."""
        operation = self._make_operation()
        operation.get_all.prefix = prefix
        with self.errors_translated():
            return {prefix + name: value for name, value in self._client.config(operation).pairs}

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        """Raise errors of pyspark's client as SparkUnavailable."""
        try:
            yield
        except self._failures as error:
            is_gone = any(sign in str(error) for sign in _GONE)
            raise (ConnectionLost if is_gone else SparkUnavailable)(_brief(error)) from error


def _brief(error: Exception) -> str:
    """One line, without gRPC's own debugging text."""
    text = str(error)
    details = re.search(r'details = "([^"\n]+)', text)
    line = details.group(1) if details else " ".join(text.split())
    return redact(line)[:_MAX_CHARS] or type(error).__name__


@dataclass
class _Run:
    query_id: str
    progress: str | None = None
    batch_id: int | None = None


class ConnectQueries:
    """See Queries. A client cannot read a query's options: no brokers, no checkpoint."""

    def __init__(self, client: ConnectClient) -> None:
        self._client = client
        self._runs: dict[str, _Run] = {}
        self._application: str | None = None
        self._is_answering = False

    def list_active(
        self, retain: Collection[str] = (), with_activity: Collection[str] = ()
    ) -> ActiveQueries:
        """One request, one for each query, and one for each activity."""
        if self._client.is_stopped:
            # If the server did not respond before, its queries may continue.
            if self._is_answering and self._client.ends_with_session:
                return ActiveQueries((), is_session_stopped=True)
            raise ConnectionLost("the session is stopped")
        command = self._client.command()
        command.streaming_query_manager_command.active = True
        try:
            result = self._client.send(command, "streaming_query_manager_command_result")
            active = tuple(
                self._active_query(query, with_activity) for query in result.active.active_queries
            )
        except SparkUnavailable as error:
            # ConnectionLost: the session was stopped in the meantime, but the server responds.
            self._is_answering = self._is_answering and isinstance(error, ConnectionLost)
            raise
        self._is_answering = True
        retained = {query.run_id for query in active}.union(retain)
        self._runs = {run_id: run for run_id, run in self._runs.items() if run_id in retained}
        return ActiveQueries(active, is_session_stopped=False)

    def describe(self, query_id: str) -> QueryDescription:
        # The observer takes the sources from its progress.
        properties: dict[str, str] = {}
        with suppress(SparkUnavailable):
            properties = self._client.properties(WHOLE_NAMES)
            if self._application is None:
                self._application = self._client.properties(_APP_ID).get(_APP_ID)
        is_whole = properties.get(WHOLE_NAMES, "").strip().lower() == "true"
        return QueryDescription(application=self._application, whole_names=is_whole)

    def kept_progresses(self) -> int | None:
        with suppress(SparkUnavailable, ValueError, KeyError):
            return int(self._client.properties(KEPT_PROGRESSES)[KEPT_PROGRESSES])
        return None

    def await_events(self, timeout_s: float) -> bool | None:
        return None  # the server has no such request

    def last_progress(self, run_id: str, after: int | None) -> Progressed | None:
        text = self._last_progress(run_id)
        batch_id, ran = _batch_of(text)
        if text is None or (after is not None and (batch_id is None or batch_id <= after)):
            return None
        if not ran:
            recent = self._request(run_id, "recent_progress").recent_progress.recent_progress_json
            text = next((each for each in reversed(list(recent)) if _batch_of(each)[1]), text)
        return Progressed(text, epoch_ms())

    def is_active(self, run_id: str) -> bool:
        return run_id in self._runs and bool(self._request(run_id, "status").status.is_active)

    def termination(self, query_id: str, run_id: str) -> Terminated:
        text = None
        if run_id in self._runs and not self._client.is_stopped:
            exception = self._request(run_id, "exception").exception
            if exception.HasField("exception_message"):
                trace = exception.stack_trace if exception.HasField("stack_trace") else ""
                text = f"{exception.exception_message}\n{trace}".strip()[:MAX_EXCEPTION_CHARS]
        return Terminated(query_id, run_id, text, epoch_ms())

    def _active_query(self, query: Any, with_activity: Collection[str]) -> ActiveQuery:
        query_id, run_id = str(query.id.id), str(query.id.run_id)
        run = self._runs.setdefault(run_id, _Run(query_id))
        text = self._last_progress(run_id)
        if text != run.progress:
            run.progress, run.batch_id = text, _batch_of(text)[0]
        activity = None
        if run_id in with_activity:
            status = self._request(run_id, "status").status
            has_data = status.is_trigger_active and status.is_data_available
            activity = activity_of(has_data, run.progress)
        return ActiveQuery(query_id, run_id, epoch_ms(), query.name or None, run.batch_id, activity)

    def _last_progress(self, run_id: str) -> str | None:
        if run_id not in self._runs or self._client.is_stopped:
            return None
        texts = self._request(run_id, "last_progress").recent_progress.recent_progress_json
        return str(texts[-1]) if texts else None

    def _request(self, run_id: str, field: str) -> Any:
        command = self._client.command()
        request = command.streaming_query_command
        request.query_id.id, request.query_id.run_id = self._runs[run_id].query_id, run_id
        setattr(request, field, True)
        return self._client.send(command, "streaming_query_command_result")


def _batch_of(text: str | None) -> tuple[int | None, bool]:
    """The last completed batch, and whether `text` is its progress."""
    if text is None:
        return None, False
    try:
        progress = parse_progress(text)
    except MalformedMessage:
        # The observer logs it.
        return None, True
    return progress.batch_id, not progress.idle
