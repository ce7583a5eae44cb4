"""From Spark's threads to the loop: bounded, and never a reason to wait."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Hashable

from sparklag_listener.events.query_events import Found, Idled, Progressed, Refreshed, Told

_RUN = re.compile(r'"runId"\s*:\s*"([^"]+)"')
_MOST_CHARS = 32_000_000


class EventInbox:
    """Events in the order they were put, for one reader on the loop that makes the inbox.

    When there are more than `most_events`, or more than `most_chars` of progress texts, only the
    newest progress and the newest idle event of each run stay (a progress says all that those
    before it said). Starts and ends always stay: they are small, and few.
    """

    def __init__(self, most_events: int, most_chars: int = _MOST_CHARS) -> None:
        self._most_events = self._limit_events = most_events
        self._most_chars = self._limit_chars = most_chars
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._events: deque[Told] = deque()
        self._chars = 0
        self._unfinished = 0
        self._awake = False
        self._available = asyncio.Event()
        self._finished = asyncio.Event()
        self.dropped = 0
        """How many gave way to a newer one of their run."""

    def put(self, event: Told) -> None:
        """Put, on any thread, at once. RuntimeError once the loop is closed."""
        with self._lock:
            if not self._awake:
                self._loop.call_soon_threadsafe(self._available.set)
                self._awake = True
            self._events.append(event)
            self._chars += _chars(event)
            self._unfinished += 1
            if len(self._events) > self._limit_events or self._chars > self._limit_chars:
                self._make_room()

    async def get(self) -> Told:
        """The oldest event, once there is one."""
        while True:
            with self._lock:
                if self._events:
                    event = self._events.popleft()
                    self._chars -= _chars(event)
                    return event
                self._awake = False
                self._available.clear()
            await self._available.wait()

    def task_done(self) -> None:
        """Mark an event that was got as done."""
        with self._lock:
            self._unfinished -= 1
            if not self._unfinished:
                self._finished.set()

    async def join(self) -> None:
        """Wait until all that was put is done."""
        while self._unfinished:
            self._finished.clear()
            await self._finished.wait()

    def qsize(self) -> int:
        """Events that wait."""
        return len(self._events)

    def _make_room(self) -> None:
        newest = {_slot(event): number for number, event in enumerate(self._events)}
        kept = [
            event for number, event in enumerate(self._events) if newest[_slot(event)] == number
        ]
        dropped = len(self._events) - len(kept)
        self._events = deque(kept)
        self._chars = sum(map(_chars, kept))
        self._unfinished -= dropped
        self.dropped += dropped
        # What nothing makes superfluous is not gone through again for every event.
        self._limit_events = max(self._most_events, 2 * len(kept))
        self._limit_chars = max(self._most_chars, 2 * self._chars)


def _slot(event: Told) -> Hashable:
    """Of events in the same one, the last says all."""
    if isinstance(event, Progressed):
        # Near the text's beginning. Only read where there is no room.
        run = _RUN.search(event.text)
        return Progressed, run and run.group(1)
    if isinstance(event, Idled | Refreshed):
        return type(event), event.run_id
    return id(event)


def _chars(event: Told) -> int:
    said = event.event if isinstance(event, Found) else event
    return len(said.text) if isinstance(said, Progressed) else 0
