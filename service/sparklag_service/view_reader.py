"""Keeps the view true to `consumer-lag`: every instance reads every partition, in no group.

Every known query is published again at each heartbeat, so the last minute before the log's end
holds them all, and a new instance reads no more than that. The end may be a day old.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_schemas import ContractError, Settings, decode_lag_event
from sparklag_schemas.connection import client_options, explain_failure
from sparklag_service.counters import Counters
from sparklag_service.view import Entry, View

_log = logging.getLogger(__name__)
_POLL_MS = 500
_RETRY_S = 2.0
_LAST_RECORD_TIMEOUT_MS = 5_000
_HEARTBEATS_READ_BACK = 6


class ViewReader:
    """Fills `view` and goes on. `ready` is None once it holds what the topic held at the start."""

    def __init__(
        self, settings: Settings, bootstrap_servers: str, view: View, counters: Counters
    ) -> None:
        self._settings = settings
        self._bootstrap_servers = bootstrap_servers
        self._options: dict[str, Any] = client_options(bootstrap_servers, settings.kafka)
        self._view = view
        self._counters = counters
        self.ready: str | None = "the view is being read"
        self.caught_up = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                await self._read()
            except (KafkaError, OSError, asyncio.TimeoutError) as error:
                cause = await explain_failure(self._bootstrap_servers, self._settings.kafka)
                self.ready = f"topic {self._settings.lag_topic}: {cause or error!r}"
                _log.warning("view of %s, trying again", self.ready)
            await asyncio.sleep(_RETRY_S)

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            **self._options, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        # Without a group this assigns every partition, those added later too.
        consumer.subscribe([self._settings.lag_topic])
        try:
            await consumer.start()
            missing = await self._seek_to_last_minute(consumer)
            while True:
                self._catch_up(missing)
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                for partition, records in batches.items():
                    for record in records:
                        self._take(record)
                    if partition in missing and records[-1].offset + 1 >= missing[partition]:
                        del missing[partition]
        finally:
            await consumer.stop()

    async def _seek_to_last_minute(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        """Seek in each partition; where it ended then, of those that hold anything to read."""
        partitions = consumer.assignment()
        ends = await consumer.end_offsets(partitions)
        begins = await consumer.beginning_offsets(partitions)
        filled = {partition: end for partition, end in ends.items() if end > begins[partition]}
        newest_ms = await self._newest_times(consumer, filled)
        back_ms = int(max(60.0, _HEARTBEATS_READ_BACK * self._settings.heartbeat_s) * 1000)
        starts = await consumer.offsets_for_times(
            {partition: time_ms - back_ms for partition, time_ms in newest_ms.items()}
        )
        for partition, end in ends.items():
            start = starts.get(partition)
            if partition not in filled:
                consumer.seek(partition, end)
            elif start is not None:
                consumer.seek(partition, start.offset)
            else:
                consumer.seek(partition, begins[partition])
        return filled

    async def _newest_times(
        self, consumer: AIOKafkaConsumer, filled: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The time of each partition's last record: there is no such request in aiokafka."""
        for partition, end in filled.items():
            consumer.seek(partition, end - 1)
        times: dict[TopicPartition, int] = {}
        deadline = asyncio.get_running_loop().time() + _LAST_RECORD_TIMEOUT_MS / 1000
        while len(times) < len(filled) and asyncio.get_running_loop().time() < deadline:
            batches = await consumer.getmany(*filled, timeout_ms=_POLL_MS)
            for partition, records in batches.items():
                times[partition] = records[-1].timestamp
        # One that could not be told is read from its beginning: slower, not wrong.
        return times

    def _catch_up(self, missing: dict[TopicPartition, int]) -> None:
        if not missing:
            self.ready = None
            self.caught_up.set()

    def _take(self, record: ConsumerRecord) -> None:
        if record.key is None:
            return
        if record.value is None:
            self._view.remove(record.key.decode(errors="replace"))
            return
        try:
            event = decode_lag_event(record.value)
        except ContractError as error:
            self._counters.malformed += 1
            _log.warning(
                "skipped a message at %s[%d]@%d: %s",
                record.topic,
                record.partition,
                record.offset,
                error,
            )
            return
        self._view.put(Entry(event, record.value, record.timestamp))
