"""The events of Spark's queries, as values: taken from the JVM, not parsed yet."""

from __future__ import annotations

from dataclasses import dataclass

from sparklag_schemas import Activity, DriverEnd, RunningBatch

MAX_EXCEPTION_CHARS = 8_000
"""Of an exception's text; the rest is cut off."""


@dataclass(frozen=True)
class Started:
    """A run of a query began, or was already active."""

    query_id: str
    run_id: str
    name: str | None
    at_ms: int


@dataclass(frozen=True)
class Progressed:
    """A batch completed. `text` is Spark's progress as JSON."""

    text: str
    at_ms: int


@dataclass(frozen=True)
class Idled:
    """A trigger without data."""

    query_id: str
    run_id: str
    at_ms: int


@dataclass(frozen=True)
class Refreshed:
    """A run was active when Spark was polled. No listener has this event."""

    query_id: str
    run_id: str
    at_ms: int
    activity: Activity | None = None
    """From its status. None: not known."""
    running_batch: RunningBatch | None = None


@dataclass(frozen=True)
class Terminated:
    """A run ended. `exception` is None where it was stopped."""

    query_id: str
    run_id: str
    exception: str | None
    at_ms: int
    driver_end: DriverEnd | None = None
    """Where its driver's end is the run's, or (`closed`) the handle's end: the run goes on."""


QueryEvent = Started | Progressed | Idled | Refreshed | Terminated


@dataclass(frozen=True)
class PolledEvent:
    """The equivalent of an event that did not arrive, built by polling Spark."""

    event: Started | Progressed | Terminated
    lost: bool = True
    """The listener should have received it: it polls beside a listener, and the session runs."""


QueuedEvent = QueryEvent | PolledEvent
