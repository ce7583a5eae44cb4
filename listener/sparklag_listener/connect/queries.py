"""What a Spark Connect server answers about a session's queries when its client asks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sparklag_listener.connect.client import ConnectClient
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.progress import completed_batch
from sparklag_listener.events.queries import ActiveQuery, ConnectionLost, Look, activity_of
from sparklag_listener.events.query_events import MOST_EXCEPTION_CHARS, Progressed, Terminated
from sparklag_schemas import Activity, MalformedMessage
from sparklag_schemas.runtime.clock import epoch_ms


@dataclass
class _Seen:
    """A run, and its last progress as it was at the last look."""

    query_id: str
    text: str | None = None
    batch_id: int | None = None


class ConnectQueries:
    """See Queries. A client does not learn what a query was given: no brokers, no checkpoint."""

    def __init__(self, client: ConnectClient) -> None:
        self._client = client
        self._seen: dict[str, _Seen] = {}
        self._answers = False
        """The server answered, the last time it was asked."""

    def look(self, keep: Collection[str] = (), asked: Collection[str] = ()) -> Look:
        """Who is active, and what those runs do that are `asked`. Forgets runs that are not
        active, but for those to `keep`.

        One request, one for each query, and one for each that is asked.
        """
        if self._client.is_stopped:
            # Where the server was away its queries may go on.
            if self._answers and self._client.ends_with_session:
                return Look((), session_over=True)
            raise ConnectionLost("the session is stopped")
        self._answers = False
        active = tuple(self._active(query, asked) for query in self._who_is_active())
        self._answers = True
        still = {query.run_id for query in active}.union(keep)
        self._seen = {run_id: seen for run_id, seen in self._seen.items() if run_id in still}
        return Look(active, session_over=False)

    def describe(self, query_id: str) -> QueryDescription:
        """Nothing: its progress says what it reads."""
        return QueryDescription()

    def await_events(self, timeout_s: float) -> bool | None:
        """The server does not say what is on its way."""
        return None

    def last_progress(self, run_id: str, than: int | None) -> Progressed | None:
        """The last progress of a run, where it is of a batch later than `than`."""
        text = self._last_progress(run_id)
        batch_id, ran = _batch_of(text)
        if text is None or (than is not None and (batch_id is None or batch_id <= than)):
            return None
        if not ran:
            text = next(
                (each for each in reversed(self._recent(run_id)) if _batch_of(each)[1]), text
            )
        return Progressed(text, epoch_ms())

    def is_active(self, run_id: str) -> bool:
        """Whether a run that was active still is."""
        return run_id in self._seen and bool(self._ask(run_id, "status").status.is_active)

    def end(self, query_id: str, run_id: str) -> Terminated:
        """How a run that is no longer active ended: as its event would say it."""
        text = None
        if run_id in self._seen and not self._client.is_stopped:
            told = self._ask(run_id, "exception").exception
            if told.HasField("exception_message"):
                trace = told.stack_trace if told.HasField("stack_trace") else ""
                text = f"{told.exception_message}\n{trace}".strip()[:MOST_EXCEPTION_CHARS]
        return Terminated(query_id, run_id, text, epoch_ms())

    def _who_is_active(self) -> Any:
        command = self._client.command()
        command.streaming_query_manager_command.active = True
        answer = self._client.send(command, "streaming_query_manager_command_result")
        return answer.active.active_queries

    def _active(self, query: Any, asked: Collection[str]) -> ActiveQuery:
        query_id, run_id = str(query.id.id), str(query.id.run_id)
        seen = self._seen.setdefault(run_id, _Seen(query_id))
        text = self._last_progress(run_id)
        if text != seen.text:
            seen.text, seen.batch_id = text, _batch_of(text)[0]
        activity = self._activity(run_id, seen) if run_id in asked else None
        name = query.name or None
        return ActiveQuery(query_id, run_id, name, seen.batch_id, epoch_ms(), activity)

    def _activity(self, run_id: str, seen: _Seen) -> Activity | None:
        status = self._ask(run_id, "status").status
        return activity_of(
            trigger_active=status.is_trigger_active,
            data_available=status.is_data_available,
            any_progress=seen.text is not None,
        )

    def _last_progress(self, run_id: str) -> str | None:
        if run_id not in self._seen or self._client.is_stopped:
            return None
        texts = self._ask(run_id, "last_progress").recent_progress.recent_progress_json
        return str(texts[-1]) if texts else None

    def _recent(self, run_id: str) -> list[str]:
        return list(self._ask(run_id, "recent_progress").recent_progress.recent_progress_json)

    def _ask(self, run_id: str, question: str) -> Any:
        command = self._client.command()
        asked = command.streaming_query_command
        asked.query_id.id, asked.query_id.run_id = self._seen[run_id].query_id, run_id
        setattr(asked, question, True)
        return self._client.send(command, "streaming_query_command_result")


def _batch_of(text: str | None) -> tuple[int | None, bool]:
    """The last completed batch, and whether `text` is of it."""
    if text is None:
        return None, False
    try:
        return completed_batch(text)
    except MalformedMessage:
        # The observer tells of it.
        return None, True
