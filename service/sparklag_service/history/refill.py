"""Reads older events of `consumer-lag` into the history.

The newest events come first, as users request them first. Reading takes at most a quarter of the
loop's time, and little memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.clients.contract_records import ContractRecords
from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.history.history import History
from sparklag_service.history.rows import Totals
from sparklag_service.supervision import read_with_retry
from sparklag_service.view.view import View

_log = logging.getLogger(__name__)
_WINDOWS_S: Final = (60, 900, 3_600, 10_800, 21_600, 43_200)
_POLL_MS: Final = 500
_MAX_RECORDS: Final = 200
_FETCH_BYTES: Final = 2 * 1024 * 1024
_PARTITION_BYTES: Final = 256 * 1024
_REST_RATIO: Final = 3.0
"""Pause after a chunk, as a multiple of the chunk's duration."""
_JOINED_AT_ONCE: Final = 10


@dataclass(eq=False, repr=False)
class Refill:
    """Fills `history` up to its ends, whenever that is needed."""

    _settings: ResolvedSettings
    _view: View
    _history: History
    _counters: Counters
    _formats: MessageFormats
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nothing is left to read."""

    def __post_init__(self) -> None:
        read = self._settings.lag_topic, self._settings, self._formats, self._counters.refusals
        self._records = ContractRecords(Totals, *read, written_as=LagEvent)

    async def run(self) -> None:
        """Read whenever the history needs it, until cancelled. Kafka may be unavailable."""
        await read_with_retry(
            self._read_when_needed,
            self._settings.lag_topic,
            self._settings,
            self._counters,
            lambda reason: None,
        )

    async def _read_when_needed(self) -> None:
        needed = self._history.refill_needed
        while True:
            await needed.wait()
            self.done.clear()
            needed.clear()
            try:
                await self._read()
            except BaseException:
                # A failed read starts over: rows that exist already change nothing.
                needed.set()
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
        async with consumer:
            until = {
                TopicPartition(self._settings.lag_topic, number): end
                for number, end in self._history.ends.items()
            }
            if until:
                consumer.assign(list(until))
                await self._read_windows(consumer, until)

    async def _read_windows(
        self, consumer: AIOKafkaConsumer, until: dict[TopicPartition, int]
    ) -> None:
        history = self._history
        first = await consumer.beginning_offsets(list(until))
        now_ms, keep_ms = epoch_ms(), history.keep_ms
        # In a partition without records, nothing shows since when it is complete.
        broken = {p for p, end in until.items() if end == first[p] > 0}
        for window_ms in (*(s * 1000 for s in _WINDOWS_S if s * 1000 < keep_ms), keep_ms):
            since_ms = now_ms - window_ms
            offsets = await consumer.offsets_for_times(dict.fromkeys(until, since_ms))
            starts = {
                p: min(end, offsets[p].offset if offsets[p] is not None else end)
                for p, end in until.items()
            }
            window = _Window(starts, until, first)
            await self._read_window(consumer, window)
            if history.refill_needed.is_set():
                # The view started over: so does the refill.
                return
            for partition in until.keys() - broken:
                complete_ms = window.incomplete_ms.get(partition, since_ms)
                history.complete_since_ms[partition.partition] = complete_ms
            broken |= window.incomplete_ms.keys()
            until = starts
            if all(start <= first[p] for p, start in starts.items()):
                break
        for partition in first.keys() - broken:
            if until[partition] <= first[partition]:
                # The partition never had earlier records.
                history.complete_since_ms[partition.partition] = now_ms - keep_ms

    async def _read_window(self, consumer: AIOKafkaConsumer, window: _Window) -> None:
        active = set(window.unread)
        for partition in consumer.assignment():
            if partition in active:
                consumer.seek(partition, window.starts[partition])
                consumer.resume(partition)
            else:
                consumer.pause(partition)
        while active and not self._history.refill_needed.is_set():
            batches = await consumer.getmany(*active, timeout_ms=_POLL_MS, max_records=_MAX_RECORDS)
            for partition, records in batches.items():
                inside = [r for r in records if r.offset < window.until[partition]]
                async for chunk in self._records.chunks(inside):
                    began_s = time.monotonic()
                    for record in chunk:
                        window.passed(partition, record)
                        self._take(record)
                    await asyncio.sleep(_REST_RATIO * (time.monotonic() - began_s))
            for partition in list(active):
                # A compacted topic may have no record between the last one and `until`.
                if await consumer.position(partition) >= window.until[partition]:
                    active.discard(partition)
                    consumer.pause(partition)
        now_ms = epoch_ms()
        for at, query_id in enumerate(self._history.archive.query_ids(), start=1):
            self._history.archive.join(query_id, now_ms)
            if at % _JOINED_AT_ONCE == 0:
                # This is not urgent: measuring gets the loop.
                await asyncio.sleep(0.01)

    def _take(self, record: ConsumerRecord) -> None:
        query_id = self._records.query_id(record)
        if query_id is None:
            return
        history, now_ms = self._history, epoch_ms()
        if record.value is None:
            if self._records.is_genuine(record):
                history.forget_before(query_id, min(record.timestamp, now_ms))
            return
        totals = self._records.decoded(record)
        # Only queries in the view have a history that can be requested.
        if totals is None or self._view.get(totals.query_id) is None:
            return
        if record.timestamp < history.forgotten_ms.get(totals.query_id, 0):
            return
        if not history.archive.add(totals.query_id, totals, now_ms, older=True):
            self._counters.history_left_out += 1


class _Window:
    """A part of the topic by partition: from `starts` up to but not including `until`. `first`: the
    first offsets that the topic still has."""

    def __init__(
        self,
        starts: dict[TopicPartition, int],
        until: dict[TopicPartition, int],
        first: dict[TopicPartition, int],
    ) -> None:
        # Also reads the record before the first one: its absence shows that records are missing.
        self.starts = {p: max(start - 1, first[p]) for p, start in starts.items()}
        self.until = until
        self.unread = {p for p, start in starts.items() if start < until[p]}
        self.incomplete_ms: dict[TopicPartition, int] = {}
        """The time of the first record after a gap of compacted or deleted records."""
        self._first = first
        self._next = dict(self.starts)

    def passed(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        deleted = self._next[partition] == self._first[partition] > 0
        if record.offset > self._next[partition] or deleted:
            self.incomplete_ms[partition] = record.timestamp
        self._next[partition] = record.offset + 1
