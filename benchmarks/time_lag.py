"""How far the reported time lag is from the true one: a real query, records of known times.

The query falls behind as records come in waves, in bursts and hardly at all, and then catches up.
Two services measure it: one may read the records, the other only sees where logs end. The truth of
an event is how long before `measured_at` the first unprocessed record was written, as it says.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition
from pyspark.sql import SparkSession

from benchmarks.comparison import Row, say
from benchmarks.quiet_spark import quiet_spark
from benchmarks.service_process import service_process, wait_for
from sparklag_jobs.demo.streams import create_topics
from sparklag_listener import observe
from sparklag_schemas import LagEvent, TimeLagMethod, decode_lag_event
from sparklag_schemas.messages.topics import TopicSpec
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka

TOPIC: Final = "orders"
REFRESH_S: Final = 1.0
SHARE: Final = 0.05
"""Of the age itself."""
_PARTITIONS: Final = 4
_BEHIND_S: Final = 60.0
_CATCHING_UP_S: Final = 30.0
_TICK_S: Final = 0.05
_MAX_PER_BATCH: Final = 200
_BATCH_S: Final = 2.0

Written = dict[int, list[int]]
"""The timestamp of each record, epoch milliseconds, by partition and offset."""


def run() -> list[Row]:
    """A row for each method."""
    with LocalKafka() as broker:
        servers = broker.bootstrap_servers
        specs = [TopicSpec(TOPIC, _PARTITIONS, 1)]
        asyncio.run(create_topics(servers, specs))
        with (
            _service(servers, "sampled", sample=True),
            _service(servers, "interpolated", sample=False),
            quiet_spark() as spark,
            observe(spark, servers),
            _query(spark, servers),
        ):
            say(f"time_lag: a query falls behind for {_BEHIND_S:g} s, and catches up")
            written = asyncio.run(_write(servers))
            time.sleep(REFRESH_S)
        reach: dict[TimeLagMethod, float] = {"sampled": 1.0, "interpolated": REFRESH_S}
        return [
            _row(method, allowed_s, written, asyncio.run(_events(servers, method)))
            for method, allowed_s in reach.items()
        ]


@dataclass(frozen=True)
class _ReportedAge:
    """The age of a partition, as an event reports it, and as it was."""

    reported_s: float
    true_s: float

    @property
    def error_s(self) -> float:
        return abs(self.reported_s - self.true_s)

    def is_within(self, allowed_s: float) -> bool:
        return self.error_s <= max(allowed_s, SHARE * self.true_s)


def _row(
    method: TimeLagMethod, allowed_s: float, written: Written, events: Sequence[LagEvent]
) -> Row:
    ages = list(_reported_ages(method, written, events))
    if len(ages) < 2:
        raise RuntimeError(f"{len(events)} events, {len(ages)} ages by {method}")
    within = sum(age.is_within(allowed_s) for age in ages)
    errors = [age.error_s for age in ages]
    oldest_s = max(age.true_s for age in ages)
    middle_s, p99_s = (quantiles(errors, n=100)[index] for index in (49, 98))
    return Row(
        f"time lag, {method}: error of {len(ages):,} ages up to {oldest_s:.0f} s",
        f"{middle_s:.2f} s, p99 {p99_s:.2f} s, worst {max(errors):.2f} s",
        "the records' own times",
        f"{within / len(ages):.1%} within",
        f"{'1 s or' if method == 'sampled' else 'a refresh or'} {SHARE:.0%}",
        within == len(ages),
    )


def _reported_ages(
    method: TimeLagMethod, written: Written, events: Sequence[LagEvent]
) -> Iterator[_ReportedAge]:
    for event in events:
        for topic in event.topics:
            for partition in topic.partitions:
                at, reported_s = partition.processed_offset, partition.time_lag_s
                if (
                    partition.time_lag_method != method
                    or not partition.lag
                    or at is None
                    or reported_s is None
                ):
                    continue
                yield _ReportedAge(
                    reported_s, (event.measured_at - written[partition.partition][at]) / 1_000
                )


@contextmanager
def _service(servers: str, name: str, *, sample: bool) -> Iterator[None]:
    environment = {
        "SPARKLAG_LAG_TOPIC": name,
        "SPARKLAG_GROUP_ID": name,
        "SPARKLAG_TOPIC_PARTITIONS": "1",
        "SPARKLAG_TIME_LAG__SAMPLE": str(sample).lower(),
        "SPARKLAG_TIME_LAG__SAMPLE_INTERVAL_S": "1",
        "SPARKLAG_REFRESH_INTERVAL_S": str(REFRESH_S),
    }
    with service_process(servers, publish_interval_s=1, environment=environment):
        yield


@contextmanager
def _query(spark: SparkSession, servers: str) -> Iterator[None]:
    """It takes at most so many records in a batch, and its time for it."""
    with tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", _MAX_PER_BATCH)
            .load()
            .writeStream.queryName(TOPIC)
            .foreachBatch(_take_time)
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .start()
        )
        try:
            wait_for(lambda: query.lastProgress if query.isActive else None)
            yield
        finally:
            query.stop()


def _take_time(batch: Any, batch_id: int) -> None:
    batch.count()
    time.sleep(_BATCH_S)


async def _write(servers: str) -> Written:
    """What comes in, with the time at which it does."""
    written: Written = {number: [] for number in range(_PARTITIONS)}
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=0) as producer:
        began_s = time.monotonic()
        while (elapsed_s := time.monotonic() - began_s) < _BEHIND_S + _CATCHING_UP_S:
            share = 1.0 if elapsed_s < _BEHIND_S else 0.1
            sending, places = [], []
            for number, count in _records_per_tick(elapsed_s, share).items():
                for _ in range(count):
                    now_ms = epoch_ms()
                    sending.append(
                        await producer.send(TOPIC, b"x", partition=number, timestamp_ms=now_ms)
                    )
                    places.append((number, len(written[number])))
                    written[number].append(now_ms)
            sent = await asyncio.gather(*sending)
            if [(record.partition, record.offset) for record in sent] != places:
                raise RuntimeError("the records are not in the order in which they were sent")
            await asyncio.sleep(_TICK_S)
    return written


def _records_per_tick(elapsed_s: float, share: float) -> Mapping[int, int]:
    """Records for each partition in one tick: steadily, in waves, in bursts, and hardly any."""
    wave = 1 + math.sin(elapsed_s / 3)
    is_burst = elapsed_s % 5 < _TICK_S
    return {
        0: round(3 * share),
        1: round(4 * wave * share),
        2: round(100 * share) if is_burst else 0,
        3: 1 if elapsed_s % 7 < _TICK_S else 0,
    }


async def _events(servers: str, topic: str) -> list[LagEvent]:
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        events = []
        while await consumer.position(partition) < end:
            record = await consumer.getone(partition)
            if record.value is not None:
                events.append(decode_lag_event(record.value))
        return events
