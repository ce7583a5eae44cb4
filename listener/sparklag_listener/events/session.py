"""The interface to a Spark session, classic or Connect: its listener and its queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sparklag_listener.events.event_queue import ActiveQuery, Progressed, QueryEvent, Terminated
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_schemas import Activity, DriverEnd, Origin, SparklagError
from sparklag_schemas.settings.reading import SPARK_PREFIX

OnEvent = Callable[[QueryEvent], None]
"""Must not block."""
KEPT_PROGRESSES: Final = "spark.sql.streaming.numRecentProgressUpdates"
"""Spark keeps one less than this; at 0 it fails each query."""
OnError = Callable[[BaseException], None]


class SparkUnavailable(SparklagError):
    """Spark did not answer; the text has the reason. A retry may succeed."""


class ConnectionLost(SparkUnavailable):
    """The JVM, or the session on the server, may be gone."""


@dataclass(frozen=True)
class ActiveQueries:
    """All runs that are active; none in a session that is stopped."""

    queries: tuple[ActiveQuery, ...]
    is_session_stopped: bool
    is_stopping: bool = False
    """True: Spark is stopping, and it is not known yet whether its driver has stopped it."""


class Queries(Protocol):
    """A session's queries. Each method blocks until Spark answers. Raises SparkUnavailable only."""

    def list_active(
        self, retain: Collection[str] = (), with_activity: Collection[str] = ()
    ) -> ActiveQueries:
        """The active runs; those in `with_activity` with their activity and running batch. Forgets
        runs that are not active, except those in `retain`."""

    def describe(self, query_id: str) -> QueryDescription:
        """The description of an active query; empty where Spark gives none. Raises nothing."""

    def kept_progresses(self) -> int | None:
        """KEPT_PROGRESSES in the session. None: not set, or not known. Raises nothing."""

    def await_events(self, timeout_s: float) -> bool | None:
        """Wait until the listener bus is empty; returns whether it is. None: not known."""

    def last_progress(self, run_id: str, after: int | None) -> Progressed | None:
        """The last progress of a run, if its batch is later than `after`. If the query is idle, the
        last progress with a batch, if Spark still has it."""

    def is_active(self, run_id: str) -> bool:
        """Returns whether a run that was active still is."""

    def termination(self, query_id: str, run_id: str) -> Terminated:
        """The event of the end of a run that is no longer active."""


class Listener(Protocol):
    """A registration that Spark's client may drop silently."""

    def is_registered(self) -> bool:
        """Returns whether events still arrive. No I/O."""

    def register(self) -> None:
        """Register again. Blocks until Spark answers. Raises ListenerError."""


class ObservedSession(Protocol):
    """A session as the handle uses it."""

    @property
    def listener_method(self) -> Origin:
        """The origin of observations from this session's listener."""

    def program_end(self) -> tuple[DriverEnd, str | None]:
        """How the session's queries end with this program, and the exception that ends it. Calls
        neither Spark nor its JVM."""

    @property
    def label(self) -> str:
        """The session's name in the log."""

    @property
    def queries(self) -> Queries:
        """The session's queries."""

    @property
    def listener(self) -> Listener | None:
        """The registered listener, if Spark may drop it."""

    def is_same(self, spark: Any) -> bool:
        """Returns whether `spark` is an object of this session."""

    def listen(self, on_event: OnEvent, on_error: OnError) -> None:
        """Register a listener. Blocks until Spark responds. Raises NoListener where Spark accepts
        no listener."""

    def stop_listening(self, timeout_s: float) -> None:
        """Unregister the listener, if any. Blocks until Spark answers. Raises nothing."""


def own_settings(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The sparklag settings among Spark's properties, without their prefix."""
    return {
        name.removeprefix(SPARK_PREFIX): value
        for name, value in properties
        if name.startswith(SPARK_PREFIX)
    }


def activity_of(trigger_has_data: bool, progress: object) -> Activity | None:
    """The activity of a query, from its status and last progress. None: unknown.

    A trigger that finds no data, or less than `minOffsetsPerTrigger`, is active too. A continuous
    query has no progress, and its status is never active.
    """
    return "running" if trigger_has_data else "waiting" if progress is not None else None
