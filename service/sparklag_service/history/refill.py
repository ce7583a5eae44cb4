"""Reads again what `consumer-lag` holds from before this instance: its history.

The newest part first, as people ask for it first. It takes a quarter of the loop's time, at most,
and little memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition
from msgspec import Struct

from sparklag_schemas import Settings, Status
from sparklag_schemas.clock import epoch_ms
from sparklag_schemas.connection import client_options
from sparklag_service.contract_records import keep_reading, short_turns
from sparklag_service.counters import Counters
from sparklag_service.history.history import History
from sparklag_service.history.rows import row
from sparklag_service.view import View

_log = logging.getLogger(__name__)
_WINDOWS_S: Final = (900, 3_600, 10_800, 21_600, 43_200)
_POLL_MS: Final = 500
_MOST_RECORDS: Final = 200
_FETCH_BYTES: Final = 2 * 1024 * 1024
_PARTITION_BYTES: Final = 256 * 1024
_REST: Final = 3.0
"""Times as long as a turn took."""
_JOINED_AT_ONCE: Final = 10


class _Totals(Struct, frozen=True, kw_only=True, gc=False):
    """Of a lag event, what the history keeps: the partitions are skipped, not decoded."""

    query_id: str
    measured_at: int
    status: Status
    total_lag: int | None = None
    max_time_lag_s: float | None = None
    input_rate: float | None = None
    processed_rate: float | None = None


_decoder = msgspec.json.Decoder(_Totals)


class Refill:
    """Fills `history` from before its starts, whenever it wants that."""

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str,
        view: View,
        history: History,
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._bootstrap_servers = bootstrap_servers
        self._view = view
        self._history = history
        self._counters = counters
        self.done = asyncio.Event()
        """Nothing is left to be read."""

    async def run(self) -> None:
        """Read when there is something to be read, until cancelled. Kafka may be away."""
        await keep_reading(
            self._read_when_wanted,
            self._settings.lag_topic,
            self._settings,
            self._bootstrap_servers,
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
        options: dict[str, Any] = client_options(self._bootstrap_servers, self._settings.kafka)
        consumer = AIOKafkaConsumer(
            **options,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=_FETCH_BYTES,
            max_partition_fetch_bytes=_PARTITION_BYTES,
        )
        try:
            await consumer.start()
            until = {
                TopicPartition(self._settings.lag_topic, number): start
                for number, start in self._history.starts.items()
            }
            if not until:
                return
            consumer.assign(list(until))
            begins = await consumer.beginning_offsets(list(until))
            now_ms, keep_ms = epoch_ms(), self._history.keep_ms
            broken: set[TopicPartition] = set()
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
                        number = partition.partition
                        known_ms = self._history.complete_since_ms
                        known_ms[number] = min(known_ms[number], complete_ms)
                broken |= window.broken
                until = starts
                if all(start <= begins[p] for p, start in starts.items()):
                    # What is older was deleted, or never was.
                    for partition in until.keys() - broken:
                        if begins[partition] == 0:
                            self._history.complete_since_ms[partition.partition] = 0
                    break
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
                for turn in short_turns(wanted):
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
                await asyncio.sleep(0.01)

    def _take(self, record: ConsumerRecord) -> None:
        if record.key is None:
            return
        if record.value is None:
            self._history.forget_before(record.key.decode(errors="replace"), record.timestamp)
            return
        try:
            totals = _decoder.decode(record.value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._counters.malformed += 1
            return
        # One that the view does not know can be asked for by nobody.
        if self._view.get(totals.query_id) is None:
            return
        if record.timestamp < self._history.forgotten_ms.get(totals.query_id, 0):
            return
        older = row(
            totals.measured_at,
            totals.total_lag,
            totals.max_time_lag_s,
            totals.input_rate,
            totals.processed_rate,
            totals.status,
        )
        if not self._history.archive.add_older(totals.query_id, older, epoch_ms()):
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
        self.starts = starts
        self.until = until
        self.broken: set[TopicPartition] = set()
        """Where records are missing: compacted away."""
        self._since_ms = since_ms
        self._next = dict(starts)
        self._complete_ms: dict[TopicPartition, int | None] = {}
        self._first_ms: dict[TopicPartition, int] = {}
        self._begins = begins

    def unread(self) -> set[TopicPartition]:
        """Partitions in which there is something to read."""
        return {p for p, start in self.starts.items() if start < self.until[p]}

    def passed(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        """It was read."""
        if record.offset > self._next[partition]:
            self.broken.add(partition)
            self._complete_ms[partition] = record.timestamp
        self._next[partition] = record.offset + 1
        self._first_ms.setdefault(partition, record.timestamp)

    def complete_since_ms(self) -> Iterator[tuple[TopicPartition, int]]:
        """Of each partition of which that can be told: since when nothing is missing."""
        for partition, start in self.starts.items():
            if start < self.until[partition] and self._next[partition] < self.until[partition]:
                # The last ones are missing.
                self.broken.add(partition)
            elif partition in self.broken:
                complete_ms = self._complete_ms[partition]
                if complete_ms is not None:
                    yield partition, complete_ms
            elif start > self._begins[partition] or start == 0:
                yield partition, self._since_ms
            elif partition in self._first_ms:
                # What was before it has been deleted.
                self.broken.add(partition)
                yield partition, self._first_ms[partition]
