"""Registers a listener again that Spark's client has dropped."""

from __future__ import annotations

import asyncio
import logging

from sparklag_listener.errors import ListenerError
from sparklag_listener.events.session import Listener
from sparklag_listener.stats import Stats

_log = logging.getLogger("sparklag")
_MAX_PAUSE_S = 30.0


class ListenerSupervisor:
    """Checks every `interval_s`, and with backoff to twice a minute while it must register.

    Spark Connect's client drops all listeners when the stream of its events is interrupted for
    longer than it retries, with a Python warning only.
    """

    def __init__(self, listener: Listener, stats: Stats, interval_s: float) -> None:
        self._listener = listener
        self._stats = stats
        self._interval_s = interval_s
        self._failures = 0

    async def run(self) -> None:
        """Supervise until cancelled."""
        pause_s = self._interval_s
        while True:
            await asyncio.sleep(pause_s)
            if self._listener.is_registered():
                pause_s = self._interval_s
            else:
                # After a success too: it may be dropped again at once.
                pause_s = max(self._interval_s, min(2 * pause_s, _MAX_PAUSE_S))
                await self._register()

    async def _register(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._listener.register)
        except ListenerError as error:
            self._fail(str(error))
            return
        self._failures = 0
        self._stats.reregistered += 1
        _log.warning("sparklag: Spark's client had dropped its listeners, ours is registered again")

    def _fail(self, reason: str) -> None:
        """Count and log the second failure in a row.

        The first may be of a session that is stopping: its channel closes before it is stopped.
        """
        self._failures += 1
        if self._failures == 2:
            text = f"Spark's client dropped its listeners and does not take ours again: {reason}"
            self._stats.fail(text)
            _log.warning("sparklag: %s; polling Spark instead, retrying", text)
