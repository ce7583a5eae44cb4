"""The queries of a Spark Connect session, by requests of its client."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sparklag_listener.connect.client import ConnectClient
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.progress import parse_progress
from sparklag_listener.events.query_events import MAX_EXCEPTION_CHARS, Progressed, Terminated
from sparklag_listener.events.session import (
    ActiveQueries,
    ActiveQuery,
    ConnectionLost,
    SparkUnavailable,
    activity_of,
)
from sparklag_schemas import Activity, MalformedMessage
from sparklag_schemas.timestamps import epoch_ms


@dataclass
class _Run:
    query_id: str
    progress: str | None = None
    """The last one."""
    batch_id: int | None = None


class ConnectQueries:
    """See Queries. A client cannot read a query's options: no brokers, no checkpoint."""

    def __init__(self, client: ConnectClient) -> None:
        self._client = client
        self._runs: dict[str, _Run] = {}
        self._is_answering = False
        """Whether the server answered the last request."""

    def list_active(
        self, retain: Collection[str] = (), with_activity: Collection[str] = ()
    ) -> ActiveQueries:
        """One request, one for each query, and one for each activity."""
        if self._client.is_stopped:
            # If the server was away before, its queries may go on.
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
        except ConnectionLost:
            # The session was stopped in the meantime: that is no server that is away.
            raise
        except SparkUnavailable:
            self._is_answering = False
            raise
        self._is_answering = True
        retained = {query.run_id for query in active}.union(retain)
        self._runs = {run_id: run for run_id, run in self._runs.items() if run_id in retained}
        return ActiveQueries(active, is_session_stopped=False)

    def describe(self, query_id: str) -> QueryDescription:
        """Empty: the observer takes the sources from its progress."""
        return QueryDescription()

    def await_events(self, timeout_s: float) -> bool | None:
        """None: the server has no such request."""
        return None

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
        activity = self._activity(run_id, run) if run_id in with_activity else None
        name = query.name or None
        return ActiveQuery(query_id, run_id, name, run.batch_id, epoch_ms(), activity)

    def _activity(self, run_id: str, run: _Run) -> Activity | None:
        status = self._request(run_id, "status").status
        return activity_of(
            trigger_active=status.is_trigger_active,
            data_available=status.is_data_available,
            any_progress=run.progress is not None,
        )

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
    """The last completed batch, and whether `text` is of it."""
    if text is None:
        return None, False
    try:
        progress = parse_progress(text)
    except MalformedMessage:
        # The observer logs it.
        return None, True
    return progress.batch_id, not progress.idle
