"""Spark's query events as values, and the bounded queue from Spark's threads to the loop."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from sparklag_schemas import Activity, DriverEnd, RunningBatch

MAX_EXCEPTION_CHARS = 8_000
"""Longer texts of exceptions are cut off."""


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
class ActiveQuery:
    """A run was active when Spark was polled. Listeners do not receive this event."""

    query_id: str
    run_id: str
    at_ms: int
    name: str | None = None
    batch_id: int | None = None
    """The last completed batch. None before the first, and for a continuous query."""
    activity: Activity | None = None
    """None: not requested, or not known."""
    running_batch: RunningBatch | None = None


@dataclass(frozen=True)
class Terminated:
    """A run ended. `exception` None: it was stopped. `driver_end`: its driver ended, or (`closed`)
    the handle was closed and the run continues."""

    query_id: str
    run_id: str
    exception: str | None
    at_ms: int
    driver_end: DriverEnd | None = None


QueryEvent = Started | Progressed | Idled | ActiveQuery | Terminated


@dataclass(frozen=True)
class PolledEvent:
    """The equivalent of an event that did not arrive, built by polling Spark. `lost`: the listener
    should have received it, as the session runs."""

    event: Started | Progressed | Terminated
    lost: bool = True


QueuedEvent = QueryEvent | PolledEvent

_RUN = re.compile(r'"runId"\s*:\s*"([^"]+)"')
_MAX_CHARS = 32_000_000


class EventQueue:
    """Events in the order they were put, for one reader on the loop that creates the queue.

    Above `max_events`, or `max_chars` of progress texts, only the newest progress and the newest
    idle event of each run are retained: a progress contains all of those before it. Starts and ends
    are always retained: they are small, and few. The rest is as in asyncio.Queue.
    """

    def __init__(self, max_events: int, max_chars: int = _MAX_CHARS) -> None:
        self._max_events = self._limit_events = max_events
        self._max_chars = self._limit_chars = max_chars
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._events: deque[QueuedEvent] = deque()
        self._chars = 0
        self._unfinished = 0
        self._is_notified = False
        self._available = asyncio.Event()
        self._finished = asyncio.Event()
        self.dropped = 0
        """Events replaced by a newer one of their run."""

    def put(self, event: QueuedEvent) -> None:
        """Thread-safe, never blocks. RuntimeError once the loop is closed."""
        with self._lock:
            if not self._is_notified:
                self._loop.call_soon_threadsafe(self._available.set)
                self._is_notified = True
            self._events.append(event)
            self._chars += _chars(event)
            self._unfinished += 1
            if len(self._events) > self._limit_events or self._chars > self._limit_chars:
                self._compact()

    async def get(self) -> QueuedEvent:
        """The oldest event, once there is one."""
        while True:
            with self._lock:
                if self._events:
                    event = self._events.popleft()
                    self._chars -= _chars(event)
                    return event
                self._is_notified = False
                self._available.clear()
            await self._available.wait()

    def task_done(self) -> None:
        with self._lock:
            self._unfinished -= 1
            if not self._unfinished:
                self._finished.set()

    async def join(self) -> None:
        while self._unfinished:
            self._finished.clear()
            await self._finished.wait()

    def qsize(self) -> int:
        return len(self._events)

    def _compact(self) -> None:
        newest = {_slot(event): event for event in self._events}
        retained = [event for event in self._events if newest[_slot(event)] is event]
        dropped = len(self._events) - len(retained)
        self._events = deque(retained)
        self._chars = sum(map(_chars, retained))
        self._unfinished -= dropped
        self.dropped += dropped
        # Events that cannot be replaced are not scanned again at every put.
        self._limit_events = max(self._max_events, 2 * len(retained))
        self._limit_chars = max(self._max_chars, 2 * self._chars)


def _slot(event: QueuedEvent) -> Hashable:
    """The key of an event: the last event of a slot replaces those before it."""
    if isinstance(event, Progressed):
        # The run id is near the beginning of the text. Searched only when the queue is full.
        run = _RUN.search(event.text)
        return Progressed, run and run.group(1)
    if isinstance(event, Idled | ActiveQuery):
        return type(event), event.run_id
    return id(event)


def _chars(event: QueuedEvent) -> int:
    event = event.event if isinstance(event, PolledEvent) else event
    return len(event.text) if isinstance(event, Progressed) else 0
