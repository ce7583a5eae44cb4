"""Reads again what `consumer-lag` holds from before this instance: its history.

The newest part first, as people ask for it first. It takes a quarter of the loop's time, at most,
and little memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.history.history import History
from sparklag_service.history.rows import Totals, row_of
from sparklag_service.intakes.contract_records import ContractRecords, keep_reading
from sparklag_service.view.view import View

_log = logging.getLogger(__name__)
_WINDOWS_S: Final = (900, 3_600, 10_800, 21_600, 43_200)
_POLL_MS: Final = 500
_MOST_RECORDS: Final = 200
_FETCH_BYTES: Final = 2 * 1024 * 1024
_PARTITION_BYTES: Final = 256 * 1024
_REST: Final = 3.0
"""Times as long as a turn took."""
_JOINED_AT_ONCE: Final = 10


class Refill:
    """Fills `history` up to its ends, whenever it wants that."""

    def __init__(
        self,
        settings: ResolvedSettings,
        view: View,
        history: History,
        counters: Counters,
        formats: MessageFormats,
    ) -> None:
        self._settings = settings
        self._view = view
        self._history = history
        self._counters = counters
        self._records = ContractRecords(
            Totals, settings.lag_topic, settings, formats, counters.refusals, written_as=LagEvent
        )
        self.done = asyncio.Event()
        """Nothing is left to be read."""

    async def run(self) -> None:
        """Read when there is something to be read, until cancelled. Kafka may be away."""
        await keep_reading(
            self._read_when_wanted,
            self._settings.lag_topic,
            self._settings,
            self._counters,
            lambda reason: None,
        )

    async def _read_when_wanted(self) -> None:
        wanted = self._history.wanted
        while True:
            await wanted.wait()
            self.done.clear()
            wanted.clear()
            try:
                await self._read()
            except BaseException:
                # What failed is begun again: rows that are there already change nothing.
                wanted.set()
                raise
            self.done.set()

    async def _read(self) -> None:
        consumer = ContractConsumer(
            self._settings,
            self._records.refuse_batch,
            auto_offset_reset="earliest",
            fetch_max_bytes=_FETCH_BYTES,
            max_partition_fetch_bytes=_PARTITION_BYTES,
        )
        try:
            await consumer.start()
            until = {
                TopicPartition(self._settings.lag_topic, number): end
                for number, end in self._history.ends.items()
            }
            if not until:
                return
            consumer.assign(list(until))
            begins = await consumer.beginning_offsets(list(until))
            now_ms, keep_ms = epoch_ms(), self._history.keep_ms
            # Where all was deleted nobody can tell since when.
            broken = {p for p, end in until.items() if end == begins[p] > 0}
            for window_ms in (*(s * 1000 for s in _WINDOWS_S if s * 1000 < keep_ms), keep_ms):
                since_ms = now_ms - window_ms
                found = await consumer.offsets_for_times(dict.fromkeys(until, since_ms))
                starts = {
                    p: min(end, found[p].offset if found[p] is not None else end)
                    for p, end in until.items()
                }
                window = _Window(starts, until, begins, since_ms)
                await self._read_window(consumer, window)
                if self._history.wanted.is_set():
                    # The view began anew: this does as well.
                    return
                for partition, complete_ms in window.complete_since_ms():
                    if partition not in broken:
                        self._history.complete_since_ms[partition.partition] = complete_ms
                broken |= window.broken
                until = starts
                if all(start <= begins[p] for p, start in starts.items()):
                    break
            for partition in begins.keys() - broken:
                if until[partition] <= begins[partition]:
                    # There never was anything before.
                    self._history.complete_since_ms[partition.partition] = now_ms - keep_ms
        finally:
            await consumer.stop()

    async def _read_window(self, consumer: AIOKafkaConsumer, window: _Window) -> None:
        active = window.unread()
        for partition in consumer.assignment():
            if partition in active:
                consumer.seek(partition, window.starts[partition])
                consumer.resume(partition)
            else:
                consumer.pause(partition)
        while active and not self._history.wanted.is_set():
            batches = await consumer.getmany(
                *active, timeout_ms=_POLL_MS, max_records=_MOST_RECORDS
            )
            for partition, records in batches.items():
                wanted = [r for r in records if r.offset < window.until[partition]]
                async for turn in self._records.short_turns(wanted):
                    began_s = time.monotonic()
                    for record in turn:
                        window.passed(partition, record)
                        self._take(record)
                    await asyncio.sleep(_REST * (time.monotonic() - began_s))
            for partition in list(active):
                # Behind the last record of a compacted topic there may be none up to there.
                if await consumer.position(partition) >= window.until[partition]:
                    active.discard(partition)
                    consumer.pause(partition)
        await self._join()

    async def _join(self) -> None:
        now_ms = epoch_ms()
        for at, query_id in enumerate(self._history.archive.query_ids(), start=1):
            self._history.archive.join(query_id, now_ms)
            if at % _JOINED_AT_ONCE == 0:
                # Nobody waits for it, and what has the loop meanwhile is measuring.
                await asyncio.sleep(0.01)

    def _take(self, record: ConsumerRecord) -> None:
        query_id = self._records.query_id(record)
        if query_id is None:
            return
        if record.value is None:
            if self._records.is_genuine(record):
                self._history.forget_before(query_id, min(record.timestamp, epoch_ms()))
            return
        totals = self._records.decoded(record)
        if totals is None:
            return
        # One that the view does not know can be asked for by nobody.
        if self._view.get(totals.query_id) is None:
            return
        if record.timestamp < self._history.forgotten_ms.get(totals.query_id, 0):
            return
        if not self._history.archive.add_older(totals.query_id, row_of(totals), epoch_ms()):
            self._counters.history_left_out += 1


class _Window:
    """A part of the topic: from `starts` up to and without `until`, by partition."""

    def __init__(
        self,
        starts: dict[TopicPartition, int],
        until: dict[TopicPartition, int],
        begins: dict[TopicPartition, int],
        since_ms: int,
    ) -> None:
        # One more, where there was one: whether it is still there tells whether something is
        # missing before the first.
        self.starts = {p: max(start - 1, begins[p]) for p, start in starts.items()}
        self.until = until
        self.broken: set[TopicPartition] = set()
        """Where records are missing: compacted away, or deleted."""
        self._since_ms = since_ms
        self._begins = begins
        self._unread = {p for p, start in starts.items() if start < until[p]}
        self._next = dict(self.starts)
        self._complete_ms: dict[TopicPartition, int] = {}

    def unread(self) -> set[TopicPartition]:
        """Partitions in which there is something to read."""
        return set(self._unread)

    def passed(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        """It was read."""
        deleted = self._next[partition] == self._begins[partition] > 0
        if record.offset > self._next[partition] or deleted:
            self.broken.add(partition)
            self._complete_ms[partition] = record.timestamp
        self._next[partition] = record.offset + 1

    def complete_since_ms(self) -> Iterator[tuple[TopicPartition, int]]:
        """Of each partition: since when nothing is missing."""
        for partition in self.starts:
            yield partition, self._complete_ms.get(partition, self._since_ms)
