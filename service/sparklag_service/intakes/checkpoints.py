"""The checkpoint intake: where queries are by their checkpoints, without a word from any driver."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from uuid import uuid4

from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    fixed_prefix,
    normal_location,
)
from sparklag_offsets.errors import CheckpointError
from sparklag_schemas import Cause, Observation, Settings, SourcePosition
from sparklag_schemas.bounds import MAX_EPOCH_MS
from sparklag_schemas.errors import OutOfBounds
from sparklag_schemas.message_limits import MessageLimits
from sparklag_schemas.redaction import redact_location
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import run_together
from sparklag_service.intakes import Delivery, nothing_to_do
from sparklag_service.intakes.checkpoint_looks import CheckpointLooks, Looked, answer_of
from sparklag_service.tracking.query_state import QueryState

_log = logging.getLogger(__name__)
_FOLLOW_S = 1.0
"""How often drivers are asked where their checkpoints are."""
_LEAST_OF_INTERVAL = 0.8
"""Intervals differ, so that hundreds of checkpoints are not looked at in the same moment."""
_LONGEST_BACK_OFF = 12
"""Intervals between looks at what cannot be read."""
_LEARN_AGAIN = 10
"""Find intervals after which one of another instance is looked at: its query may be a new one."""
_PATIENCE_S = 1.0
_MEANINGLESS = {"checkpoint", "checkpoints", "_checkpoint", "_checkpoints", "ckpt", "chk"}


class CheckpointIntake:
    """Looks at each checkpoint of the queries that this instance owns. Create it on its loop."""

    def __init__(
        self,
        settings: Settings,
        queue: NewestQueue[Delivery],
        owns: Callable[[str], bool],
        queries: Mapping[str, QueryState],
    ) -> None:
        """`queries`: those that are measured, whose drivers say where their checkpoints are."""
        self.name = "checkpoints"
        self.settings = settings.checkpoints
        self.heartbeat_s = settings.heartbeat_s
        self.store = CheckpointStore(self.settings.storage, self.settings.timeout_s)
        self.owns = owns
        self.queries = queries
        self.failing: dict[str, str] = {}
        self._limits = MessageLimits(settings.limits)
        self._patterns = settings.checkpoint_patterns
        self._allowed = [normal_location(prefix) for prefix in settings.checkpoints.follow]
        self._queue = queue
        self._looks = CheckpointLooks(self.settings.timeout_s)
        self._watched: dict[str, _Watched] = {}
        self._found: dict[str, list[str]] = {}
        self._unfound: set[str] = set()
        """Patterns that failed. A location is its own pattern: what fails there is not theirs."""
        self._holders: dict[str, str] = {}
        """Query id, and the location that is watched for it."""

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            await run_together(
                self._find_regularly(),
                self._follow_regularly(),
                self._looks.run(),
                patience_s=_PATIENCE_S,
            )
        finally:
            closing = asyncio.get_running_loop().run_in_executor(None, self.store.close)
            await asyncio.wait({closing}, timeout=_PATIENCE_S)

    def watches(self, watched: _Watched) -> bool:
        """Whether it is to be looked at any more."""
        return self._watched.get(watched.location) is watched

    def hold(self, query_id: str, location: str) -> str:
        """Watch a query there; where it is watched, if that is elsewhere."""
        return self._holders.setdefault(query_id, location)

    def give_back(self, query_id: str | None, location: str) -> None:
        """A query is not watched there any more."""
        if query_id is not None and self._holders.get(query_id) == location:
            del self._holders[query_id]

    def out_of_bounds(self, answer: Looked, location: str) -> str | None:
        """Why a position is not taken: its partitions pass what `limits` say."""
        if isinstance(answer, CheckpointPosition):
            try:
                # The store's clock may be ahead.
                observation = observation_of(answer, location, "", "checkpoint")
                self._limits.check(observation, MAX_EPOCH_MS)
            except OutOfBounds as error:
                return f"{redact_location(location)}: {error}"
        return None

    def put(self, observation: Observation) -> None:
        """On the queue, where it has anything to do with Kafka."""
        if observation.sources:
            self._queue.put_nowait(Delivery(observation, nothing_to_do))

    def fail(self, location: str, why: str) -> None:
        """Logged once, until it can be read again."""
        location = redact_location(location)
        if self.failing.get(location) != why:
            _log.warning("cannot watch %s", why)
        self.failing[location] = why

    def recover(self, location: str) -> None:
        """It can be read, or need not be any more."""
        location = redact_location(location)
        if self.failing.pop(location, None) is not None:
            _log.info("watching %s again", location)

    async def _find_regularly(self) -> None:
        while True:
            await asyncio.gather(*(self._find(*given) for given in self._patterns))
            await asyncio.sleep(self.settings.find_interval_s)

    async def _find(self, pattern: str, cluster: str) -> None:
        find = partial(answer_of, partial(self.store.find, pattern), pattern)
        finding = self._looks.ask(normal_location(pattern), find)
        await asyncio.wait({finding}, timeout=self.settings.timeout_s)
        if not finding.done():
            self._unfound.add(pattern)
            self.fail(pattern, str(self._looks.unanswered(pattern)))
        found = await finding
        if isinstance(found, CheckpointError):
            self._unfound.add(pattern)
            self.fail(pattern, str(found))
            return
        if pattern in self._unfound:
            self._unfound.discard(pattern)
            self.recover(pattern)
        for location in set(self._found.get(pattern, ())) - set(found):
            self._drop(location)
        self._found[pattern] = found
        for location in found:
            self._watch(location, cluster, fixed_prefix(pattern), configured=True)

    async def _follow_regularly(self) -> None:
        while True:
            if self._allowed:
                self._follow()
            await asyncio.sleep(_FOLLOW_S)

    def _follow(self) -> None:
        """What drivers say of their checkpoints, where the settings allow it."""
        told = {
            normal_location(state.checkpoint_location): state.cluster
            for state in self.queries.values()
            if state.checkpoint_location is not None
        }
        for location, cluster in told.items():
            prefix = next((one for one in self._allowed if _lies_in(location, one)), None)
            if prefix is not None:
                self._watch(location, cluster, prefix, configured=False)
        for location in [w.location for w in self._watched.values() if not w.configured]:
            if location not in told:
                self._drop(location)

    def _watch(self, location: str, cluster: str, below: str | None, *, configured: bool) -> None:
        known = self._watched.get(location)
        if known is None:
            watched = self._watched[location] = _Watched(self, location, cluster, below, configured)
            # The first looks are spread too.
            self._looks.schedule(watched, random.uniform(0, min(1.0, self.settings.interval_s)))
        elif configured:
            known.configured = True

    def _drop(self, location: str) -> None:
        dropped = self._watched.pop(location, None)
        if dropped is not None:
            dropped.let_go()
            self.recover(location)


class _Watched:
    """One checkpoint. See Place."""

    def __init__(
        self,
        intake: CheckpointIntake,
        location: str,
        cluster: str,
        below: str | None,
        configured: bool,
    ) -> None:
        self.location = location
        self.configured = configured
        """It is in the settings; else a driver told of it."""
        self._below = below
        """The folder of the settings that it has to lie in. None: it is named there itself."""
        self._intake = intake
        self._cluster = cluster
        self._reader: CheckpointReader | None = None
        self._query_id: str | None = None
        self._learnt_s = 0.0
        self._position: CheckpointPosition | None = None
        self._put_s: float | None = None
        """When its position was put on the queue. None: not since this instance looks at it."""
        self._failures = 0

    def due(self) -> CheckpointReader | None:
        intake = self._intake
        if self._query_id is not None and not intake.owns(self._query_id):
            self.let_go()
            again_s = _LEARN_AGAIN * intake.settings.find_interval_s
            if time.monotonic() - self._learnt_s < again_s:
                return None
        if self._reader is None:
            self._reader = intake.store.reader(self.location, self._below)
        return self._reader

    def looked(self, answer: Looked) -> float | None:
        if not self._intake.watches(self):
            return None
        out_of_bounds = self._intake.out_of_bounds(answer, self.location)
        if out_of_bounds is not None:
            # The reader tells it once: what was there before stands no more.
            self._position = None
            self._fail(out_of_bounds)
        elif isinstance(answer, CheckpointError):
            self._fail(str(answer))
        else:
            self._take(answer)
        interval_s = self._intake.settings.interval_s * random.uniform(_LEAST_OF_INTERVAL, 1.0)
        return float(interval_s * min(2.0**self._failures, _LONGEST_BACK_OFF))

    def let_go(self) -> None:
        """Another instance looks at it, or nobody."""
        self._reader = self._position = self._put_s = None
        self._intake.give_back(self._query_id, self.location)

    def _take(self, position: CheckpointPosition | None) -> None:
        """None: it is where it was."""
        if position is not None:
            self._learn(position)
        query_id = self._query_id
        if query_id is None or self._position is None:
            return
        holder = self._intake.hold(query_id, self.location)
        if holder != self.location:
            self._fail(
                f"{redact_location(self.location)}: holds query {query_id}, as"
                f" {redact_location(holder)} does, and only that is watched"
            )
            return
        self._failures = 0
        self._intake.recover(self.location)
        if not self._intake.owns(query_id):
            self.let_go()
        elif position is not None or self._put_s is None:
            self._put(self._position, "checkpoint")
        elif time.monotonic() - self._put_s >= self._intake.heartbeat_s and self._repeats(query_id):
            self._put(self._position, "refresh")

    def _learn(self, position: CheckpointPosition) -> None:
        if self._query_id not in (None, position.query_id):
            shown = redact_location(self.location)
            _log.info("%s: holds query %s, not %s", shown, position.query_id, self._query_id)
            self._intake.give_back(self._query_id, self.location)
        self._query_id = position.query_id
        self._learnt_s = time.monotonic()
        self._position = position

    def _repeats(self, query_id: str) -> bool:
        """A query whose driver is gone is forgotten some day, unless it is to be watched."""
        state = self._intake.queries.get(query_id)
        return self.configured or (state is not None and state.run_id is None)

    def _put(self, position: CheckpointPosition, cause: Cause) -> None:
        self._put_s = time.monotonic()
        self._intake.put(observation_of(position, self.location, self._cluster, cause))

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._intake.fail(self.location, why)


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
        observed_at=epoch_ms(),
        batch_id=position.batch_id,
        planned_batch_id=position.planned_batch_id,
        processed_at=position.committed_at_ms,
        checkpoint_location=redact_location(location),
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
