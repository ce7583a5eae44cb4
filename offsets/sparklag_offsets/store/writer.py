"""Records observations in the offset store; only `keep_offsets` writes beside it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklag_offsets.errors import RecordRefused, StoreError
from sparklag_offsets.store.batch_record import BatchRecord, OffsetStore, Retention
from sparklag_offsets.store.batch_sequence import BatchSequence, next_records
from sparklag_offsets.topic_ids import TopicIds
from sparklag_schemas import Observation, Settings
from sparklag_schemas.errors import WrongTeam
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag.offsets")
_FIRST_PAUSE_S: Final = 0.5
_MAX_PAUSE_S: Final = 10.0
_PRUNE_S: Final = 3_600.0
_CACHED_QUERIES: Final = 10_000


@dataclass
class WriterCounts:
    """Counts since the start."""

    batches: int = 0
    """Records written."""
    failures: int = 0
    """Failures of the store; the write is retried."""
    refused: int = 0
    """Observations that the store refused."""
    pruned: int = 0


class StoreWriter:
    """Creates the tables first, and retries until the store works. One `write` at a time."""

    def __init__(
        self,
        store: OffsetStore,
        settings: Settings,
        on_failure: Callable[[str], None] = lambda reason: None,
        *,
        check_log_ends: bool = False,
        check_last: Callable[[Observation, BatchRecord], None] = lambda *_: None,
    ) -> None:
        """`on_failure` is called with the reason, each time. `check_log_ends`: refuse a
        position beyond the end of its log. `check_last` raises WrongTeam for an observation that
        may not follow the last record of its query id."""
        self.counts = WriterCounts()
        self.failing: str | None = None
        """Why the store cannot be written to now. None: it can."""
        self._store = store
        self._keep_s = settings.store.keep_s
        self._keep_batches = settings.store.keep_batches
        self._sequences: dict[str, BatchSequence] = {}
        """A cache by query id: emptied where it is full."""
        self._reported_runs: set[str] = set()
        self._topic_ids = TopicIds(settings, log_ends=check_log_ends)
        self._on_failure = on_failure
        self._check_last = check_last
        self._is_prepared = False

    async def write(self, observations: Sequence[Observation]) -> None:
        """Return once the store has all observations; retries after each failure. A refused
        observation is dropped and logged: it would block those that follow."""
        await self._topic_ids.refresh(observations)
        try:
            await self._write(observations)
        except (RecordRefused, WrongTeam):
            for observation in observations:
                try:
                    await self._write([observation])
                except (RecordRefused, WrongTeam) as error:
                    self._drop(observation, error)

    async def _write(self, observations: Sequence[Observation]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if not self._is_prepared:
                    await self._store.prepare()
                    self._is_prepared = True
                added = await self._record(observations)
            except RecordRefused:
                raise
            except StoreError as error:
                self._fail(str(error))
            else:
                self.counts.batches += added
                if self.failing is not None:
                    self.failing = None
                    _log.warning("sparklag: offsets are recorded again in %s", self._store.shown)
                return
            # Jitter: not all drivers retry at the same time.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _record(self, observations: Sequence[Observation]) -> int:
        """Write the records that the observations add; returns their number. Repeated observations
        add none. Raises StoreError."""
        sequences = await self._load({observation.query_id for observation in observations})
        records: list[BatchRecord] = []
        for observation in observations:
            sequence = sequences[observation.query_id]
            self._topic_ids.check(observation)
            if sequence.newest is not None:
                self._check_last(observation, sequence.newest)
            added = next_records(observation, sequence, self._topic_ids.get)
            if added.past_run_id is not None:
                self._report_two_drivers(observation, added.past_run_id, sequence)
            if added.records:
                sequences[observation.query_id] = sequence.after(added.records)
                records += added.records
        if records:
            await self._store.write(records)
        if len(self._sequences) >= _CACHED_QUERIES:
            self._sequences.clear()
        self._sequences.update(sequences)
        return len(records)

    async def _load(self, query_ids: set[str]) -> dict[str, BatchSequence]:
        missing = query_ids - self._sequences.keys()
        newest = await self._store.newest(sorted(missing)) if missing else {}
        load = BatchSequence.ending_with
        return {each: self._sequences.get(each) or load(newest.get(each)) for each in query_ids}

    def _report_two_drivers(
        self, observation: Observation, run_id: str, sequence: BatchSequence
    ) -> None:
        if run_id in self._reported_runs:
            return
        if len(self._reported_runs) >= _CACHED_QUERIES:
            self._reported_runs.clear()
        self._reported_runs.add(run_id)
        _log.warning(
            "query %s is run by two drivers: run %s continues beside run %s, and sparklag records"
            " the latter alone",
            *(observation.display_name, run_id, sequence.run_id),
            extra=log_fields(observation),
        )

    def forget(self) -> None:
        """Drop the cache: another instance may have written."""
        self._sequences.clear()

    async def prune_regularly(self) -> None:
        """Delete records past their retention, until cancelled. The first time soon, with jitter
        between instances."""
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
        await self._store.aclose()

    def _drop(self, observation: Observation, error: RecordRefused | WrongTeam) -> None:
        self.counts.refused += 1
        self._on_failure(str(error))
        _log.error(
            "sparklag: batch %s of query %r is not recorded: %s",
            *(observation.batch_id, observation.display_name, error),
            extra=log_fields(observation, str(error)),
        )

    def _fail(self, reason: str) -> None:
        self.counts.failures += 1
        self._on_failure(reason)
        if self.failing is None:
            _log.warning("sparklag: offsets are not recorded, retrying: %s", reason)
        self.failing = reason
