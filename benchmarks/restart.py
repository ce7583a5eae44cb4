"""How soon a restarted instance answers for 1,000 queries.

`consumer-lag` holds what a minute of them leaves there: an event of each query each second. Then
`sparklag serve` is started, in turn with a bare aiokafka consumer that reads the same records.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Final
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.comparison import Row, say, times
from benchmarks.service_process import service_process, wait_for
from sparklag_jobs.demo.streams import create_topics
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import LagEvent, PartitionLag, Settings, TopicLag, encode
from sparklag_schemas.messages.topics import key_of, own_topics
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka

REACH_S: Final = 4.0
_QUERIES: Final = 1_000
_PARTITIONS: Final = 10
_SECONDS: Final = 60
_ROUNDS: Final = 5


def run() -> list[Row]:
    """A row for the whole restart, and one for its part after the interpreter is up."""
    quiet_client_logs()
    with LocalKafka() as broker:
        say(f"restart: writing {_QUERIES * _SECONDS:,} events")
        size = asyncio.run(_fill(broker.bootstrap_servers))
        restarts: list[_Restart] = []
        bare_s: list[float] = []
        for number in range(_ROUNDS):
            say(f"restart: {number + 1} of {_ROUNDS}")
            restarts.append(_restart(broker.bootstrap_servers))
            bare_s.append(asyncio.run(_read_bare(broker.bootstrap_servers)))
    ready_s = median(restart.ready_s for restart in restarts)
    view_s = median(restart.view_s for restart in restarts)
    read = f"{median(bare_s):.2f} s, reading {size / 1e6:.0f} MB with aiokafka, not decoded"
    return [
        Row(
            f"restart → ready, {_QUERIES:,} queries",
            f"{ready_s:.2f} s",
            "",
            reach=f"≤ {REACH_S:g} s",
            reached=ready_s <= REACH_S,
        ),
        Row(
            "  of it, from the first log line to ready",
            f"{view_s:.2f} s",
            read,
            times(view_s / median(bare_s)),
        ),
    ]


@dataclass(frozen=True)
class _Restart:
    """Seconds from the process's start, and from when it said where it serves."""

    ready_s: float
    view_s: float


def _restart(bootstrap_servers: str) -> _Restart:
    began_s = time.monotonic()
    with service_process(bootstrap_servers, publish_interval_s=1) as service:
        serving_s = time.monotonic()
        wait_for(lambda: service.health()["queries"] == _QUERIES, pause_s=0.02)
        ready_s = time.monotonic()
    return _Restart(ready_s - began_s, ready_s - serving_s)


async def _read_bare(bootstrap_servers: str) -> float:
    began_s = time.monotonic()
    async with AIOKafkaConsumer(
        Settings().lag_topic,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        left = sum((await consumer.end_offsets(consumer.assignment())).values())
        while left > 0:
            batches = await consumer.getmany(timeout_ms=500)
            left -= sum(len(records) for records in batches.values())
    return time.monotonic() - began_s


async def _fill(bootstrap_servers: str) -> int:
    """Write the minute; how many bytes it is."""
    settings = Settings(bootstrap_servers=bootstrap_servers)
    # With the producer's times: by the broker's clock the minute would be of a few seconds.
    by_producer = {"message.timestamp.type": "CreateTime"}
    topics = [
        replace(topic, config={**topic.config, **by_producer}) for topic in own_topics(settings)
    ]
    await create_topics(bootstrap_servers, topics)
    size = 0
    # The newest is of now: queries that were not heard of for long would be forgotten.
    end_ms = epoch_ms()
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, linger_ms=20, compression_type="lz4"
    ) as producer:
        for second in range(_SECONDS):
            at_ms = end_ms - 1000 * (_SECONDS - second)
            sent = []
            for query in range(_QUERIES):
                value = encode(_event(query, at_ms))
                size += len(value)
                key = key_of(_query_id(query))
                sent.append(
                    await producer.send(settings.lag_topic, value, key=key, timestamp_ms=at_ms)
                )
            await asyncio.gather(*sent)
    return size


def _event(query: int, at_ms: int) -> LagEvent:
    return LagEvent(
        event_id=str(uuid4()),
        query_id=_query_id(query),
        run_id=str(uuid4()),
        query=f"query-{query}",
        batch_id=at_ms // 1000,
        cause="progress",
        # An embedded service's: nothing is published while the restart is timed.
        measured_by="embedded",
        status="OK",
        total_lag=10 * _PARTITIONS,
        max_lag=10,
        observed_at=at_ms,
        processed_at=at_ms,
        measured_at=at_ms,
        topics=[
            TopicLag(
                topic=f"topic-{query}",
                source=0,
                total_lag=10 * _PARTITIONS,
                partitions=[
                    PartitionLag(
                        partition=number,
                        processed_offset=at_ms,
                        latest_offset=at_ms + 10,
                        earliest_offset=0,
                        lag=10,
                        status="OK",
                    )
                    for number in range(_PARTITIONS)
                ],
            )
        ],
    )


def _query_id(query: int) -> str:
    return f"00000000-0000-4000-8000-{query:012d}"
