"""Record times requested from a real broker, and what another client reads there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from sparklag_schemas import TimeLagSettings
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.enrichment.record_search import Postponed
from sparklag_service.enrichment.record_times import RecordTimes
from sparklag_service.tracking.query_state import QueryState
from tests.service.asking import enriching, measured_until, of_sources, source
from tests.service.states import latest_of

OFTEN = TimeLagSettings(sample_interval_s=0.1)


@asynccontextmanager
async def sampling(bootstrap_servers: str, **fields: Any) -> AsyncIterator[Sampled]:
    """An enricher that samples every query at each check."""
    async with enriching(bootstrap_servers, **{"time_lag": OFTEN, **fields}) as enricher:
        yield Sampled(enricher)


class Sampled:
    def __init__(self, enricher: Enricher) -> None:
        self.enricher = enricher

    @property
    def record_times(self) -> RecordTimes:
        return self.enricher.record_times["default"]

    def times(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (name, number): (one.offset, one.timestamp_ms)
            for name, topic in self.enricher.offsets["default"].items()
            for number, one in topic.record_times.items()
        }

    def ends(self, topic: str) -> dict[int, int]:
        latest = latest_of(self.enricher.offsets["default"])
        return {at.partition: offset for at, offset in latest.items() if at.topic == topic}

    def forget(self) -> None:
        """Forget the sampled times, so that another position of the partition need not wait."""
        for topic in self.enricher.offsets["default"].values():
            topic.record_times.clear()
        self.record_times.sampler._postponed = Postponed()

    async def until(self, condition: Any, what: str, *states: QueryState) -> None:
        await measured_until(self.enricher, condition, what, *states)

    async def finds(
        self, times: Mapping[tuple[str, int], tuple[int, int]], *states: QueryState
    ) -> None:
        """Measure `states` until these are known and no others."""
        await self.until(lambda: self.times() == times, f"the times are {times}", *states)

    async def checks(self, count: int, *states: QueryState) -> None:
        """Let so many checks of these pass, each with time to come to an end."""
        for _ in range(count):
            due_s = self._next_s(states)
            await self.until(lambda due_s=due_s: self._next_s(states) > due_s, "a check", *states)

    def _next_s(self, states: Sequence[QueryState]) -> float:
        queries = self.record_times._cluster.queries
        return min(
            (queries[one.query_id].next_s for one in states if one.query_id in queries), default=0
        )


def standing(
    positions: Mapping[str, Mapping[int, int]], query_id: str = "query", **fields: Any
) -> QueryState:
    """A query at these positions; `fields` are of its one source."""
    processed = {topic: dict(some) for topic, some in positions.items()}
    return of_sources(query_id, source(processed=processed, **fields))


async def write_batches(
    bootstrap_servers: str,
    topic: str,
    batches: Iterable[Sequence[int]],
    *,
    partitions: Iterable[int] = (0,),
    codec: str | None = None,
    value: bytes = b"value",
) -> None:
    """Each of these batches, with records of these times, to each of the partitions."""
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, compression_type=codec, max_batch_size=8_000_000
    ) as producer:
        for times in batches:
            sent = []
            for partition in partitions:
                batch = producer.create_batch()
                for time_ms in times:
                    assert batch.append(key=None, value=value, timestamp=time_ms) is not None
                sent.append(await producer.send_batch(batch, topic, partition=partition))
                # It only waits for metadata: thousands of them would hold the loop.
                await asyncio.sleep(0)
            for one in sent:
                await one


async def first_times(
    bootstrap_servers: str,
    topic: str,
    positions: Mapping[int, int],
    level: str = "read_uncommitted",
) -> dict[int, int]:
    """The time of the first record that aiokafka's consumer reads from each position on."""
    result: dict[int, int] = {}
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, isolation_level=level, auto_offset_reset="none"
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in positions]
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, positions[partition.partition])
        while len(result) < len(positions):
            record = await consumer.getone(*partitions)
            result.setdefault(record.partition, record.timestamp)
    return result
