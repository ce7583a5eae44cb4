"""Polls Spark for the active queries: for heartbeats, to recover lost events, and to register a
dropped listener again.

The listener bus drops events when a listener is slow, even the end of a query, and sends no event
during a long batch. Without a listener, polling is the only source.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from sparklag_listener.errors import ListenerError
from sparklag_listener.events.event_queue import (
    ActiveQuery,
    PolledEvent,
    Progressed,
    QueuedEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.observer import Observer
from sparklag_listener.events.session import (
    KEPT_PROGRESSES,
    ActiveQueries,
    ConnectionLost,
    ObservedSession,
    SparkUnavailable,
)
from sparklag_listener.stats import Stats

_log = logging.getLogger("sparklag")
_CALL_TIMEOUT_S = 5.0
_MAX_GRACE_S = 2.0
_MAX_LOST_CONNECTIONS = 2
_MAX_STOPPING_S = 10.0

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Run:
    """A run whose observed events are behind Spark's own state."""

    query_id: str
    run_id: str
    active: ActiveQuery | None
    """None: it has ended."""
    is_new: bool
    """True: its start is not observed either."""
    observed_batch: int | None


@dataclass(eq=False, repr=False)
class QueryPoller:
    """Runs on the loop, and calls Spark in a thread: one call at a time, however long it takes.

    While Spark does not respond there are no heartbeats: the queries may have ended. Without a
    listener, polled events are ordinary events. A poll reads only the newest batch of each query: a
    batch shorter than the interval may be missed; the next batch contains its offsets.
    """

    _session: ObservedSession
    _observer: Observer
    _put: Callable[[QueuedEvent], None]
    _stats: Stats
    _heartbeat_s: float
    poll_interval_s: InitVar[float | None] = None
    """There is no listener, so poll this often."""
    _observed_at_s: dict[str, float] = field(default_factory=dict)
    _polled_batches: dict[str, int | None] = field(default_factory=dict)
    """The batch of the last polled event of each run."""
    _pending: asyncio.Future[Any] | None = None
    first_poll: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once Spark was polled for the queries that already run."""
    _has_polled: bool = False
    """True: Spark has responded once. Events before that do not count as lost."""
    lost_connections: int = 0
    """Consecutive polls without a connection: the JVM or the session may be gone."""
    _stopping_until_s: float | None = None
    """Until this time the driver may be what stops Spark. None: Spark is not stopping."""
    _is_failing: bool = False
    _refusals: int = 0
    """Refused registrations since the listener was last registered."""
    _kept_progresses: int | None = None

    def __post_init__(self, poll_interval_s: float | None) -> None:
        self._queries = self._session.queries
        self._has_listener = poll_interval_s is None
        self._interval_s = self._heartbeat_s if poll_interval_s is None else poll_interval_s
        self._grace_s = min(_MAX_GRACE_S, self._heartbeat_s / 2)

    @property
    def is_lost(self) -> bool:
        """True where the JVM, or the session on the server, must be gone."""
        return self.lost_connections >= _MAX_LOST_CONNECTIONS

    def mark_observed(self, query_id: str) -> None:
        """Start the time until the next heartbeat of the query."""
        self._observed_at_s[query_id] = time.monotonic()

    async def run(self) -> None:
        """Poll at once, and then until the session is stopped or the JVM is gone."""
        try:
            while True:
                next_at_s = time.monotonic() + self._interval_s
                goes_on = await self._poll()
                self.first_poll.set()
                if not goes_on:
                    return
                await asyncio.sleep(max(0.0, next_at_s - time.monotonic()))
        finally:
            self._cancel_pending()

    async def run_once(self, *, may_be_stopping: bool) -> None:
        """Poll a last time, after `run` was cancelled. `may_be_stopping`: Spark may be stopping
        too, since the process ends."""
        self._stopping_until_s = None if may_be_stopping else 0.0
        try:
            await self._poll()
        finally:
            self._cancel_pending()

    def _cancel_pending(self) -> None:
        if self._pending is not None:
            # The result of a pending call, which may never come, must not be sent to this loop.
            self._pending.cancel()

    async def _poll(self) -> bool:
        """Poll once. Returns whether to poll again."""
        tracked = self._observer.runs()
        # The time between observations of a query is at most a heartbeat and half an interval.
        before_s = time.monotonic() - max(0.0, self._heartbeat_s - self._interval_s / 2)
        due = {run for run, query_id in tracked.items() if self._is_due(query_id, before_s)}
        snapshot = await self._call(partial(self._queries.list_active, tracked.keys(), due))
        if snapshot is None:
            return not self.is_lost
        if snapshot.is_stopping:
            if self._stopping_until_s is None:
                self._stopping_until_s = time.monotonic() + _MAX_STOPPING_S
            if time.monotonic() < self._stopping_until_s:
                return True
        self._refresh(snapshot, before_s)
        are_unread = any(query.batch_id is None for query in snapshot.queries)
        if not self._has_listener and (are_unread or not self._has_polled):
            await self._require_progress()
        if self._has_listener and not snapshot.is_session_stopped:
            await self._keep_registered()
        behind = self._runs_behind(snapshot, tracked)
        if behind:
            await self._await_events()
            behind = [run for run in behind if self._is_behind(run)]
        if behind:
            events = await self._call(partial(self._read_events, behind))
            if events is None:
                return not self.is_lost
            # Wait again: the event of a batch that has just completed may not have arrived yet.
            await self._await_events()
            self._polled_batches.update(
                (run.run_id, run.active.batch_id) for run in behind if run.active
            )
            is_stopped = snapshot.is_session_stopped
            lost = self._has_listener and self._has_polled and not is_stopped
            # The listener has received earlier failures: these are caused by the stop.
            is_by_stop = self._has_listener and is_stopped and not snapshot.is_stopping
            for event in events:
                if isinstance(event, Terminated) and is_by_stop:
                    event = replace(event, exception=None)
                self._put(PolledEvent(event, lost=lost))
        self._has_polled = True
        return not snapshot.is_session_stopped

    async def _require_progress(self) -> None:
        """Warn where Spark keeps no progress: no poll sees a batch then."""
        kept = await self._call(self._queries.kept_progresses)
        if kept is not None and kept < 2 and kept != self._kept_progresses:
            text = f"{KEPT_PROGRESSES} is {kept}, so polling sees no batch: it takes 2 or more"
            self._stats.fail(text)
            _log.warning("sparklag: %s", text)
        self._kept_progresses = kept

    async def _await_events(self) -> None:
        """Wait until the listener bus is empty, or for the grace period."""
        if not self._has_listener or not self._has_polled:
            return
        if await self._call(partial(self._queries.await_events, self._grace_s)) is None:
            await asyncio.sleep(self._grace_s)

    async def _keep_registered(self) -> None:
        """Register the listener again if Spark's client has dropped it, because the event stream
        was interrupted for longer than the client retries."""
        listener = self._session.listener
        if listener is None or listener.is_registered():
            return
        try:
            await self._call(listener.register)
        except ListenerError as error:
            self._refusals += 1
            # A stopping session may cause the first refusal: its channel closes first.
            if self._refusals == 2:
                text = f"Spark's client dropped its listeners and does not take ours again: {error}"
                self._stats.fail(text)
                _log.warning("sparklag: %s; polling Spark instead, retrying", text)
            return
        if listener.is_registered():
            self._refusals = 0
            self._stats.reregistered += 1
            _log.warning(
                "sparklag: Spark's client had dropped its listeners, ours is registered again"
            )

    def _is_due(self, query_id: str, before_s: float) -> bool:
        return self._observed_at_s.get(query_id, before_s) <= before_s

    def _refresh(self, snapshot: ActiveQueries, before_s: float) -> None:
        for query in snapshot.queries:
            is_tracked = self._observer.has_run(query.query_id, query.run_id)
            if is_tracked and self._is_due(query.query_id, before_s):
                self._put(query)
        active = {query.query_id for query in snapshot.queries}
        for query_id in self._observed_at_s.keys() - active:
            del self._observed_at_s[query_id]

    def _runs_behind(self, snapshot: ActiveQueries, tracked: dict[str, str]) -> list[_Run]:
        runs = self._observer.runs()
        self._polled_batches = {
            run_id: batch for run_id, batch in self._polled_batches.items() if run_id in runs
        }
        active = {query.run_id: query for query in snapshot.queries}
        query_ids = {query.run_id: query.query_id for query in snapshot.queries} | tracked
        candidates = (
            _Run(
                *(query_id, run_id, active.get(run_id)),
                is_new=not self._observer.has_start(query_id, run_id),
                observed_batch=self._observer.batch_of(query_id, run_id),
            )
            for run_id, query_id in query_ids.items()
        )
        return [run for run in candidates if self._is_behind(run)]

    def _is_behind(self, run: _Run) -> bool:
        if run.active is None:
            return run.run_id in self._observer.runs()
        if not self._observer.has_start(run.query_id, run.run_id):
            return True
        batch_id = run.active.batch_id
        # A polled event that could not be parsed is not repeated.
        if batch_id is None or self._polled_batches.get(run.run_id) == batch_id:
            return False
        if run.run_id not in self._observer.runs():
            return False
        observed = self._observer.batch_of(run.query_id, run.run_id)
        return observed is None or observed < batch_id

    def _read_events(self, behind: list[_Run]) -> list[Started | Progressed | Terminated]:
        events: list[Started | Progressed | Terminated] = []
        for run in behind:
            if run.active is not None and run.is_new:
                if self._has_polled and not self._queries.is_active(run.run_id):
                    # A later run may have started in the meantime: its start must not come first.
                    continue
                events.append(Started(run.query_id, run.run_id, run.active.name, run.active.at_ms))
            progress = self._queries.last_progress(run.run_id, run.observed_batch)
            if progress is not None:
                events.append(progress)
            if run.active is None:
                events.append(self._queries.termination(run.query_id, run.run_id))
        return events

    async def _call(self, function: Callable[[], _Result]) -> _Result | None:
        """Run `function` in a thread. None: Spark did not respond in time."""
        if self._pending is not None and not self._pending.done():
            # The previous call is still waiting.
            return None
        pending = asyncio.get_running_loop().run_in_executor(None, function)
        pending.add_done_callback(_retrieve_exception)
        self._pending = pending
        await asyncio.wait({pending}, timeout=_CALL_TIMEOUT_S)
        if not pending.done():
            self._fail(f"no answer within {_CALL_TIMEOUT_S:g} s")
            return None
        try:
            result = pending.result()
        except ConnectionLost as error:
            # Not a failure: Spark has ended, and its queries with it.
            self.lost_connections += 1
            _log.debug("sparklag: no connection to Spark: %s", error)
            return None
        except SparkUnavailable as error:
            self._fail(str(error))
            return None
        self.lost_connections = 0
        self._is_failing = False
        return result

    def _fail(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            text = f"Spark does not list its active queries: {reason}"
            self._stats.fail(text)
            _log.warning("sparklag: %s", text)


def _retrieve_exception(pending: asyncio.Future[Any]) -> None:
    # Otherwise asyncio logs an exception that was never retrieved.
    if not pending.cancelled():
        pending.exception()
