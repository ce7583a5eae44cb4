"""The memory of an instance that is flooded with made-up queries, against what deploy/ gives it.

Six times as many queries as `limits.queries` take are written to `processed-offsets`, so that every
default limit is reached; then as many passes are waited for as fill what is kept of each query.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Final
from uuid import uuid4

from aiokafka import AIOKafkaProducer

from benchmarks.comparison import Row, say, times
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from sparklag_jobs.demo.streams import create_topics
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import Observation, Settings, SourcePosition, encode
from sparklag_schemas.messages.topics import TopicSpec, key_of, own_topics
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka

_MANIFEST: Final = Path(__file__).parents[1] / "deploy" / "kubernetes" / "sparklag.yaml"
_TOPIC: Final = "orders"
_FLOOD: Final = 6
_WATCHED_S: Final = 90.0


def run() -> list[Row]:
    """One row: the most memory it held."""
    quiet_client_logs()
    limits = Settings().limits
    partitions = limits.watched_partitions // limits.queries
    with LocalKafka() as broker:
        queries = _FLOOD * limits.queries
        say(f"limits_memory: writing {queries:,} queries of {partitions} partitions")
        asyncio.run(_flood(broker.bootstrap_servers, queries, partitions))
        with service_process(broker.bootstrap_servers, publish_interval_s=1) as service:
            wait_for(lambda: _refused(service, queries - limits.queries))
            say(f"limits_memory: watching it for {_WATCHED_S:g} s")
            time.sleep(_WATCHED_S)
            peak_mb = service.peak_mb()
    given_mb = _given_mb()
    return [
        Row(
            f"memory, {queries:,} made-up queries",
            f"{peak_mb:.0f} MiB",
            f"{given_mb} MiB in deploy/kubernetes",
            times(peak_mb / given_mb),
            reach="≤ 1×",
            reached=peak_mb <= given_mb,
        )
    ]


def _given_mb() -> int:
    found = re.findall(r"memory: (\d+)Mi", _MANIFEST.read_text())
    return max(map(int, found))


def _refused(service: ServiceProcess, count: int) -> bool:
    found = re.search(
        r'^sparklag_refused_messages_total\{reason="limit",topic="processed-offsets"\} (\S+)$',
        service.get("/metrics").decode(),
        re.M,
    )
    return found is not None and float(found[1]) >= count


async def _flood(bootstrap_servers: str, queries: int, partitions: int) -> None:
    settings = Settings(bootstrap_servers=bootstrap_servers)
    orders = TopicSpec(_TOPIC, partitions, None)
    topics = [*own_topics(settings), orders]
    await create_topics(bootstrap_servers, topics)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        for _ in range(queries):
            query_id = str(uuid4())
            observation = _observation(query_id, partitions)
            await producer.send(settings.offsets_topic, encode(observation), key=key_of(query_id))
        await producer.flush()


def _observation(query_id: str, partitions: int) -> Observation:
    return Observation(
        query_id=query_id,
        run_id=str(uuid4()),
        observed_at=epoch_ms(),
        observation_id=str(uuid4()),
        cause="progress",
        query=f"made-up-{query_id}",
        batch_id=1,
        sources=[
            SourcePosition(
                source=0,
                isolation_level="read_uncommitted",
                processed={_TOPIC: dict.fromkeys(range(partitions), 0)},
            )
        ],
    )
