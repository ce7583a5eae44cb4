"""Asks Spark which queries run: says so at each heartbeat, and finds what its events left out.

The listener bus drops events when a listener is slow, the end of a query among them, and says
nothing of a batch that takes an hour. Where there is no listener, asking is all there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sparklag_listener.events.observer import Observer
from sparklag_listener.events.queries import ActiveQuery, ConnectionLost, Look, Queries, Unanswered
from sparklag_listener.events.query_events import (
    Found,
    Progressed,
    Refreshed,
    Started,
    Terminated,
    Told,
)
from sparklag_listener.publishing.counters import Stats

_log = logging.getLogger("sparklag")
_ANSWER_TIMEOUT_S = 5.0
_LONGEST_GRACE_S = 2.0
_MOST_LOST_CONNECTIONS = 2

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Missing:
    """What Spark says and no event has said yet."""

    query_id: str
    run_id: str
    seen: ActiveQuery | None
    """None: it is not active any more."""
    unknown: bool
    """Not even its start is known."""
    known_batch: int | None


class Census:
    """Lives on the loop, asks in a thread: one question at a time, however long Spark takes.

    Nothing is said of a query as long as Spark does not answer: it may not run any more.
    Polling, what it finds is ordinary. It sees the newest batch of each query only: one that took
    less than the interval may never be seen, and the next says all that it said.
    """

    def __init__(
        self,
        queries: Queries,
        observer: Observer,
        put: Callable[[Told], None],
        stats: Stats,
        heartbeat_s: float,
        poll_interval_s: float | None = None,
    ) -> None:
        """`poll_interval_s`: there is no listener, this asks as often."""
        self._queries = queries
        self._observer = observer
        self._put = put
        self._stats = stats
        self._heartbeat_s = heartbeat_s
        self._polls = poll_interval_s is not None
        self._interval_s = heartbeat_s if poll_interval_s is None else poll_interval_s
        self._grace_s = min(_LONGEST_GRACE_S, heartbeat_s / 2)
        self._heard_at: dict[str, float] = {}
        self._told: dict[str, int | None] = {}
        """Run, and its batch that was last found and told."""
        self._asking: asyncio.Future[Any] | None = None
        self._lost_connections = 0
        self._failing = False

    def heard(self, query_id: str) -> None:
        """The query has just been observed."""
        self._heard_at[query_id] = time.monotonic()

    async def run(self) -> None:
        """Ask until the session is over or the JVM is gone; then there is nothing more to say."""
        next_at = time.monotonic() + (0.0 if self._polls else self._interval_s)
        try:
            while True:
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))
                next_at = time.monotonic() + self._interval_s
                if not await self._take():
                    return
        finally:
            self._let_go()

    async def run_once(self) -> None:
        """Ask a last time, after `run` was ended."""
        try:
            await self._take()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._asking is not None:
            # Its answer, which may never come, must not look for this loop.
            self._asking.cancel()

    async def _take(self) -> bool:
        """Whether there will be another one."""
        known = self._observer.runs()
        # What was observed just now needs no repetition. So no query is silent for more than a
        # heartbeat and half an interval.
        before_s = time.monotonic() - max(0.0, self._heartbeat_s - self._interval_s / 2)
        due = {run for run, query in known.items() if self._is_due(query, before_s)}
        look = await self._ask(partial(self._queries.look, known.keys(), due))
        if look is None:
            return self._lost_connections < _MOST_LOST_CONNECTIONS
        self._refresh(look, before_s)
        missing = self._missing(look, known)
        if missing:
            await self._events_on_their_way()
            missing = [each for each in missing if self._is_missing(each)]
        if not missing:
            return not look.session_over
        found = await self._ask(partial(self._find, missing))
        if found is None:
            return self._lost_connections < _MOST_LOST_CONNECTIONS
        # Again: what is found may be a batch that was completed just now.
        await self._events_on_their_way()
        self._told.update((each.run_id, each.seen.batch_id) for each in missing if each.seen)
        for event in found:
            self._put(Found(event, lost=not (self._polls or look.session_over)))
        return not look.session_over

    async def _events_on_their_way(self) -> None:
        """Give them some time: until the bus is empty, if it says so. What comes then is late."""
        if self._polls:
            return
        if await self._ask(partial(self._queries.await_events, self._grace_s)) is None:
            await asyncio.sleep(self._grace_s)

    def _is_due(self, query_id: str, before_s: float) -> bool:
        return self._heard_at.get(query_id, before_s) <= before_s

    def _refresh(self, look: Look, before_s: float) -> None:
        for query in look.active:
            known = self._observer.knows(query.query_id, query.run_id)
            if known and self._is_due(query.query_id, before_s):
                self._put(Refreshed(query.query_id, query.run_id, query.at_ms, query.activity))
        active = {query.query_id for query in look.active}
        for query_id in self._heard_at.keys() - active:
            del self._heard_at[query_id]

    def _missing(self, look: Look, known: dict[str, str]) -> list[_Missing]:
        runs = self._observer.runs()
        self._told = {run_id: batch for run_id, batch in self._told.items() if run_id in runs}
        active = {query.run_id for query in look.active}
        seen = [self._compare(one.query_id, one.run_id, one) for one in look.active]
        gone = [
            self._compare(query_id, run_id, None)
            for run_id, query_id in known.items()
            if run_id not in active
        ]
        return [each for each in seen + gone if self._is_missing(each)]

    def _compare(self, query_id: str, run_id: str, seen: ActiveQuery | None) -> _Missing:
        observer = self._observer
        return _Missing(
            query_id,
            run_id,
            seen,
            unknown=not observer.knows(query_id, run_id),
            known_batch=observer.batch_of(query_id, run_id),
        )

    def _is_missing(self, one: _Missing) -> bool:
        if one.seen is None:
            return one.run_id in self._observer.runs()
        if not self._observer.knows(one.query_id, one.run_id):
            return True
        batch_id = one.seen.batch_id
        # What was told and does not count (a text that cannot be read) is not told again.
        if batch_id is None or self._told.get(one.run_id) == batch_id:
            return False
        if one.run_id not in self._observer.runs():
            return False
        known = self._observer.batch_of(one.query_id, one.run_id)
        return known is None or known < batch_id

    def _find(self, missing: list[_Missing]) -> list[Started | Progressed | Terminated]:
        """What their events would have said. In a thread: it asks Spark."""
        found: list[Started | Progressed | Terminated] = []
        for one in missing:
            if one.seen is not None and one.unknown:
                if not self._queries.is_active(one.run_id):
                    # A later run may have begun since; this one's is no start any more.
                    continue
                found.append(one.seen.started())
            progress = self._queries.last_progress(one.run_id, one.known_batch)
            if progress is not None:
                found.append(progress)
            if one.seen is None:
                found.append(self._queries.end(one.query_id, one.run_id))
        return found

    async def _ask(self, question: Callable[[], Answer]) -> Answer | None:
        """None where there is no answer, or not in time."""
        if self._asking is not None and not self._asking.done():
            # The one before still waits for its answer.
            return None
        asking = asyncio.get_running_loop().run_in_executor(None, question)
        asking.add_done_callback(_retrieve)
        self._asking = asking
        await asyncio.wait({asking}, timeout=_ANSWER_TIMEOUT_S)
        if not asking.done():
            self._fail(f"no answer within {_ANSWER_TIMEOUT_S:g} s")
            return None
        try:
            answer = asking.result()
        except ConnectionLost as error:
            # Spark is gone, and its queries with it.
            self._lost_connections += 1
            _log.debug("sparklag: Spark cannot be asked: %s", error)
            return None
        except Unanswered as error:
            self._fail(str(error))
            return None
        self._lost_connections = 0
        self._failing = False
        return answer

    def _fail(self, why: str) -> None:
        """Counted and told once, until Spark answers again."""
        if not self._failing:
            self._failing = True
            told = f"Spark does not say which queries run: {why}"
            self._stats.fail(told)
            _log.warning("sparklag: %s", told)


def _retrieve(asked: asyncio.Future[Answer]) -> None:
    # asyncio complains of an exception nobody looked at.
    if not asked.cancelled():
        asked.exception()
