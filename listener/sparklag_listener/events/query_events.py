"""What Spark says of its queries, as values: taken from the JVM, not yet read."""

from __future__ import annotations

from dataclasses import dataclass

from sparklag_schemas import Activity

MOST_EXCEPTION_CHARS = 8_000
"""What is taken of an exception's text."""


@dataclass(frozen=True)
class Started:
    """A run of a query began, or was found running."""

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
    """A trigger found nothing to read."""

    query_id: str
    run_id: str
    at_ms: int


@dataclass(frozen=True)
class Refreshed:
    """Asked, Spark named the run among those that are active. No listener says this."""

    query_id: str
    run_id: str
    at_ms: int
    activity: Activity | None = None
    """What it does, by its own status. None: it did not say."""


@dataclass(frozen=True)
class Terminated:
    """A run ended. `exception` is None where it was stopped."""

    query_id: str
    run_id: str
    exception: str | None
    at_ms: int


QueryEvent = Started | Progressed | Idled | Refreshed | Terminated


@dataclass(frozen=True)
class Found:
    """What an event that did not come would have said: learnt by asking Spark."""

    event: Started | Progressed | Terminated
    lost: bool = True
    """Its event should have come. A session that is stopped tells of no end, and polling there are
    no events."""


Told = QueryEvent | Found
