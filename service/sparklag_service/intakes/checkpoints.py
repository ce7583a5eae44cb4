"""The checkpoint intake: reads the positions of queries from their checkpoints, without drivers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection
from functools import partial
from operator import itemgetter
from uuid import uuid4

from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    fixed_prefix,
    normal_location,
)
from sparklag_offsets.errors import CheckpointError
from sparklag_schemas import Cause, Observation, Offsets
from sparklag_schemas.errors import OutOfBounds
from sparklag_schemas.messages.bounds import MAX_EPOCH_MS
from sparklag_schemas.messages.validation import MessageLimits
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.runtime.tasks import run_together
from sparklag_schemas.text.locations import redact_location
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.intakes import Delivery, SourceContext, nothing_to_do
from sparklag_service.intakes.checkpoint_polling import (
    CheckpointPoller,
    PollResult,
    WatchedCheckpoint,
    result_of,
)

_log = logging.getLogger(__name__)
_FOLLOW_INTERVAL_S = 1.0
"""How often the locations that drivers report are compared with the watched ones."""
_LEAST_OF_INTERVAL = 0.8
"""Smallest random factor of an interval: hundreds of checkpoints are not polled at once."""
_BACKOFF = (1, 2, 4, 8, 12)
"""Factors of the poll interval by the number of failures; the last one repeats."""
_IDENTIFY_AGAIN = 10
"""Find intervals between polls of another instance's checkpoint, which may hold a new query."""
_CANCEL_AGAIN_S = 1.0
_ADVANCING_S = 300.0
"""A checkpoint that completed a batch so recently belongs to a query that runs."""
_GENERIC_FOLDERS = {"checkpoint", "checkpoints", "_checkpoint", "_checkpoints", "ckpt", "chk"}


class CheckpointIntake:
    """Polls each checkpoint of the queries that this instance owns. Create it on its own loop."""

    def __init__(self, context: SourceContext) -> None:
        settings = context.settings
        self.name = "checkpoints"
        self.failing: dict[str, str] = {}
        self._context = context
        self._settings = settings.checkpoints
        self._store = CheckpointStore(self._settings.storage, self._settings.timeout_s)
        self._limits = MessageLimits(settings.limits)
        self._patterns = settings.checkpoint_patterns
        self._follow_below = [normal_location(prefix) for prefix in self._settings.follow]
        self._poller = CheckpointPoller(self._settings.timeout_s, self._next_reader, self._take)
        self._watched: dict[str, WatchedCheckpoint] = {}
        self._matches: dict[str, list[str]] = {}
        """Locations by pattern."""
        self._unread = {pattern for pattern, _ in self._patterns}
        """Patterns and locations without a first result: a query may have a later copy there."""
        self._failed_patterns: set[str] = set()
        """Patterns whose search failed. Failed polls of a location do not count here."""
        self._holders: dict[str, dict[str, WatchedCheckpoint]] = {}
        """The checkpoints of each query by location: the original, and its copies."""

    async def run(self) -> None:
        try:
            await run_together(self._find_regularly(), self._follow_regularly(), self._poller.run())
        finally:
            closing = asyncio.get_running_loop().run_in_executor(None, self._store.close)
            await asyncio.wait({closing}, timeout=_CANCEL_AGAIN_S)

    async def _find_regularly(self) -> None:
        while True:
            await asyncio.gather(
                *(self._find(pattern, cluster) for pattern, cluster in self._patterns)
            )
            await asyncio.sleep(self._settings.find_interval_s)

    async def _find(self, pattern: str, cluster: str) -> None:
        find = partial(result_of, partial(self._store.find, pattern), pattern)
        finding = self._poller.call(normal_location(pattern), find)
        await asyncio.wait({finding}, timeout=self._settings.timeout_s)
        if not finding.done():
            self._failed_patterns.add(pattern)
            self._fail(pattern, str(self._poller.timed_out(pattern)))
            self._read(pattern)
        locations = await finding
        if isinstance(locations, CheckpointError):
            self._failed_patterns.add(pattern)
            self._fail(pattern, str(locations))
            self._read(pattern)
            return
        if pattern in self._failed_patterns:
            self._failed_patterns.discard(pattern)
            self._recover(pattern)
        for location in set(self._matches.get(pattern, ())) - set(locations):
            self._drop(location)
        self._matches[pattern] = locations
        for location in locations:
            self._watch(location, cluster, fixed_prefix(pattern), configured=True)
        self._read(pattern)

    def _read(self, source: str) -> None:
        """A pattern or location had its first result, or was dropped."""
        if source in self._unread:
            self._unread.remove(source)
            for checkpoint in list(self._watched.values()) if not self._unread else ():
                if checkpoint.put_s is None:
                    self._update(checkpoint, None)

    async def _follow_regularly(self) -> None:
        while True:
            if self._follow_below:
                self._follow()
            await asyncio.sleep(_FOLLOW_INTERVAL_S)

    def _follow(self) -> None:
        """Watch the checkpoints that drivers report, if the settings allow their folders."""
        reported = {
            normal_location(state.checkpoint_location): state.cluster
            for state in self._context.queries.values()
            if state.checkpoint_location is not None
        }
        for location, cluster in reported.items():
            prefix = next((p for p in self._follow_below if _is_below(location, p)), None)
            if prefix is not None:
                self._watch(location, cluster, prefix, configured=False)
        for checkpoint in list(self._watched.values()):
            if not checkpoint.configured and checkpoint.location not in reported:
                self._drop(checkpoint.location)

    def _watch(self, location: str, cluster: str, below: str | None, *, configured: bool) -> None:
        checkpoint = self._watched.get(location)
        if checkpoint is None:
            checkpoint = WatchedCheckpoint(location, cluster, below, configured)
            self._watched[location] = checkpoint
            self._unread.add(location)
            # The first polls are spread over a second.
            after_s = random.uniform(0, min(1.0, self._settings.interval_s))
            self._poller.schedule(checkpoint, after_s)
        elif configured:
            checkpoint.configured = True

    def _drop(self, location: str) -> None:
        checkpoint = self._watched.pop(location, None)
        if checkpoint is not None:
            self._release(checkpoint)
            self._recover(location)
            self._read(location)

    def _next_reader(self, checkpoint: WatchedCheckpoint) -> CheckpointReader | None:
        query_id = checkpoint.query_id
        if query_id is not None and not self._context.watches(query_id):
            self._release(checkpoint)
            again_s = _IDENTIFY_AGAIN * self._settings.find_interval_s
            if time.monotonic() - checkpoint.identified_s < again_s:
                return None
        if checkpoint.reader is None:
            checkpoint.reader = self._store.reader(checkpoint.location, checkpoint.below)
        return checkpoint.reader

    def _take(self, checkpoint: WatchedCheckpoint, result: PollResult) -> float | None:
        if self._watched.get(checkpoint.location) is not checkpoint:
            return None
        if isinstance(result, CheckpointError):
            self._fail_poll(checkpoint, str(result))
        elif result is not None and (error := self._limit_error(result, checkpoint.location)):
            # The reader returns each position once: the previous one is outdated.
            checkpoint.position = None
            self._fail_poll(checkpoint, error)
        else:
            self._update(checkpoint, result)
        self._read(checkpoint.location)
        interval_s = self._settings.interval_s * random.uniform(_LEAST_OF_INTERVAL, 1.0)
        return float(interval_s * _BACKOFF[min(checkpoint.failures, len(_BACKOFF) - 1)])

    def _limit_error(self, position: CheckpointPosition, location: str) -> str | None:
        try:
            # The store's clock may be ahead.
            observation = observation_of(position, location, "", "checkpoint")
            self._limits.check(observation, MAX_EPOCH_MS)
        except OutOfBounds as error:
            return f"{redact_location(location)}: {error}"
        return None

    def _update(self, checkpoint: WatchedCheckpoint, changed: CheckpointPosition | None) -> None:
        location = checkpoint.location
        if changed is not None:
            self._identify(checkpoint, changed)
        query_id = checkpoint.query_id
        if query_id is None or checkpoint.position is None:
            return
        holders = self._holders.setdefault(query_id, {})
        holders[location] = checkpoint
        original = self._original(holders.values())
        if original is not checkpoint:
            checkpoint.put_s = None
            self._fail_poll(
                checkpoint,
                f"{redact_location(location)}: a copy of the checkpoint of query {query_id}, which"
                f" is watched at {redact_location(original.location)}",
            )
            if original.put_s is None:
                self._update(original, None)
            return
        checkpoint.failures = 0
        self._recover(location)
        heartbeat_s = self._context.settings.heartbeat_s
        if not self._context.watches(query_id):
            self._release(checkpoint)
        elif checkpoint.put_s is None and (self._unread or self._is_awaited(query_id)):
            return
        elif changed is not None or checkpoint.put_s is None:
            self._put(checkpoint, checkpoint.position, "checkpoint")
        elif self._repeats(checkpoint) and time.monotonic() - checkpoint.put_s >= heartbeat_s:
            self._put(checkpoint, checkpoint.position, "refresh")

    def _is_awaited(self, query_id: str) -> bool:
        """Returns whether some checkpoint of the query was not read since this instance watches the
        query, and may be a later copy."""
        return any(
            each.query_id == query_id and each.position is None and not each.failures
            for each in self._watched.values()
        )

    def _original(self, holders: Collection[WatchedCheckpoint]) -> WatchedCheckpoint:
        # Once for each: it changes with time.
        ranked = [(self._precedence(each), each) for each in holders]
        highest, best = max(ranked, key=itemgetter(0))
        # Copies of one commit: `cp` dates the files of a copy anew.
        alike = [
            (precedence, each)
            for precedence, each in ranked
            if precedence[:3] == highest[:3]
            and _processed(each.position) == _processed(best.position)
        ]
        return min(alike, key=itemgetter(0))[1]

    def _precedence(self, checkpoint: WatchedCheckpoint) -> tuple[bool, bool, int, int, str]:
        """Rises to the checkpoint that a query uses: the one that its driver names; else one that
        advances; else the one with the latest batch, and the latest commit."""
        state = self._context.queries.get(checkpoint.query_id or "")
        named, location, position = None, checkpoint.location, checkpoint.position
        if state is not None and state.run_id is not None and not state.ended:
            named = state.checkpoint_location
        is_named = named is not None and normal_location(named) == redact_location(location)
        advances = time.monotonic() - checkpoint.advanced_s < _ADVANCING_S
        if position is None or position.batch_id is None:
            return is_named, advances, -1, 0, location
        return is_named, advances, position.batch_id, position.committed_at_ms or 0, location

    def _identify(self, checkpoint: WatchedCheckpoint, position: CheckpointPosition) -> None:
        if checkpoint.query_id not in (None, position.query_id):
            shown = redact_location(checkpoint.location)
            _log.info(
                "%s: holds query %s, not %s",
                *(shown, position.query_id, checkpoint.query_id),
                extra=log_fields(position.query_id),
            )
            self._unclaim(checkpoint)
        elif (
            checkpoint.position
            and checkpoint.position.batch_id != position.batch_id
            and not self._is_mirrored(position)
        ):
            checkpoint.advanced_s = time.monotonic()
        checkpoint.query_id = position.query_id
        checkpoint.identified_s = time.monotonic()
        checkpoint.position = position

    def _is_mirrored(self, position: CheckpointPosition) -> bool:
        """Returns whether another checkpoint came so far before: a copy that is brought up to date
        now and then does not run."""
        reached, since_s = _processed(position), time.monotonic() - _ADVANCING_S
        return any(
            each.position is not None
            and (each.position.batch_id or 0) >= (position.batch_id or 0)
            and (each.advanced_s > since_s or _processed(each.position) == reached)
            for each in self._holders.get(position.query_id, {}).values()
        )

    def _repeats(self, checkpoint: WatchedCheckpoint) -> bool:
        # A followed query without a driver must expire; a configured one must not.
        state = self._context.queries.get(checkpoint.query_id or "")
        return checkpoint.configured or (state is not None and state.run_id is None)

    def _put(
        self, checkpoint: WatchedCheckpoint, position: CheckpointPosition, cause: Cause
    ) -> None:
        checkpoint.put_s = time.monotonic()
        observation = observation_of(position, checkpoint.location, checkpoint.cluster, cause)
        # A query without Kafka sources is not measured.
        if observation.sources:
            self._context.queue.put_nowait(Delivery(observation, nothing_to_do))

    def _release(self, checkpoint: WatchedCheckpoint) -> None:
        checkpoint.reader = checkpoint.position = checkpoint.put_s = None
        checkpoint.failures = 0
        self._unclaim(checkpoint)

    def _unclaim(self, checkpoint: WatchedCheckpoint) -> None:
        query_id = checkpoint.query_id or ""
        holders = self._holders.pop(query_id, {})
        holders.pop(checkpoint.location, None)
        if holders:
            self._holders[query_id] = holders

    def _fail_poll(self, checkpoint: WatchedCheckpoint, reason: str) -> None:
        checkpoint.failures += 1
        self._fail(checkpoint.location, reason)

    def _fail(self, location: str, reason: str) -> None:
        location = redact_location(location)
        if self.failing.get(location) != reason:
            _log.warning("cannot watch %s", reason)
        self.failing[location] = reason

    def _recover(self, location: str) -> None:
        location = redact_location(location)
        if self.failing.pop(location, None) is not None:
            _log.info("watching %s again", location)


def observation_of(
    position: CheckpointPosition, location: str, cluster: str, cause: Cause
) -> Observation:
    """The observation of a checkpoint's position. The location names its query."""
    return Observation(
        observation_id=str(uuid4()),
        cluster=cluster,
        query_id=position.query_id,
        run_id=None,
        query=_query_name(location),
        origin="checkpoint",
        cause=cause,
        observed_at=epoch_ms(),
        batch_id=position.batch_id,
        planned_batch_id=position.planned_batch_id,
        processed_at=position.committed_at_ms,
        checkpoint_location=redact_location(location),
        sources=position.kafka_sources(),
    )


def _processed(position: CheckpointPosition | None) -> list[Offsets | None] | None:
    return None if position is None else [source.processed for source in position.sources]


def _query_name(location: str) -> str | None:
    """The innermost folder whose name is not generic; of a pipeline's flow its name in Spark."""
    parts = [part for part in location.rpartition("://")[2].split("/") if part]
    if "_checkpoints" in parts[:-3] and parts[-1].isdigit():
        # STORAGE/_checkpoints/CATALOG/SCHEMA/TABLE/FLOW/NUMBER
        schema = parts[parts.index("_checkpoints") + 1 : -3]
        return ".".join([*schema, parts[-2]])
    return next((part for part in reversed(parts) if part.lower() not in _GENERIC_FOLDERS), None)


def _is_below(location: str, prefix: str) -> bool:
    inside = location == prefix or location.startswith(prefix.rstrip("/") + "/")
    return inside and ".." not in location.split("/")
