"""What goes wrong costs the task or the query that it goes wrong in, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from sparklag_schemas.errors import SparklagError
from sparklag_schemas.messages.query_message import QueryMessage
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.runtime.tasks import run_in_task
from sparklag_schemas.text.printable import printable

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_STEADY_S: Final = 60.0
"""A task that has run for so long is well again."""
STAGES: Final = ("tracking", "enrichment", "evaluation", "publishing")
_QUERIES: Final = 10_000
_TRACES: Final = 1_000


class Supervisor:
    """Starts long-lived tasks again when they fail."""

    def __init__(self) -> None:
        self.restarts: Counter[str] = Counter()
        """By task."""
        self._failures: dict[str, tuple[float, str]] = {}

    @property
    def failing(self) -> dict[str, str]:
        """Tasks that failed a short time ago, and with what."""
        since_s = time.monotonic() - _STEADY_S
        return {task: why for task, (at_s, why) in self._failures.items() if at_s > since_s}

    async def keep(self, task: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled. After a failure it is run again, the pause before growing as long
        as it goes on to fail."""
        pause_s = _FIRST_PAUSE_S
        self.restarts[task] += 0
        while True:
            began_s = time.monotonic()
            try:
                await run_in_task(run())
            except Exception as error:  # whatever it is, the others go on
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


class QueryFailures:
    """Of which queries something failed, and at which stage."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(STAGES, 0))
        """By stage."""
        self._standing: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._traced: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def add(self, query: QueryMessage, stage: str, error: Exception) -> None:
        """It stands until that stage has `recovered`. One trace of each kind is logged."""
        query_id = query.query_id
        self.counts[stage] += 1
        why = printable(f"{type(error).__name__}: {error}", 200)
        self._standing.setdefault(query_id, {})[stage] = why
        self._standing.move_to_end(query_id)
        if len(self._standing) > _QUERIES:
            self._standing.popitem(last=False)
        kind = (query_id, stage, type(error).__name__)
        if kind not in self._traced:
            self._traced[kind] = None
            if len(self._traced) > _TRACES:
                self._traced.popitem(last=False)
            # Ours are made for people, and know nothing more than they say.
            trace = None if isinstance(error, SparklagError) else error
            name = printable(query_id, 200)
            _log.error(
                "%s of query %s failed: %s",
                *(stage, name, why),
                exc_info=trace,
                extra=log_fields(query, why),
            )

    def failed_at(self, query_id: str, stage: str) -> bool:
        """Whether that stage failed when it ran last."""
        return stage in self._standing.get(query_id, ())

    def recovered(self, query_id: str, stage: str) -> None:
        """That stage succeeded."""
        standing = self._standing.get(query_id)
        if standing is not None and standing.pop(stage, None) is not None and not standing:
            del self._standing[query_id]

    def forget(self, query_id: str) -> None:
        """It is measured no more."""
        self._standing.pop(query_id, None)

    def reason(self, query_id: str) -> str | None:
        """What is wrong, in a sentence. None: nothing."""
        standing = self._standing.get(query_id)
        if not standing:
            return None
        stage, why = next(iter(standing.items()))
        return f"sparklag failed at its {stage} ({why}): see the service's log"
