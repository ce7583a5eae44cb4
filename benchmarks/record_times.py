"""What it costs to read when the first unprocessed record of 1,000 lagging partitions came.

The service's reader against aiokafka's consumer, which seeks to the same positions and takes one
record of each partition. Records lie in batches as producers make them, compressed; every query
stands at the beginning of a batch, and in a second run in the midst of one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final
from unittest.mock import patch

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.structs import TopicPartition

from benchmarks.comparison import Row, at_most, ms, say, times
from benchmarks.costs import Costs
from benchmarks.loop_stall import longest_stall
from sparklag_jobs.demo.streams import create_topics
from sparklag_kafka.access import quiet_client_logs
from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.protocol.metadata import Address
from sparklag_schemas.messages.topics import TopicSpec
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.enrichment.cluster_offsets import TopicOffsets
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.record_search import ByteBudget, Lagging, Postponed
from sparklag_service.enrichment.record_times import look_up
from sparklag_service.enrichment.sampler import RecordTimeCounts, Sampler
from tests.local_kafka import LocalKafka

REACH: Final = 0.5
"""Times what the consumer takes."""
_TOPICS: Final = 20
_PARTITIONS: Final = 50
_ALL: Final = _TOPICS * _PARTITIONS
_BATCHES: Final = 6
_RECORDS: Final = 40
_VALUE: Final = b'{"order": 4711, "customer": "a name of some length", "amount": 12.34, "items": 3}'
_ROUNDS: Final = 8
_WARM_UP: Final = 2
_TIMEOUT_S: Final = 60.0

_END: Final = LatestOffset(_BATCHES * _RECORDS, 0.0)

Times = dict[TopicPartition, int]
Step = Callable[[dict[TopicPartition, int]], Awaitable[Times]]


@dataclass
class _Costs(Costs):
    kib: list[float] = field(default_factory=list)
    """Received in each round."""


class _Received:
    """Counts the bytes of every answer that comes on a connection of aiokafka's."""

    def __init__(self) -> None:
        self.bytes = 0

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        taken: Any = AIOKafkaConnection._handle_frame

        def handle_frame(connection: Any, answer: bytes) -> None:
            self.bytes += len(answer)
            taken(connection, answer)

        with patch.object(AIOKafkaConnection, "_handle_frame", handle_frame):
            yield


def run() -> list[Row]:
    """Rows for positions at the beginning of a batch, in the midst of one, and for the lookup."""
    quiet_client_logs()
    with LocalKafka(properties={"log.index.size.max.bytes": "65536"}) as broker:
        say(f"record_times: {_ALL:,} partitions with {_BATCHES * _RECORDS} records each")
        topics = [TopicSpec(_topic(n), _PARTITIONS, 1) for n in range(_TOPICS)]
        asyncio.run(create_topics(broker.bootstrap_servers, topics))
        asyncio.run(_write(broker.bootstrap_servers))
        return asyncio.run(_compare(broker.bootstrap_servers))


async def _compare(servers: str) -> list[Row]:
    rows = []
    received = _Received()
    pool = BrokerPool(ClusterAccess(servers), _TIMEOUT_S)
    cluster: Any = _OneBroker(pool)
    # Not held back: what is measured is what it takes.
    budget = ByteBudget(time.monotonic(), burst_bytes=1 << 40)
    sampler = Sampler(cluster, RecordTimeCounts(), budget)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none")
    await consumer.start()
    try:
        async with received.counting():
            for what, first in (("at a batch's beginning", 0), ("within a batch", _RECORDS // 2)):
                say(f"record_times: {what}")
                ours_step = _ours(sampler, cluster.offsets)
                ours, theirs = await _in_turn(ours_step, _by_consumer(consumer), first, received)
                what = f"{_ALL:,} record times, {what}"
                against = "aiokafka's consumer"
                rows += [
                    at_most(f"{what}: time", ours.wall_ms, against, theirs.wall_ms, REACH),
                    at_most(f"{what}: CPU", ours.cpu_ms, against, theirs.cpu_ms, REACH),
                    Row(
                        *(f"{what}: read", f"{median(ours.kib):,.0f} KiB"),
                        *(f"{median(theirs.kib):,.0f} KiB, {against}",),
                        times(median(ours.kib) / median(theirs.kib)),
                    ),
                    Row(
                        f"{what}: stall (CPU)",
                        ms(ours.stall_ms),
                        f"{ms(theirs.stall_ms)}, {against}",
                    ),
                ]
            rows += await _lookups(pool.connections()[0])
    finally:
        await consumer.stop()
        await sampler.aclose()
        await pool.aclose()
    return rows


class _OneBroker:
    """A cluster whose partitions are all led by one broker."""

    def __init__(self, pool: BrokerPool) -> None:
        self.offsets = {_topic(number): TopicOffsets(described_s=0.0) for number in range(_TOPICS)}
        self.pool = pool

    def leader(self, topic: str, partition: int) -> Address | None:
        return self.pool.connections()[0].address


def _ours(sampler: Sampler, offsets: dict[str, TopicOffsets]) -> Step:

    async def sample(positions: dict[TopicPartition, int]) -> Times:
        for topic in offsets.values():
            topic.record_times.clear()
        sampler._postponed = Postponed()
        for partition, position in positions.items():
            sampler.request(Lagging(partition, "read_uncommitted", position, _END, None))
        (leader,) = sampler._leaders.values()
        if leader.task is not None:
            await asyncio.wait_for(leader.task, _TIMEOUT_S)
        times = {
            TopicPartition(name, number): sampled.timestamp_ms
            for name, topic in offsets.items()
            for number, sampled in topic.record_times.items()
        }
        if len(times) < _ALL:
            raise RuntimeError("not all are sampled")
        return times

    return sample


def _by_consumer(consumer: AIOKafkaConsumer) -> Step:
    async def read(positions: dict[TopicPartition, int]) -> Times:
        consumer.assign(list(positions))
        for partition, position in positions.items():
            consumer.seek(partition, position)
        return {partition: (await consumer.getone(partition)).timestamp for partition in positions}

    return read


async def _in_turn(
    ours: Step, theirs: Step, first: int, received: _Received
) -> tuple[_Costs, _Costs]:
    costs = {ours: _Costs(), theirs: _Costs()}
    for number in range(_WARM_UP + _ROUNDS):
        # A position of its own in each round: nobody has seen it before.
        offset = first + _RECORDS * (number % (_BATCHES - 1))
        positions = {
            TopicPartition(_topic(topic), partition): offset
            for topic in range(_TOPICS)
            for partition in range(_PARTITIONS)
        }
        answers = []
        for step in (ours, theirs) if number % 2 else (theirs, ours):
            taken = await _measured(step, positions, received, costs[step])
            answers.append(taken)
        if answers[0] != answers[1]:
            raise RuntimeError("both must find the same times")
        if number == _WARM_UP - 1:
            costs = {step: _Costs() for step in costs}
    return costs[ours], costs[theirs]


async def _measured(
    step: Step, positions: dict[TopicPartition, int], received: _Received, costs: _Costs
) -> Times:
    before = received.bytes
    async with longest_stall() as stall:
        with costs.timed():
            found = await step(positions)
    costs.kib.append((received.bytes - before) / 1024)
    costs.stall_ms.append(stall.longest_s * 1e3)
    return found


async def _lookups(connection: BrokerConnection) -> list[Row]:
    """Where the logs ended at earlier times: what is asked once after a start."""
    wanted = [
        Lagging(TopicPartition(_topic(topic), partition), "read_uncommitted", 0, _END, None)
        for topic in range(_TOPICS)
        for partition in range(_PARTITIONS)
    ]
    costs = Costs()
    for _ in range(_ROUNDS):
        with costs.timed():
            await look_up(connection, "read_uncommitted", wanted, epoch_ms())
    what = f"{_ALL:,} partitions, earlier ends by time"
    return [Row(f"{what}: time", ms(costs.wall_ms), ""), Row(f"{what}: CPU", ms(costs.cpu_ms), "")]


async def _write(servers: str) -> None:
    """The same to every partition: batches half an hour apart, their records a second."""
    began_ms = epoch_ms() - _BATCHES * 1_800_000
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for number in range(_BATCHES):
            for topic in range(_TOPICS):
                sent = []
                for partition in range(_PARTITIONS):
                    batch = producer.create_batch()
                    for record in range(_RECORDS):
                        time_ms = began_ms + number * 1_800_000 + record * 1_000
                        batch.append(key=None, value=_VALUE, timestamp=time_ms)
                    sent.append(
                        await producer.send_batch(batch, _topic(topic), partition=partition)
                    )
                for one in sent:
                    await one


def _topic(number: int) -> str:
    return f"sampled-{number:02d}"
