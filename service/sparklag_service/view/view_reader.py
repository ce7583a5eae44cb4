"""Reads `consumer-lag` into the view: every instance reads every partition, without a group.

Every query is published again at each heartbeat, so the last minute before the log end holds them
all, and a new instance reads no more than that. The log end may be a day old.
"""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_schemas.errors import OverLimit, WrongPlace
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted
from sparklag_service.intakes.contract_records import ContractRecords, read_with_retry, shown
from sparklag_service.view.feed import Arrival, Feed
from sparklag_service.view.view import Entry, View

_POLL_MS = 500
_MOST_RECORDS = 1_000
_POLL_POSITION_S = 0.02
_LAST_RECORD_TIMEOUT_MS = 5_000
_HEARTBEATS_READ_BACK = 6
_STEPS_BACK = 26
"""At most, of a heartbeat each: there may be outages between them, with few events after each."""


class ViewReader:
    """`ready` is None once the view holds what the topic held at the start."""

    def __init__(
        self,
        settings: ResolvedSettings,
        view: View,
        counters: Counters,
        formats: MessageFormats,
        feed: Feed,
    ) -> None:
        self._settings = settings
        self._records = ContractRecords(
            LagEvent, settings.lag_topic, settings, formats, counters.refusals
        )
        self._view = view
        self._counters = counters
        self.feed = feed
        self._consumer: AIOKafkaConsumer | None = None
        self._taking = False
        self._failed = False
        """Since the topic was last read, reading it has failed."""
        self.ready: str | None = "the view is being read"
        self.caught_up = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled."""
        await read_with_retry(
            self._read,
            self._settings.lag_topic,
            self._settings,
            self._counters,
            self._not_ready,
        )

    async def reach_end(self) -> None:
        """Return once the view holds what the topic holds now."""
        ends: dict[TopicPartition, int] | None = None
        while True:
            consumer = self._consumer
            if consumer is not None and self.ready is None:
                if ends is None:
                    ends = await consumer.end_offsets(consumer.assignment())
                positions = [(await consumer.position(p), end) for p, end in ends.items()]
                if not self._taking and all(position >= end for position, end in positions):
                    return
            await asyncio.sleep(_POLL_POSITION_S)

    def _not_ready(self, reason: str) -> None:
        self.ready = reason
        self._failed = True

    async def _read(self) -> None:
        consumer = ContractConsumer(
            self._settings,
            self._records.refuse_batch,
            auto_offset_reset="earliest",
        )
        # Without a group this assigns every partition, those added later too.
        consumer.subscribe([self._settings.lag_topic])
        try:
            await consumer.start()
            ends = await consumer.end_offsets(consumer.assignment())
            missing = await self._seek_to_last_minute(consumer, ends)
            self.feed.begin(
                {p.partition: await consumer.position(p) for p in ends},
                {p.partition: end for p, end in ends.items()},
            )
            self._consumer = consumer
            # The assignment is empty once the topic was deleted, also when it is created again.
            while consumer.assignment():
                self._catch_up(missing)
                batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_MOST_RECORDS)
                self._failed = False
                self._taking = True
                for records in batches.values():
                    await self._take_all(records)
                for partition in list(missing):
                    # By position: the log may end with records that are not delivered.
                    if await consumer.position(partition) >= missing[partition]:
                        del missing[partition]
                self._taking = False
            raise ReadingInterrupted("it does not exist")
        finally:
            self._taking = False
            self._consumer = None
            await consumer.stop()

    async def _seek_to_last_minute(
        self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Seek in each partition; where it ends, of those that hold anything to read.

        Time in which nothing was published does not count: queries from before an outage were
        perhaps not published after it.
        """
        begins = await consumer.beginning_offsets(list(ends))
        filled = {partition: end for partition, end in ends.items() if end > begins[partition]}
        back_ms = int(max(60.0, _HEARTBEATS_READ_BACK * self._settings.heartbeat_s) * 1000)
        step_ms = back_ms // _HEARTBEATS_READ_BACK
        starts, published_ms = dict(ends), dict.fromkeys(filled, 0)
        starts_ms: dict[TopicPartition, int] = {}
        for _ in range(_STEPS_BACK):
            before = {
                p: starts[p] - 1
                for p in filled
                if starts[p] > begins[p] and published_ms[p] < back_ms
            }
            times_ms = await self._times(consumer, before)
            firsts = await consumer.offsets_for_times(
                {p: max(0, time_ms - step_ms) for p, time_ms in times_ms.items()}
            )
            for p, offset in before.items():
                first = firsts.get(p)
                if first is None:
                    # Without a timestamp it is read from its beginning: slower, not wrong.
                    starts[p] = begins[p]
                    continue
                newest_ms = starts_ms.get(p, times_ms[p])
                if newest_ms - times_ms[p] > step_ms:
                    newest_ms = times_ms[p]
                published_ms[p] += max(0, newest_ms - first.timestamp)
                starts[p], starts_ms[p] = min(offset, first.offset), first.timestamp
        for partition, start in starts.items():
            consumer.seek(partition, start)
        return filled

    async def _times(
        self, consumer: AIOKafkaConsumer, filled: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The timestamp of the record at each offset."""
        for partition, offset in filled.items():
            consumer.seek(partition, offset)
        times: dict[TopicPartition, int] = {}
        now_ms = epoch_ms()
        deadline = asyncio.get_running_loop().time() + _LAST_RECORD_TIMEOUT_MS / 1000
        while filled and len(times) < len(filled) and asyncio.get_running_loop().time() < deadline:
            batches = await consumer.getmany(*filled, timeout_ms=_POLL_MS)
            for partition, records in batches.items():
                # A producer may write any timestamp: one in the future would hide all before it.
                times[partition] = min(records[0].timestamp, now_ms)
        return times

    def _catch_up(self, missing: dict[TopicPartition, int]) -> None:
        # That the topic can be described does not mean that it can be read.
        if not missing and not self._failed:
            self.ready = None
            self.caught_up.set()

    async def _take_all(self, records: list[ConsumerRecord]) -> None:
        async for chunk in self._records.chunks(records):
            for record in chunk:
                self._take(record)
            await asyncio.sleep(0)

    def _take(self, record: ConsumerRecord) -> None:
        query_id = self._records.query_id(record)
        if query_id is None:
            return
        event, document = None, b""
        if record.value is None:
            if not self._records.is_genuine(record):
                return
            self._view.remove(query_id)
        else:
            event = self._records.decoded(record)
            if event is None:
                return
            if event.query_id != query_id:
                self._records.refuse(record, WrongPlace("its key is not its query's id"))
                return
            event, document = shown(event, record.value)
            entry = Entry(event, document, time.monotonic(), record.partition, record.offset)
            try:
                is_newest = self._view.put(entry)
            except OverLimit as error:
                self._records.refuse(record, error)
                return
            if not is_newest:
                self._counters.outdated_events += 1
                return
        self.feed.dispatch(
            Arrival(
                query_id,
                record.partition,
                record.offset,
                min(record.timestamp, epoch_ms()),
                event,
                document,
            )
        )
