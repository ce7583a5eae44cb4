"""Recovery from failures: tasks are restarted, and topics are read again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from sparklag_kafka.access import explain_error
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ResolvedSettings
from sparklag_schemas.errors import RegistryError
from sparklag_schemas.runtime.tasks import run_in_task
from sparklag_schemas.text.printable import printable
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_READ_AGAIN_S: Final = 2.0
_STEADY_S: Final = 60.0
"""A task that has run this long has recovered."""


class Supervisor:
    """Restarts long-lived tasks when they fail."""

    def __init__(self) -> None:
        self.restarts: Counter[str] = Counter()
        """Restarts by task."""
        self._failures: dict[str, tuple[float, str]] = {}

    @property
    def failing(self) -> dict[str, str]:
        """Tasks that failed within the last minute, with the error."""
        since_s = time.monotonic() - _STEADY_S
        return {task: why for task, (at_s, why) in self._failures.items() if at_s > since_s}

    async def keep(self, task: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task until cancelled. After each failure run it again; the pause doubles, up to a
        limit, until a run lasts."""
        pause_s = _FIRST_PAUSE_S
        self.restarts[task] += 0
        while True:
            began_s = time.monotonic()
            try:
                await run_in_task(run())
            except Exception as error:  # of any kind: the other tasks continue
                why = printable(f"{type(error).__name__}: {error}", 200)
                self._failures[task] = (time.monotonic(), why)
                self.restarts[task] += 1
                _log.exception("task %s failed, restarting it", task)
            else:
                return
            if time.monotonic() - began_s > _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def read_with_retry(
    read: Callable[[], Awaitable[None]],
    topic: str,
    settings: ResolvedSettings,
    counters: Counters,
    on_failure: Callable[[str], None],
) -> None:
    """Call `read` again whenever Kafka fails, until cancelled. `on_failure` takes the reason."""
    logged: str | None = None
    while True:
        began_s = time.monotonic()
        try:
            await read()
        except (*KAFKA_FAILURES, RegistryError, ReadingInterrupted) as error:
            counters.reads_failed += 1
            cause = await explain_error(error, settings.access)
            reason = f"cannot read topic {topic}: {cause}"
            on_failure(reason)
            if reason != logged or time.monotonic() - began_s > _STEADY_S:
                _log.warning("%s; trying again", reason)
            logged = reason
        await asyncio.sleep(_READ_AGAIN_S)
