"""The checkpoint intake: where queries are by their checkpoints, without a word from any driver."""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import uuid4

from sparklag_schemas import Cause, Observation, Settings, SourcePosition
from sparklag_schemas.daemon_threads import DaemonThreads
from sparklag_schemas.queue import NewestQueue
from sparklag_service.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    normal_location,
    shown_location,
)
from sparklag_service.errors import CheckpointError
from sparklag_service.intakes import Delivery, nothing_to_do
from sparklag_service.query_state import QueryState
from sparklag_service.tasks import end, run_together

_log = logging.getLogger(__name__)
_TICK_S = 0.025
"""What is due within one is looked at together."""
_LONGEST_SLEEP_S = 1.0
_LEAST_OF_INTERVAL = 0.8
"""Intervals differ, so that hundreds of checkpoints are not looked at in the same moment."""
_LONGEST_BACK_OFF = 12
"""Intervals between looks at what cannot be read."""
_LEARN_AGAIN = 10
"""Find intervals after which one of another instance is looked at: its query may be a new one."""
_PATIENCE_S = 1.0
_MEANINGLESS = {"checkpoint", "checkpoints", "_checkpoint", "_checkpoints", "ckpt", "chk"}

Answer = TypeVar("Answer")
Looked = CheckpointPosition | CheckpointError | None


@dataclass
class _Watched:
    location: str
    cluster: str
    configured: bool
    """It is in the settings; else a driver told of it."""
    reader: CheckpointReader | None = None
    query_id: str | None = None
    learnt_s: float = 0.0
    position: CheckpointPosition | None = None
    put_s: float | None = None
    """When its position was put on the queue last. None: not since this instance looks at it."""
    failures: int = 0


class CheckpointIntake:
    """Looks at each checkpoint of the queries that this instance owns, in threads: a store that
    hangs holds up nobody but its own checkpoints."""

    def __init__(
        self,
        settings: Settings,
        queue: NewestQueue[Delivery],
        owns: Callable[[str], bool],
        queries: Mapping[str, QueryState],
    ) -> None:
        """`queries`: those that are measured, whose drivers say where their checkpoints are."""
        self._settings = settings.checkpoints
        self._heartbeat_s = settings.heartbeat_s
        self._patterns = [(p, settings.cluster) for p in settings.checkpoints.locations]
        for alias, cluster in settings.clusters.items():
            self._patterns += [(pattern, alias) for pattern in cluster.checkpoints]
        self._allowed = [normal_location(prefix) for prefix in settings.checkpoints.follow]
        self._queue = queue
        self._owns = owns
        self._queries = queries
        self._store = CheckpointStore(self._settings.storage, self._settings.timeout_s)
        self._threads: dict[str, DaemonThreads] = {}
        self._watched: dict[str, _Watched] = {}
        self._found: dict[str, list[str]] = {}
        self._holders: dict[str, str] = {}
        """Query id, and the location that is watched for it."""
        self._due: list[tuple[float, str]] = []
        self._sooner = asyncio.Event()
        self._looks: set[asyncio.Task[None]] = set()
        self.failing: dict[str, str] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            await run_together(self._find(), self._look(), patience_s=_PATIENCE_S)
        finally:
            await end(*self._looks, patience_s=_PATIENCE_S)
            for threads in self._threads.values():
                threads.shutdown()

    async def _find(self) -> None:
        while True:
            await asyncio.gather(*(self._find_one(*given) for given in self._patterns))
            await asyncio.sleep(self._settings.find_interval_s)

    async def _find_one(self, pattern: str, cluster: str) -> None:
        finding = self._in_thread(pattern, partial(_found, self._store, pattern))
        await asyncio.wait({finding}, timeout=self._settings.timeout_s)
        if not finding.done():
            self._fail(pattern, self._unanswered(pattern))
        found = await finding
        if isinstance(found, CheckpointError):
            self._fail(pattern, str(found))
            return
        self._recover(pattern)
        for location in set(self._found.get(pattern, ())) - set(found):
            self._drop(location)
        self._found[pattern] = found
        for location in found:
            self._watch(location, cluster, configured=True)

    def _follow(self) -> None:
        """What drivers say of their checkpoints, where the settings allow it."""
        told = {
            normal_location(state.checkpoint_location): state.cluster
            for state in self._queries.values()
            if state.checkpoint_location is not None
        }
        for location, cluster in told.items():
            if any(_lies_in(location, prefix) for prefix in self._allowed):
                self._watch(location, cluster, configured=False)
        for location in [w.location for w in self._watched.values() if not w.configured]:
            if location not in told:
                self._drop(location)

    def _watch(self, location: str, cluster: str, *, configured: bool) -> None:
        known = self._watched.get(location)
        if known is None:
            self._watched[location] = _Watched(location, cluster, configured)
            # The first looks are spread over one interval too.
            self._schedule(location, random.uniform(0, min(1.0, self._settings.interval_s)))
        elif configured:
            known.configured = True

    def _drop(self, location: str) -> None:
        dropped = self._watched.pop(location, None)
        if dropped is not None:
            self._let_go(dropped)
            self._recover(location)

    def _schedule(self, location: str, after_s: float) -> None:
        due = (time.monotonic() + after_s, location)
        heapq.heappush(self._due, due)
        if self._due[0] is due:
            self._sooner.set()

    async def _look(self) -> None:
        followed_s = -_LONGEST_SLEEP_S
        while True:
            now_s = time.monotonic()
            if self._allowed and now_s - followed_s >= _LONGEST_SLEEP_S:
                followed_s = now_s
                self._follow()
            for place, watched in self._take_due(now_s).items():
                look = asyncio.create_task(self._look_at(place, watched))
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)
            await asyncio.sleep(_TICK_S)
            await self._until_due()

    async def _until_due(self) -> None:
        left_s = self._due[0][0] - time.monotonic() if self._due else _LONGEST_SLEEP_S
        self._sooner.clear()
        waking = asyncio.get_running_loop().call_later(
            min(left_s, _LONGEST_SLEEP_S), self._sooner.set
        )
        try:
            await self._sooner.wait()
        finally:
            waking.cancel()

    def _take_due(self, now_s: float) -> dict[str, list[_Watched]]:
        """Those to look at now: local ones together, each other one by itself."""
        due: dict[str, list[_Watched]] = {}
        while self._due and self._due[0][0] <= now_s:
            _, location = heapq.heappop(self._due)
            watched = self._watched.get(location)
            if watched is None:
                continue
            if watched.query_id is not None and not self._owns(watched.query_id):
                self._let_go(watched)
                if now_s - watched.learnt_s < _LEARN_AGAIN * self._settings.find_interval_s:
                    self._schedule(location, _LONGEST_SLEEP_S)
                    continue
            if watched.reader is None:
                watched.reader = self._store.reader(location)
            due.setdefault(location if "://" in location else "", []).append(watched)
        return due

    async def _look_at(self, place: str, watched: list[_Watched]) -> None:
        looks = _Looks([each.reader for each in watched if each.reader is not None])
        looking = self._in_thread(place, looks.run)
        await asyncio.wait({looking}, timeout=self._settings.timeout_s)
        if not looking.done():
            looks.give_up()
        answers = list(looks.answers)
        for each, answer in zip(watched, answers, strict=False):
            self._take(each, answer)
        for each in watched[len(answers) + 1 :]:
            self._schedule(each.location, 0.0)
        if len(answers) < len(watched):
            hangs = watched[len(answers)]
            self._fail(hangs.location, self._unanswered(hangs.location))
            # It is not asked the same again before.
            await asyncio.wait({looking})
            for answer in looks.answers[len(answers) : len(answers) + 1]:
                self._take(hangs, answer)

    def _pause_s(self, watched: _Watched) -> float:
        interval_s = self._settings.interval_s * random.uniform(_LEAST_OF_INTERVAL, 1.0)
        return float(interval_s * min(2.0**watched.failures, _LONGEST_BACK_OFF))

    def _in_thread(self, place: str, question: Callable[[], Answer]) -> asyncio.Future[Answer]:
        asked = asyncio.get_running_loop().run_in_executor(self._threads_of(place), question)
        # Whoever waits for it may be gone by then.
        asked.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        return asked

    def _unanswered(self, place: str) -> str:
        return f"{shown_location(place)}: no answer within {self._settings.timeout_s:g} s"

    def _threads_of(self, place: str) -> DaemonThreads:
        """Each bucket or host has its own."""
        scheme, _, rest = place.rpartition("://")
        store = f"{scheme}://{rest.partition('/')[0]}"
        if store not in self._threads:
            self._threads[store] = DaemonThreads()
        return self._threads[store]

    def _take(self, watched: _Watched, answer: Looked) -> None:
        """What a look found. Unless it is watched no more, it is looked at again."""
        if self._watched.get(watched.location) is watched:
            self._take_one(watched, answer)
            self._schedule(watched.location, self._pause_s(watched))

    def _take_one(self, watched: _Watched, answer: Looked) -> None:
        if isinstance(answer, CheckpointError):
            watched.failures += 1
            self._fail(watched.location, str(answer))
            return
        if answer is not None:
            self._learn(watched, answer)
        query_id = watched.query_id
        if query_id is None or watched.position is None:
            return
        holder = self._holders.setdefault(query_id, watched.location)
        if holder != watched.location:
            watched.failures += 1
            self._fail(
                watched.location,
                f"{shown_location(watched.location)}: holds query {query_id}, as"
                f" {shown_location(holder)} does, and only that is watched",
            )
            return
        watched.failures = 0
        self._recover(watched.location)
        if not self._owns(query_id):
            self._let_go(watched)
        elif answer is not None or watched.put_s is None:
            self._put(watched, watched.position, "checkpoint")
        elif time.monotonic() - watched.put_s >= self._heartbeat_s and self._repeats(watched):
            self._put(watched, watched.position, "refresh")

    def _learn(self, watched: _Watched, position: CheckpointPosition) -> None:
        if watched.query_id not in (None, position.query_id):
            _log.info(
                "%s: holds query %s now, it held %s",
                shown_location(watched.location),
                position.query_id,
                watched.query_id,
            )
            self._give_back(watched)
        watched.query_id = position.query_id
        watched.learnt_s = time.monotonic()
        watched.position = position

    def _repeats(self, watched: _Watched) -> bool:
        """A query whose driver is gone is forgotten some day, unless it is to be watched."""
        state = self._queries.get(watched.query_id or "")
        return watched.configured or (state is not None and state.run_id is None)

    def _put(self, watched: _Watched, position: CheckpointPosition, cause: Cause) -> None:
        watched.put_s = time.monotonic()
        observation = observation_of(position, watched.location, watched.cluster, cause)
        if observation.sources:
            self._queue.put_nowait(Delivery(observation, nothing_to_do))

    def _let_go(self, watched: _Watched) -> None:
        """Another instance looks at it, or nobody."""
        watched.reader = watched.position = watched.put_s = None
        self._give_back(watched)

    def _give_back(self, watched: _Watched) -> None:
        if watched.query_id is not None and self._holders.get(watched.query_id) == watched.location:
            del self._holders[watched.query_id]

    def _fail(self, place: str, why: str) -> None:
        """Logged once, until it can be read again."""
        place = shown_location(place)
        if self.failing.get(place) != why:
            _log.warning("cannot watch %s", why)
        self.failing[place] = why

    def _recover(self, place: str) -> None:
        place = shown_location(place)
        if self.failing.pop(place, None) is not None:
            _log.info("watching %s again", place)


def observation_of(
    position: CheckpointPosition, location: str, cluster: str, cause: Cause
) -> Observation:
    """What the checkpoint at `location` says now. Its query goes by the folder's name."""
    return Observation(
        observation_id=str(uuid4()),
        cluster=cluster,
        query_id=position.query_id,
        run_id=None,
        query=_name_of(location),
        origin="checkpoint",
        cause=cause,
        observed_at=time.time_ns() // 1_000_000,
        batch_id=position.batch_id,
        planned_batch_id=position.planned_batch_id,
        processed_at=position.committed_at_ms,
        checkpoint_location=shown_location(location),
        sources=[
            SourcePosition(source=source.source, processed=source.processed, planned=source.planned)
            for source in position.sources
            if source.kafka
        ],
    )


def _name_of(location: str) -> str | None:
    parts = [part for part in location.rpartition("://")[2].split("/") if part]
    return next((part for part in reversed(parts) if part.lower() not in _MEANINGLESS), None)


def _lies_in(location: str, prefix: str) -> bool:
    inside = location == prefix or location.startswith(prefix.rstrip("/") + "/")
    return inside and ".." not in location.split("/")


def _found(store: CheckpointStore, pattern: str) -> list[str] | CheckpointError:
    try:
        return [normal_location(location) for location in store.find(pattern)]
    except CheckpointError as error:
        return error
    except Exception as error:
        return _unforeseen(pattern, error)


class _Looks:
    """Looks at several, one after the other, in a thread. The loop sees how far it is."""

    def __init__(self, readers: Sequence[CheckpointReader]) -> None:
        self.answers: list[Looked] = []
        self._readers = readers
        self._is_given_up = False

    def run(self) -> None:
        for reader in self._readers:
            if self._is_given_up:
                return
            self.answers.append(_looked(reader))

    def give_up(self) -> None:
        """Look at no other after the present one."""
        self._is_given_up = True


def _looked(reader: CheckpointReader) -> Looked:
    try:
        return reader.look()
    except CheckpointError as error:
        return error
    except Exception as error:
        return _unforeseen(reader.location, error)


def _unforeseen(location: str, error: Exception) -> CheckpointError:
    # One store's client must not end the service. Its text may hold a secret.
    _log.debug("unforeseen: %s", location, exc_info=error)
    return CheckpointError(f"{shown_location(location)}: {type(error).__name__}")
