"""The checkpoint intake: the positions of queries by their checkpoints, without their drivers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
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
from sparklag_schemas import Cause, Observation, SourcePosition
from sparklag_schemas.errors import OutOfBounds
from sparklag_schemas.messages.bounds import MAX_EPOCH_MS
from sparklag_schemas.messages.validation import MessageLimits
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.runtime.tasks import run_together
from sparklag_schemas.text.locations import redact_location
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.intakes import Delivery, SourceContext, nothing_to_do
from sparklag_service.intakes.checkpoint_polling import CheckpointPoller, PollResult, result_of

_log = logging.getLogger(__name__)
_FOLLOW_INTERVAL_S = 1.0
"""How often the locations that drivers report are compared with what is watched."""
_LEAST_OF_INTERVAL = 0.8
"""Intervals differ, so that hundreds of checkpoints are not polled at the same time."""
_BACKOFF = (1, 2, 4, 8, 12)
"""Intervals between polls, by how often it could not be read; the last one repeats."""
_IDENTIFY_AGAIN = 10
"""Find intervals between polls of another instance's checkpoint: it may hold a new query."""
_CANCEL_AGAIN_S = 1.0
_GENERIC_FOLDERS = {"checkpoint", "checkpoints", "_checkpoint", "_checkpoints", "ckpt", "chk"}


class CheckpointIntake:
    """Polls each checkpoint of the queries that this instance owns. Create it on its loop."""

    def __init__(self, context: SourceContext) -> None:
        settings = context.settings
        self.name = "checkpoints"
        self.context = context
        self.settings = settings.checkpoints
        self.store = CheckpointStore(self.settings.storage, self.settings.timeout_s)
        self.failing: dict[str, str] = {}
        self._limits = MessageLimits(settings.limits)
        self._patterns = settings.checkpoint_patterns
        self._follow_below = [normal_location(prefix) for prefix in settings.checkpoints.follow]
        self._poller = CheckpointPoller(self.settings.timeout_s)
        self._watched: dict[str, _WatchedCheckpoint] = {}
        self._matches: dict[str, list[str]] = {}
        """Locations by pattern."""
        self._failed_patterns: set[str] = set()
        """A location without wildcards is its own pattern: a failed poll does not count here."""
        self._claims: dict[str, str] = {}
        """The location that is watched for each query."""

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            await run_together(self._find_regularly(), self._follow_regularly(), self._poller.run())
        finally:
            closing = asyncio.get_running_loop().run_in_executor(None, self.store.close)
            await asyncio.wait({closing}, timeout=_CANCEL_AGAIN_S)

    def watches(self, checkpoint: _WatchedCheckpoint) -> bool:
        """Whether it is still to be polled."""
        return self._watched.get(checkpoint.location) is checkpoint

    def claim(self, query_id: str, location: str) -> str:
        """The location that is watched for a query: this one unless it is another already."""
        return self._claims.setdefault(query_id, location)

    def release(self, query_id: str | None, location: str) -> None:
        """Undo `claim`."""
        if query_id is not None and self._claims.get(query_id) == location:
            del self._claims[query_id]

    def limit_error(self, position: CheckpointPosition, location: str) -> str | None:
        """Why a position is refused: its partitions are beyond `limits`."""
        try:
            # The clock of the store may be ahead.
            observation = observation_of(position, location, "", "checkpoint")
            self._limits.check(observation, MAX_EPOCH_MS)
        except OutOfBounds as error:
            return f"{redact_location(location)}: {error}"
        return None

    def put(self, observation: Observation) -> None:
        """Put it on the queue, unless the query has nothing to do with Kafka."""
        if observation.sources:
            self.context.queue.put_nowait(Delivery(observation, nothing_to_do))

    def fail(self, location: str, reason: str) -> None:
        """Report it as failing; log that once."""
        location = redact_location(location)
        if self.failing.get(location) != reason:
            _log.warning("cannot watch %s", reason)
        self.failing[location] = reason

    def recover(self, location: str) -> None:
        """Report it as failing no more."""
        location = redact_location(location)
        if self.failing.pop(location, None) is not None:
            _log.info("watching %s again", location)

    async def _find_regularly(self) -> None:
        while True:
            await asyncio.gather(
                *(self._find(pattern, cluster) for pattern, cluster in self._patterns)
            )
            await asyncio.sleep(self.settings.find_interval_s)

    async def _find(self, pattern: str, cluster: str) -> None:
        find = partial(result_of, partial(self.store.find, pattern), pattern)
        finding = self._poller.call(normal_location(pattern), find)
        await asyncio.wait({finding}, timeout=self.settings.timeout_s)
        if not finding.done():
            self._failed_patterns.add(pattern)
            self.fail(pattern, str(self._poller.timed_out(pattern)))
        locations = await finding
        if isinstance(locations, CheckpointError):
            self._failed_patterns.add(pattern)
            self.fail(pattern, str(locations))
            return
        if pattern in self._failed_patterns:
            self._failed_patterns.discard(pattern)
            self.recover(pattern)
        for location in set(self._matches.get(pattern, ())) - set(locations):
            self._drop(location)
        self._matches[pattern] = locations
        for location in locations:
            self._watch(location, cluster, fixed_prefix(pattern), configured=True)

    async def _follow_regularly(self) -> None:
        while True:
            if self._follow_below:
                self._follow()
            await asyncio.sleep(_FOLLOW_INTERVAL_S)

    def _follow(self) -> None:
        """Watch the checkpoints that drivers report, where the settings allow it."""
        reported = {
            normal_location(state.checkpoint_location): state.cluster
            for state in self.context.queries.values()
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
            checkpoint = _WatchedCheckpoint(self, location, cluster, below, configured)
            self._watched[location] = checkpoint
            # The first polls are spread too.
            after_s = random.uniform(0, min(1.0, self.settings.interval_s))
            self._poller.schedule(checkpoint, after_s)
        elif configured:
            checkpoint.configured = True

    def _drop(self, location: str) -> None:
        checkpoint = self._watched.pop(location, None)
        if checkpoint is not None:
            checkpoint.release()
            self.recover(location)


class _WatchedCheckpoint:
    """See PolledCheckpoint."""

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
        """It is in the settings; otherwise a driver reported it."""
        self._below = below
        """The folder of the settings that it has to lie in. None: the settings name it itself."""
        self._intake = intake
        self._cluster = cluster
        self._reader: CheckpointReader | None = None
        self._query_id: str | None = None
        self._identified_s = 0.0
        """`time.monotonic()`, when the query was read last."""
        self._position: CheckpointPosition | None = None
        self._put_s: float | None = None
        """When the position was put on the queue. None: not since this instance polls it."""
        self._failures = 0

    def next_reader(self) -> CheckpointReader | None:
        intake = self._intake
        if self._query_id is not None and not intake.context.watches(self._query_id):
            self.release()
            again_s = _IDENTIFY_AGAIN * intake.settings.find_interval_s
            if time.monotonic() - self._identified_s < again_s:
                return None
        if self._reader is None:
            self._reader = intake.store.reader(self.location, self._below)
        return self._reader

    def take(self, result: PollResult) -> float | None:
        intake = self._intake
        if not intake.watches(self):
            return None
        if isinstance(result, CheckpointError):
            self._fail(str(result))
        elif result is not None and (error := intake.limit_error(result, self.location)):
            # The reader returns a position once: the previous one is outdated.
            self._position = None
            self._fail(error)
        else:
            self._update(result)
        interval_s = intake.settings.interval_s * random.uniform(_LEAST_OF_INTERVAL, 1.0)
        return float(interval_s * _BACKOFF[min(self._failures, len(_BACKOFF) - 1)])

    def release(self) -> None:
        """Another instance polls it, or none."""
        self._reader = self._position = self._put_s = None
        self._intake.release(self._query_id, self.location)

    def _update(self, changed: CheckpointPosition | None) -> None:
        if changed is not None:
            self._identify(changed)
        query_id = self._query_id
        if query_id is None or self._position is None:
            return
        intake = self._intake
        claimed = intake.claim(query_id, self.location)
        if claimed != self.location:
            self._fail(
                f"{redact_location(self.location)}: holds query {query_id}, which is"
                f" already watched at {redact_location(claimed)}"
            )
            return
        self._failures = 0
        intake.recover(self.location)
        heartbeat_s = intake.context.settings.heartbeat_s
        if not intake.context.watches(query_id):
            self.release()
        elif changed is not None or self._put_s is None:
            self._put(self._position, "checkpoint")
        elif self._repeats(query_id) and time.monotonic() - self._put_s >= heartbeat_s:
            self._put(self._position, "refresh")

    def _identify(self, position: CheckpointPosition) -> None:
        if self._query_id not in (None, position.query_id):
            shown = redact_location(self.location)
            _log.info(
                "%s: holds query %s, not %s",
                *(shown, position.query_id, self._query_id),
                extra=log_fields(position.query_id),
            )
            self._intake.release(self._query_id, self.location)
        self._query_id = position.query_id
        self._identified_s = time.monotonic()
        self._position = position

    def _repeats(self, query_id: str) -> bool:
        """Whether it has heartbeats. A followed query whose driver is gone is forgotten some day,
        one of the settings is not."""
        state = self._intake.context.queries.get(query_id)
        return self.configured or (state is not None and state.run_id is None)

    def _put(self, position: CheckpointPosition, cause: Cause) -> None:
        self._put_s = time.monotonic()
        self._intake.put(observation_of(position, self.location, self._cluster, cause))

    def _fail(self, reason: str) -> None:
        self._failures += 1
        self._intake.fail(self.location, reason)


def observation_of(
    position: CheckpointPosition, location: str, cluster: str, cause: Cause
) -> Observation:
    """The observation of a checkpoint's position. Its query is named after the folder."""
    return Observation(
        observation_id=str(uuid4()),
        cluster=cluster,
        query_id=position.query_id,
        run_id=None,
        query=_folder_name(location),
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


def _folder_name(location: str) -> str | None:
    """The innermost folder's name that means something."""
    parts = [part for part in location.rpartition("://")[2].split("/") if part]
    return next((part for part in reversed(parts) if part.lower() not in _GENERIC_FOLDERS), None)


def _is_below(location: str, prefix: str) -> bool:
    inside = location == prefix or location.startswith(prefix.rstrip("/") + "/")
    return inside and ".." not in location.split("/")
