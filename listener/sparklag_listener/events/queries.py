"""What Spark is asked about its queries, whoever asks: through the JVM, or as a Connect client."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.query_events import Progressed, QueryEvent, Started, Terminated
from sparklag_schemas import Activity, SparklagError

_log = logging.getLogger("sparklag")


class Unanswered(SparklagError):
    """Spark did not answer; the text says why. Another time it may."""


class ConnectionLost(Unanswered):
    """There may be nobody to ask any more."""


@dataclass(frozen=True)
class ActiveQuery:
    """A run that goes on."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int | None
    """The last completed. None before the first, and for a continuous query."""
    at_ms: int
    activity: Activity | None = None
    """None: it was not asked, or did not say."""

    def started(self) -> Started:
        """What its first event says."""
        return Started(self.query_id, self.run_id, self.name, self.at_ms)


@dataclass(frozen=True)
class Look:
    """All runs that are active; none in a session that is stopped."""

    active: tuple[ActiveQuery, ...]
    session_over: bool
    """The session is stopped."""


class Queries(Protocol):
    """A session's queries. Each method blocks as long as Spark takes. Raises Unanswered only."""

    def look(self, keep: Collection[str] = (), asked: Collection[str] = ()) -> Look:
        """Who is active, and what those runs do that are `asked`. Forgets runs that are not
        active, but for those to `keep`."""

    def describe(self, query_id: str) -> QueryDescription:
        """What a query that is active says of itself; empty where it does not. Raises nothing."""

    def await_events(self, timeout_s: float) -> bool | None:
        """Wait until the listener bus is empty, and say whether it is; None if it does not say."""

    def last_progress(self, run_id: str, than: int | None) -> Progressed | None:
        """The last progress of a run, where it is of a batch later than `than`.

        Of an idle query, whose last progress is of no batch, the last one of a batch if it is among
        Spark's recent ones.
        """

    def is_active(self, run_id: str) -> bool:
        """Whether a run that was active still is."""

    def end(self, query_id: str, run_id: str) -> Terminated:
        """How a run that is no longer active ended: as its event would say it."""


def activity_of(
    *, trigger_active: bool, data_available: bool, any_progress: bool
) -> Activity | None:
    """What a query does, by its status.

    A trigger that finds nothing to read, or too little by `minOffsetsPerTrigger`, is active too.
    Without any progress a status that says nothing may be a continuous query's, which never does.
    """
    if trigger_active and data_available:
        return "running"
    return "waiting" if any_progress else None


def already_running(queries: Queries) -> list[QueryEvent]:
    """The active runs as the events that a listener came too late for. Raises nothing."""
    found: list[QueryEvent] = []
    try:
        for query in queries.look().active:
            found.append(query.started())
            progress = queries.last_progress(query.run_id, None)
            if progress is not None:
                found.append(progress)
    except Unanswered as error:
        # The next census finds them.
        _log.warning("sparklag: not all running queries could be read: %s", error)
    return found
