"""The memory of a service of 10,000 partitions while everything changes, all that is optional on.

Every partition gets a record each second, every query completes a batch or every group commits,
every lag is published; the series have other tools' names too and are scraped each second; a reader
follows the live stream, and the history fills. `SPARKLAG_BENCH_SOAK_S` is how long each of the two
runs lasts, 120 by default. Linux only.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Final

from aiokafka import AIOKafkaProducer

from benchmarks import group_offsets
from benchmarks.comparison import Row, say
from benchmarks.costs import Step
from benchmarks.measuring_pass import (
    PARTITIONS_EACH,
    QUERIES,
    TOPICS_EACH,
    measured_cluster,
    measured_observation,
    measured_topic,
)
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from benchmarks.simulated_drivers import report
from sparklag_kafka.access import quiet_client_logs

MEMORY_BUDGET_MB: Final = 120.0
GROWTH_BUDGET_MB: Final = 5.0
_SOAK_S: Final = float(os.environ.get("SPARKLAG_BENCH_SOAK_S", "120"))
_ENVIRONMENT: Final = {"SPARKLAG_METRICS__COMPAT": '["kafka-lag-exporter", "kafka_exporter"]'}


def run() -> list[Row]:
    """Rows for queries and for consumer groups."""
    quiet_client_logs()
    with measured_cluster(QUERIES) as servers:
        topics = [measured_topic(number) for number in range(QUERIES * TOPICS_EACH)]
        rows = _rows("queries", _soak(servers, {}, topics, PARTITIONS_EACH, _batches(servers)))
    with group_offsets.grouped_cluster() as servers:
        groups = {"SPARKLAG_GROUPS__ALLOW": f"{group_offsets.group_name(0)[:-2]}.*"}
        topics = [group_offsets.topic_name(number) for number in range(group_offsets.GROUPS)]
        committer = group_offsets.Committer(servers)
        rows += _rows(
            "groups", _soak(servers, groups, topics, group_offsets.PARTITIONS, committer.ready())
        )
    return rows


@dataclass
class _Samples:
    """Of each second; memory in megabytes."""

    before_mb: float
    held_mb: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    peak_mb: float = 0.0


def _soak(
    servers: str,
    environment: dict[str, str],
    topics: list[str],
    partitions: int,
    committing: AbstractAsyncContextManager[Step],
) -> _Samples:
    with service_process(
        servers,
        publish_interval_s=1,
        environment={**_ENVIRONMENT, **environment},
        watched=True,
    ) as service:
        wait_for(service.health)
        samples = _Samples(service.held_mb())
        with _live_reader(service):
            asyncio.run(
                _change_everything(servers, service, samples, topics, partitions, committing)
            )
        samples.peak_mb = service.peak_mb()
        say(f"service_memory: {samples.peak_mb:.0f} MB, {len(samples.held_mb)} samples")
    return samples


async def _change_everything(
    servers: str,
    service: ServiceProcess,
    samples: _Samples,
    topics: list[str],
    partitions: int,
    committing: AbstractAsyncContextManager[Step],
) -> None:
    expected = len(topics) * partitions
    async with committing as commit_all, AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await commit_all()
        await asyncio.to_thread(wait_for, lambda: _partition_series(service) >= expected)
        say(f"service_memory: {expected:,} partitions, {_SOAK_S:g} s")
        began_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + _SOAK_S:
            for topic in topics:
                for partition in range(partitions):
                    await producer.send(topic, b"order", partition=partition)
            await producer.flush()
            await commit_all()
            await asyncio.to_thread(_partition_series, service)
            samples.held_mb.append(service.held_mb())
            samples.descriptors.append(service.open_files())
            samples.tasks.append(service.tasks())
            await asyncio.sleep(max(0.0, now_s + 1 - time.monotonic()))


@asynccontextmanager
async def _batches(servers: str) -> AsyncIterator[Step]:
    """Every query completes a batch."""
    batches = count()
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:

        async def complete_all() -> None:
            processed = next(batches)
            for query in range(QUERIES):
                await report(producer, measured_observation(query, processed))
            await producer.flush()

        yield complete_all


@contextmanager
def _live_reader(service: ServiceProcess) -> Iterator[None]:
    ended = threading.Event()

    def read() -> None:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"{service.url}/stream", timeout=60) as events,
        ):
            while not ended.is_set() and events.read(65_536):
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()


def _partition_series(service: ServiceProcess) -> int:
    """How many partitions a scrape shows the lag of. Compressed, as Prometheus has it."""
    scrape = service.get("/metrics", {"accept-encoding": "gzip"})
    return gzip.decompress(scrape).count(b"\nsparklag_partition_lag{")


def _rows(what: str, samples: _Samples) -> list[Row]:
    third = len(samples.held_mb) // 3

    def thirds(of: Sequence[float]) -> tuple[float, float]:
        """Medians of the second and the last."""
        return median(of[third : 2 * third]), median(of[-third:])

    earlier_mb, later_mb = thirds(samples.held_mb)
    return [
        Row(
            f"service, 10,000 partitions of {what}, all of them change: peak memory",
            f"{samples.peak_mb:.0f} MB",
            f"{samples.before_mb:.0f} MB, before the first",
            reach=f"≤ {MEMORY_BUDGET_MB:g} MB",
            reached=samples.peak_mb <= MEMORY_BUDGET_MB,
        ),
        Row(
            f"  held in the last third of {_SOAK_S:g} s",
            f"{later_mb:.0f} MB",
            f"{earlier_mb:.0f} MB, in the second",
            reach=f"≤ +{GROWTH_BUDGET_MB:g} MB",
            reached=later_mb - earlier_mb <= GROWTH_BUDGET_MB,
        ),
        *(
            Row(f"  {kind} then", f"{later:.0f}", f"{earlier:.0f}", "", "equal", later <= earlier)
            for kind, (earlier, later) in (
                ("open files", thirds(samples.descriptors)),
                ("tasks", thirds(samples.tasks)),
            )
        ),
    ]
