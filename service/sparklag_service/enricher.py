"""Reads the latest offsets that queries wait for, and all of them on a clock.

One pass serves every query that waits when it begins. A query that comes while a pass is under
way waits for the next one: its position was then seen before the offsets it is compared with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel, Settings
from sparklag_schemas.connection import client_options
from sparklag_service.evaluator import Measurement
from sparklag_service.log_offsets import LogOffsets, Offsets
from sparklag_service.tracker import QueryState

Partitions = dict[IsolationLevel, set[TopicPartition]]


class Enricher:
    """Knows the offsets of one Kafka cluster. `clock_ms` gives epoch milliseconds."""

    def __init__(
        self, settings: Settings, bootstrap_servers: str, clock_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._options: dict[str, Any] = client_options(bootstrap_servers, settings.kafka)
        self._clock_ms = clock_ms
        self._stack = AsyncExitStack()
        self._consumers: dict[IsolationLevel, LogOffsets] = {}
        self._connecting = asyncio.Lock()
        self._earliest: dict[TopicPartition, int] = {}
        self._earliest_until = 0.0
        self._waiting: set[str] = set()
        self._somebody_waits = asyncio.Event()
        self._refresh_at = time.monotonic() + settings.refresh_interval_s
        self.unreachable: str | None = "Kafka was not asked yet"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    def ask(self, query_id: str) -> None:
        """Measure this query in the next pass."""
        self._waiting.add(query_id)
        self._somebody_waits.set()

    async def next_asked(self) -> set[str] | None:
        """Wait for the next pass: the queries that asked for it, or None when all are due."""
        left_s = self._refresh_at - time.monotonic()
        if left_s > 0:
            try:
                await asyncio.wait_for(self._somebody_waits.wait(), left_s)
            except asyncio.TimeoutError:
                left_s = 0.0
        asked, self._waiting = self._waiting, set()
        self._somebody_waits.clear()
        if left_s > 0:
            return asked
        self._refresh_at = time.monotonic() + self._settings.refresh_interval_s
        return None

    async def measure(self, states: Collection[QueryState]) -> Measurement:
        """Read what `states` need: one request to each leader, for all of them together."""
        wanted, partitions = await self._wanted(states)
        every = set().union(*wanted.values())
        reads = [self._latest(level, some) for level, some in wanted.items()]
        latest_answers, _ = await asyncio.gather(
            asyncio.gather(*reads), self._refresh_earliest(every)
        )
        unknown: dict[TopicPartition, str] = {}
        for answer in latest_answers:
            unknown.update(answer.unknown)
        self._judge(every, unknown)
        return Measurement(
            measured_at_ms=self._clock_ms(),
            latest={
                level: answer.known for level, answer in zip(wanted, latest_answers, strict=True)
            },
            earliest=self._earliest,
            unknown=unknown,
            partitions=partitions,
        )

    async def _wanted(
        self, states: Iterable[QueryState]
    ) -> tuple[Partitions, dict[str, frozenset[int]]]:
        wanted: Partitions = {}
        unplaced: set[str] = set()
        levels: dict[str, set[IsolationLevel]] = {}
        for state in states:
            for source in state.sources:
                level = source.isolation_level
                if source.processed is None:
                    for topic in source.topics or ():
                        unplaced.add(topic)
                        levels.setdefault(topic, set()).add(level)
                    continue
                some = wanted.setdefault(level, set())
                for topic, offsets in source.processed.items():
                    some.update(TopicPartition(topic, number) for number in offsets)
        partitions: dict[str, frozenset[int]] = {}
        if unplaced:
            consumer = await self._consumer("read_uncommitted")
            if consumer is not None:
                partitions = await consumer.partitions_of(unplaced)
        for topic, numbers in partitions.items():
            for level in levels[topic]:
                wanted.setdefault(level, set()).update(TopicPartition(topic, n) for n in numbers)
        return wanted, partitions

    async def _latest(self, level: IsolationLevel, partitions: set[TopicPartition]) -> Offsets:
        consumer = await self._consumer(level)
        if consumer is None:
            return Offsets({}, dict.fromkeys(partitions, "no broker answers"))
        return await consumer.end_offsets(partitions)

    async def _refresh_earliest(self, wanted: set[TopicPartition]) -> None:
        """They move slowly: read for new partitions, and for all after their interval."""
        now = time.monotonic()
        if now >= self._earliest_until:
            self._earliest_until = now + self._settings.earliest_interval_s
            missing = wanted
        else:
            missing = wanted - self._earliest.keys()
        consumer = await self._consumer("read_uncommitted") if missing else None
        if consumer is None:
            return
        answer = await consumer.beginning_offsets(missing)
        for partition in answer.unknown:
            self._earliest.pop(partition, None)
        self._earliest.update(answer.known)

    async def _consumer(self, level: IsolationLevel) -> LogOffsets | None:
        async with self._connecting:
            if level not in self._consumers:
                consumer = LogOffsets(
                    isolation_level=level,
                    timeout_s=self._settings.measure_timeout_s,
                    metadata_interval_s=self._settings.metadata_interval_s,
                    **self._options,
                )
                try:
                    await consumer.start()
                except (KafkaError, OSError, asyncio.TimeoutError):
                    await consumer.stop()
                    return None
                self._consumers[level] = consumer
                self._stack.push_async_callback(consumer.stop)
            return self._consumers[level]

    def _judge(self, wanted: set[TopicPartition], unknown: dict[TopicPartition, str]) -> None:
        """Kafka counts as away when not one partition was answered for."""
        if wanted and len(unknown) >= len(wanted):
            self.unreachable = next(iter(unknown.values()))
        else:
            self.unreachable = None
