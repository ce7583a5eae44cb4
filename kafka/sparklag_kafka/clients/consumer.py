"""aiokafka's consumer, for topics to which anybody may write; and reads of the end of a log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.access import TrustedBrokers, client_options
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_kafka.protocol.record_batches import OnUnreadable, reading_untrusted
from sparklag_schemas.runtime.tasks import UnexpectedCancellation, cancel_and_wait, run_in_task
from sparklag_schemas.settings import ResolvedSettings
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag.kafka")
_MAX_BYTES: Final = 16 * 1024 * 1024
"""The size of record values in one `getmany`."""
_CHUNK_RECORDS: Final = 8
_MIN_STEP_TIMEOUT_S: Final = 0.2
_OFFSETS_GROUP: Final = "offsets"
"""The name of a group of aiokafka's connections to a broker, as for its coordinator."""


class ContractConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """Skips batches that cannot be read, or decompress to more than `limits.batch_mb`.

    Connects only to brokers that may get the password. Does not commit by itself. `async with`
    starts and stops it.
    """

    _closed: bool

    def __init__(
        self, settings: ResolvedSettings, on_unreadable: OnUnreadable, **options: Any
    ) -> None:
        """`options` are aiokafka's. Raises SettingsError as `client_options` does."""
        super().__init__(
            **client_options(settings.access),
            enable_auto_commit=False,
            metadata_max_age_ms=round(settings.metadata_interval_s * 1000),
            **options,
        )
        TrustedBrokers(settings.access).guard(self._client)
        self._client.send = partial(_send, self._client.send)
        self._max_batch_bytes = settings.limits.batch_mb * 1024 * 1024
        self._on_unreadable = on_unreadable

    async def start(self) -> None:
        """Connect. A consumer that cannot is stopped."""
        try:
            with reading_untrusted(self._max_batch_bytes, self._on_unreadable):
                await super().start()
        except BaseException:
            await self.stop()
            raise

    async def leave_group(self, timeout_s: float, *first: Callable[[], Awaitable[None]]) -> None:
        """Run the steps in `first`, then stop, in `timeout_s` together; each step gets at least a
        short time. Failures are logged."""
        deadline_s = time.monotonic() + timeout_s
        for step in (*first, self.stop):
            task = asyncio.ensure_future(run_in_task(step()))
            timeout_s = max(_MIN_STEP_TIMEOUT_S, deadline_s - time.monotonic())
            try:
                await asyncio.wait({task}, timeout=timeout_s)
                if not task.done():
                    raise asyncio.TimeoutError
                task.result()
            except (*KAFKA_FAILURES, UnexpectedCancellation) as error:
                _log.warning("left the group uncleanly: %s", error_text(error))
            finally:
                await cancel_and_wait(task)

    async def stop(self) -> None:
        """Close the consumer and leave its group, even where a part of it fails to close.

        aiokafka's `stop` raises the CancelledError of tasks that it has cancelled, which would end
        the caller; and after a failure it leaves tasks that reconnect.
        """
        if self._closed:
            return
        self._closed = True
        parts: list[Any] = [part for part in (self._coordinator, self._fetcher) if part is not None]
        try:
            for part in parts:
                for failure in await asyncio.gather(part.close(), return_exceptions=True):
                    if isinstance(failure, Exception):
                        raise failure
        finally:
            for task in _tasks_of(parts):
                task.cancel()
            await self._client.close()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Like aiokafka, which decompresses `max_records` of any size; this returns fewer large
        records."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        count = size = 0
        while count < max_records and size < _MAX_BYTES:
            chunk_size = min(_CHUNK_RECORDS, max_records - count)
            chunk = await super().getmany(
                *partitions, timeout_ms=timeout_ms, max_records=chunk_size
            )
            for partition, records in chunk.items():
                taken.setdefault(partition, []).extend(records)
                count += len(records)
                size += sum(len(record.value or b"") for record in records)
            if not chunk or self._subscription.reassignment_in_progress:
                break
            # No waiting from here on: no rebalance may revoke the partitions of taken records.
            timeout_ms = 0
        return taken


async def _send(
    send: Callable[..., Awaitable[Any]], node_id: int, request: Any, **options: Any
) -> Any:
    """Requests offsets on a separate connection: a broker answers in order, and a fetch at the log
    end waits for half a second."""
    if isinstance(request, OffsetRequest):
        options = {"group": _OFFSETS_GROUP}
    return await send(node_id, request, **options)


def _tasks_of(parts: Iterable[object]) -> Iterator[asyncio.Task[object]]:
    for part in parts:
        for value in vars(part).values():
            for item in value if isinstance(value, set) else (value,):
                if isinstance(item, asyncio.Task):
                    yield item


_POLL_MS = 500
_LAST_RECORD_TIMEOUT_S = 5.0
_HEARTBEATS_READ_BACK = 6
"""The simulation shows that three are too few: the queries of a killed instance are published again
after up to 35 s, and others may write to the same partition meanwhile."""
_STEPS_BACK = 26
"""The limit of steps of a heartbeat each: there may be several outages with few events between."""


class RecentRecords:
    """Seeks a consumer, with assigned partitions, to the recent records."""

    def __init__(self, consumer: AIOKafkaConsumer, heartbeat_s: float) -> None:
        self._consumer = consumer
        self._heartbeat_s = heartbeat_s

    async def seek(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Seek in each partition. Returns the ends of the partitions that have records to read.

        Time without any record does not count: a query may not have been published since an outage.
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
                    # Without a timestamp: from the partition's beginning, slower, not wrong.
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
                # One record each: `getmany` would decompress everything fetched.
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
    """Records, of one partition at a time, until each partition is at its end, or until
    `deadline_s` (`time.monotonic()`)."""
    while time.monotonic() < deadline_s:
        # By position: the log may end with records that are not delivered.
        left = [p for p, end in ends.items() if await consumer.position(p) < end]
        if not left:
            return
        batches = await consumer.getmany(*left, timeout_ms=_POLL_MS)
        for records in batches.values():
            yield records
