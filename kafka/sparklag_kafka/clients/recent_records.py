"""Reads the end of `consumer-lag`: the last minute before the log end, however old that is.

Every query is published again at each heartbeat, so that minute holds them all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from math import inf

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_schemas.timestamps import epoch_ms

_POLL_MS = 500
_LAST_RECORD_TIMEOUT_S = 5.0
_HEARTBEATS_READ_BACK = 6
"""Three are too few, as the simulation shows: a killed instance's queries are published again after
up to 35 s, and others may write into the same partition meanwhile."""
_STEPS_BACK = 26
"""At most, of a heartbeat each: there may be outages between them, with few events after each."""


class RecentRecords:
    """Moves a consumer that partitions are assigned to."""

    def __init__(self, consumer: AIOKafkaConsumer, heartbeat_s: float) -> None:
        self._consumer = consumer
        self._heartbeat_s = heartbeat_s

    async def seek(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Seek in each partition; where it ends, of those that hold anything to read.

        Time in which nothing was published does not count: queries from before an outage were
        perhaps not published after it.
        """
        consumer = self._consumer
        begins = await consumer.beginning_offsets(list(ends))
        filled = {partition: end for partition, end in ends.items() if end > begins[partition]}
        back_ms = int(max(60.0, _HEARTBEATS_READ_BACK * self._heartbeat_s) * 1000)
        step_ms = back_ms // _HEARTBEATS_READ_BACK
        starts, published_ms = dict(ends), dict.fromkeys(filled, 0)
        starts_ms: dict[TopicPartition, int] = {}
        for _ in range(_STEPS_BACK):
            before = {
                p: starts[p] - 1
                for p in filled
                if starts[p] > begins[p] and published_ms[p] < back_ms
            }
            times_ms = await self._times(before)
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

    async def _times(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The timestamp of the record at each offset."""
        for partition, offset in offsets.items():
            self._consumer.seek(partition, offset)
        times: dict[TopicPartition, int] = {}
        now_ms = epoch_ms()

        async def read() -> None:
            while missing := offsets.keys() - times.keys():
                # One each: `getmany` would decompress all that was fetched.
                record = await self._consumer.getone(*missing)
                # A producer may write any timestamp: one in the future would hide all before it.
                at_ms = min(record.timestamp, now_ms)
                times[TopicPartition(record.topic, record.partition)] = at_ms

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), _LAST_RECORD_TIMEOUT_S)
        return times


async def read_to(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], deadline_s: float = inf
) -> AsyncIterator[list[ConsumerRecord]]:
    """Records of one partition at a time, until each is at its end, or `time.monotonic()` is at
    `deadline_s`."""
    while time.monotonic() < deadline_s:
        # By position: the log may end with records that are not delivered.
        left = [p for p, end in ends.items() if await consumer.position(p) < end]
        if not left:
            return
        batches = await consumer.getmany(*left, timeout_ms=_POLL_MS)
        for records in batches.values():
            yield records
