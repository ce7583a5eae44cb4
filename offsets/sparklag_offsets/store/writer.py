"""Writes observations to the offset store, for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklag_offsets.errors import RecordRefused, StoreError
from sparklag_offsets.store.offset_store import OffsetStore, Retention
from sparklag_offsets.store.recorder import Recorder
from sparklag_offsets.topic_ids import TopicIds
from sparklag_schemas import Observation, Settings
from sparklag_schemas.runtime.clock import epoch_ms

_log = logging.getLogger("sparklag")
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
_PRUNE_S: Final = 3_600.0


@dataclass
class Written:
    """Counts since the start."""

    batches: int = 0
    """Records written."""
    failures: int = 0
    """Times the store failed; what was to be written is written again."""
    refused: int = 0
    """Observations that the store does not take."""
    pruned: int = 0


class StoreWriter:
    """Makes the tables first. One call of `write` at a time."""

    def __init__(
        self,
        store: OffsetStore,
        settings: Settings,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`on_failure` is called with the reason, each time."""
        self.counts = Written()
        self.failing: str | None = None
        """Why the store cannot be written to, since it cannot."""
        self._store = store
        self._keep_s = settings.store.keep_s
        self._keep_batches = settings.store.keep_batches
        self._recorder = Recorder(store)
        self._topic_ids = TopicIds(settings)
        self._on_failure = on_failure
        self._is_prepared = False

    async def write(self, observations: Sequence[Observation]) -> None:
        """Return once the store has all that these add, however often it fails before. What it
        does not take is dropped, with a line in the log: it would hold up all that follows."""
        await self._topic_ids.learn(observations)
        try:
            await self._write(observations)
        except RecordRefused:
            for observation in observations:
                try:
                    await self._write([observation])
                except RecordRefused as refused:
                    self._drop(observation, refused)

    async def _write(self, observations: Sequence[Observation]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if not self._is_prepared:
                    await self._store.prepare()
                    self._is_prepared = True
                added = await self._recorder.record(observations, self._topic_ids.of)
            except RecordRefused:
                raise
            except StoreError as error:
                self._fail(str(error))
            else:
                self.counts.batches += added
                self._recover()
                return
            # Not all drivers at the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def forget(self) -> None:
        """Another may have written: what is in the store is asked for again."""
        self._recorder = Recorder(self._store)

    async def prune_regularly(self) -> None:
        """Delete what is past its time, until cancelled. The first time soon, and not all at
        once."""
        if self._keep_s is None and self._keep_batches is None:
            return
        pause_s = random.uniform(0.0, _PRUNE_S / 10)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _PRUNE_S * random.uniform(0.9, 1.1)
            before_ms = None if self._keep_s is None else epoch_ms() - int(self._keep_s * 1000)
            if self._is_prepared:
                try:
                    retention = Retention(before_ms, self._keep_batches)
                    self.counts.pruned += await self._store.prune(retention)
                except StoreError as error:
                    self._fail(str(error))

    async def aclose(self) -> None:
        """Disconnect."""
        try:
            await self._store.aclose()
        except StoreError as error:
            _log.debug("the offset store was left uncleanly: %s", error)

    def _drop(self, observation: Observation, refused: RecordRefused) -> None:
        self.counts.refused += 1
        self._on_failure(str(refused))
        _log.error(
            "sparklag: batch %s of query %r is not recorded: %s",
            observation.batch_id,
            observation.query or observation.query_id,
            refused,
        )

    def _fail(self, reason: str) -> None:
        self.counts.failures += 1
        self._on_failure(reason)
        if self.failing is None:
            _log.warning("sparklag: offsets are not recorded, trying on: %s", reason)
        self.failing = reason

    def _recover(self) -> None:
        if self.failing is not None:
            self.failing = None
            _log.warning("sparklag: offsets are recorded again in %s", self._store.shown)
