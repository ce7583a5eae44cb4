"""Sees to it that a listener which Spark's client forgets is registered again."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from sparklag_listener.errors import ListenerError
from sparklag_listener.publishing.counters import Stats

_log = logging.getLogger("sparklag")
_LONGEST_PAUSE_S = 30.0


class Listener(Protocol):
    """One that may be dropped without a word."""

    def is_registered(self) -> bool:
        """Whether events still come. Asks nobody."""

    def register(self) -> None:
        """Register again. Blocks as long as Spark takes. Raises ListenerError."""


class ListenerWatch:
    """Looks every `interval_s`; as long as it has to act less often, down to twice a minute.

    Spark Connect's client drops all listeners when the stream of its events breaks off for longer
    than it retries, and says so in a Python warning only.
    """

    def __init__(self, listener: Listener, stats: Stats, interval_s: float) -> None:
        self._listener = listener
        self._stats = stats
        self._interval_s = interval_s
        self._failed = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        pause_s = self._interval_s
        while True:
            await asyncio.sleep(pause_s)
            if self._listener.is_registered():
                pause_s = self._interval_s
            else:
                # After a success too: it may be dropped again at once.
                pause_s = max(self._interval_s, min(2 * pause_s, _LONGEST_PAUSE_S))
                await self._register()

    async def _register(self) -> None:
        try:
            # One at a time, however long Spark takes.
            await asyncio.get_running_loop().run_in_executor(None, self._listener.register)
        except ListenerError as error:
            self._fail(str(error))
            return
        self._failed = 0
        self._stats.reregistered += 1
        _log.warning("sparklag: Spark's client had dropped its listeners, ours is registered again")

    def _fail(self, why: str) -> None:
        """The second in a row is counted and told, until it works again.

        The first may be of a session that is being stopped: its channel closes before it says so.
        """
        self._failed += 1
        if self._failed == 2:
            told = f"Spark's client dropped its listeners and does not take ours again: {why}"
            self._stats.fail(told)
            _log.warning("sparklag: %s; asking Spark instead, trying on", told)
