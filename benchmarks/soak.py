"""Whether the memory of `sparklag serve` stays flat under a constant load: 30 minutes of it.

    python -m benchmarks.soak --minutes 30

Queries complete batches, restart and are replaced by others; groups commit; the page, the REST
interface and the metrics are requested; live streams are read, left and not read; batches are
recorded in a store and mirrored to groups. What is kept for a time is kept for less than the first
third of the run, which is the warm-up. Of the rest, the memory without that of files, which the
system takes back as it likes, is flat where

- the median of the last third is less than 2 % above that of the second third, and
- the slope through the medians of ten equal parts is at most 1 MB in ten minutes, or its confidence
  interval of 95 % has 0 in it or is below it;

and open files and tasks, which come and go with readers, are at most a tenth more than in the
second third. Else the exit code is 1. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import linear_regression, mean, median
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.comparison import Row, print_table, say
from benchmarks.large_cluster import create_topics
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from benchmarks.simulated_drivers import report
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import Batch, Observation, SourcePosition
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka

MINUTES: Final = 30.0
GROWTH_BUDGET: Final = 0.02
SLOPE_BUDGET_MB: Final = 1.0
"""In ten minutes."""
COUNT_BUDGET: Final = 0.1

_QUERIES: Final = 20
_GROUPS: Final = 5
_PARTITIONS: Final = 10
_READERS: Final = 10
_SAMPLE_S: Final = 5.0
_REQUEST_S: Final = 5.0
_VISIT_S: Final = 5.0
_REPLACE_S: Final = 15.0
_UNREAD_S: Final = 60.0
_REPORT_SAMPLES: Final = 12
_PARTS: Final = 10
_T_QUANTILE: Final = 2.306
"""Of Student's distribution: 97.5 %, ten parts less the two values of a line."""
# Shorter than the warm-up, so that nothing fills up after it.
_SETTINGS: Final = {
    "SPARKLAG_KEEP_S": "120",
    "SPARKLAG_HISTORY__KEEP_S": "300",
    "SPARKLAG_STORE__KEEP_BATCHES": "100",
    "SPARKLAG_LIVE__RESUME_MB": "1",
    "SPARKLAG_MIRROR__QUERIES": ".*",
    "SPARKLAG_GROUPS__ALLOW": "soak-.*",
    "SPARKLAG_METRICS__COMPAT": '["kafka-lag-exporter", "kafka_exporter"]',
}


def run(minutes: float = MINUTES) -> list[Row]:
    """Rows of what is held, and the verdict."""
    quiet_client_logs()
    with tempfile.TemporaryDirectory() as folder, LocalKafka() as kafka:
        servers = kafka.bootstrap_servers
        asyncio.run(create_topics(servers, [_topic(n) for n in range(_QUERIES)], _PARTITIONS))
        environment = {**_SETTINGS, "SPARKLAG_STORE__URL": f"sqlite:///{folder}/offsets.db"}
        with service_process(
            servers, publish_interval_s=1, environment=environment, watched=True
        ) as service:
            wait_for(service.health)
            return asyncio.run(_soak(servers, service, minutes))


@dataclass(frozen=True)
class _Sample:
    at_s: float
    held_mb: float
    rss_mb: float
    pss_mb: float
    files: int
    tasks: int
    blocks: int
    objects: int
    cpu_s: float


async def _soak(servers: str, service: ServiceProcess, minutes: float) -> list[Row]:
    """Load it and take samples meanwhile."""
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
        load = asyncio.gather(
            _report_batches(producer),
            _commit(servers),
            _every(_REQUEST_S, lambda: asyncio.to_thread(_request_all, service)),
            *(_read_stream(service.url) for _ in range(_READERS)),
            _every(_VISIT_S, lambda: _read_stream(service.url, _VISIT_S / 2)),
            _every(0, lambda: _read_stream(service.url, _UNREAD_S, unread=True)),
        )
        sampling = asyncio.ensure_future(_sample(service, minutes * 60))
        try:
            # The load never ends, but may fail.
            await asyncio.wait((load, sampling), return_when=asyncio.FIRST_COMPLETED)
            if load.done():
                await load
            samples = await sampling
        finally:
            sampling.cancel()
            load.cancel()
            await asyncio.gather(load, sampling, return_exceptions=True)
    return [*_rows(samples), *_work(service.health()["counters"], minutes)]


async def _sample(service: ServiceProcess, seconds: float) -> list[_Sample]:
    samples: list[_Sample] = []
    began_s = time.monotonic()
    while (now_s := time.monotonic() - began_s) < seconds or len(samples) < 3 * _PARTS:
        try:
            tasks, (blocks, objects) = service.tasks(), service.blocks_and_objects()
        except IndexError:  # It writes its first line after a second.
            await asyncio.sleep(1)
            continue
        sample = _Sample(
            now_s,
            service.anonymous_mb(),
            service.held_mb(),
            service.proportional_mb(),
            service.open_files(),
            tasks,
            blocks,
            objects,
            service.cpu_s(),
        )
        if len(samples) % _REPORT_SAMPLES == 0:
            say(
                f"soak: {now_s / 60:4.1f} min: {sample.held_mb:.1f} MB, RSS {sample.rss_mb:.1f},"
                f" PSS {sample.pss_mb:.1f}, {sample.files} files, {tasks} tasks, {blocks:,} blocks,"
                f" {objects:,} objects, CPU {sample.cpu_s:.0f} s"
            )
        samples.append(sample)
        await asyncio.sleep(_SAMPLE_S)
    return samples


# The load


async def _report_batches(producer: AIOKafkaProducer) -> None:
    """Every topic gets a record in each partition each second, and half of the queries complete a
    batch. In turn a query starts again, or another one takes its place."""
    queries = [_Query(number) for number in range(_QUERIES)]
    replacing = itertools.count()
    began_s = replaced_s = time.monotonic()
    for second in itertools.count(1):
        for query in queries:
            for partition in range(_PARTITIONS):
                await producer.send(query.topic, b"order", partition=partition)
        for query in queries[second % 2 :: 2]:
            # It is behind by some records, more and less.
            await report(producer, query.complete_batch(max(0, second - second % 7)))
        if time.monotonic() >= replaced_s + _REPLACE_S:
            replaced_s += _REPLACE_S
            turn = next(replacing)
            queries[turn % _QUERIES].restart(same_query=bool(turn % 2))
        await asyncio.sleep(max(0.0, began_s + second - time.monotonic()))


class _Query:
    """What its driver reports."""

    def __init__(self, number: int) -> None:
        self._name, self.topic = f"soak-query-{number}", _topic(number)
        self.restart(same_query=False)

    def restart(self, *, same_query: bool) -> None:
        """In a run of its own; from a new checkpoint, where it is not the same query."""
        self._run_id = str(uuid4())
        if not same_query:
            self._query_id, self._batch_id = str(uuid4()), -1

    def complete_batch(self, processed: int) -> Observation:
        self._batch_id += 1
        now_ms = epoch_ms()
        ends = {self.topic: dict.fromkeys(range(_PARTITIONS), processed)}
        return Observation(
            observation_id=str(uuid4()),
            query_id=self._query_id,
            run_id=self._run_id,
            query=self._name,
            cause="progress",
            observed_at=now_ms,
            batch_id=self._batch_id,
            processed_at=now_ms,
            batch=Batch(started_at=now_ms - 500, rows=2 * _PARTITIONS, duration_ms=500),
            sources=[SourcePosition(source=0, processed=ends, topics=[self.topic])],
        )


async def _commit(servers: str) -> None:
    """Every group commits each second."""
    admin = AdminClient({"bootstrap.servers": servers})
    offsets = itertools.count()

    async def commit_all() -> None:
        offset = next(offsets)
        for number in range(_GROUPS):
            places = [TopicPartition(_topic(number), p, offset) for p in range(_PARTITIONS)]
            committed = ConsumerGroupTopicPartitions(f"soak-{number}", places)
            (result,) = admin.alter_consumer_group_offsets([committed]).values()
            await asyncio.wrap_future(result)

    await _every(1, commit_all)


def _request_all(service: ServiceProcess) -> None:
    """As Prometheus, a page and a program do."""
    metrics = gzip.decompress(service.get("/metrics", {"accept-encoding": "gzip"}))
    if b"\nsparklag_partition_lag{" not in metrics:
        return
    lag = json.loads(service.get("/lag"))
    query_id = lag["queries"][0]["query_id"]
    for path in ("/", f"/lag/{query_id}", f"/lag/{query_id}/history", "/health/ready"):
        # It may be forgotten meanwhile.
        with suppress(HTTPError):
            service.get(path)


async def _read_stream(url: str, seconds: float | None = None, *, unread: bool = False) -> None:
    """Follow the live stream, for so long."""
    address = urlsplit(url)
    # What is not read stays in the sockets, and then in the service.
    reader, writer = await asyncio.open_connection(
        address.hostname, address.port, limit=1024 if unread else 65_536
    )
    try:
        writer.write(b"GET /stream HTTP/1.1\r\nHost: sparklag\r\n\r\n")
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(3600) if unread else _read(reader), seconds)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass
    raise RuntimeError("the service ended a live stream")


async def _every(seconds: float, do: Callable[[], Awaitable[None]]) -> None:
    while True:
        began_s = time.monotonic()
        await do()
        await asyncio.sleep(max(0.0, began_s + seconds - time.monotonic()))


def _topic(number: int) -> str:
    return f"soak-orders-{number:02d}"


# The verdict


def _rows(samples: Sequence[_Sample]) -> Iterator[Row]:
    third = len(samples) // 3
    second, last, measured = samples[third : 2 * third], samples[-third:], samples[third:]
    minutes = (measured[-1].at_s - measured[0].at_s) / 60
    what = f"soak, {samples[-1].at_s / 60:.0f} minutes of `sparklag serve`"

    before_mb, held_mb = (median(s.held_mb for s in part) for part in (second, last))
    yield Row(
        f"{what}: memory (RssAnon), median of the last third",
        f"{held_mb:.1f} MB",
        f"{before_mb:.1f} MB, of the second",
        f"{held_mb / before_mb - 1:+.2%}",
        f"< +{GROWTH_BUDGET:.0%}",
        held_mb < (1 + GROWTH_BUDGET) * before_mb,
    )
    slope, margin = _slope([(s.at_s / 600, s.held_mb) for s in measured])
    yield Row(
        f"  growth in the last {minutes:.0f} minutes",
        f"{slope * minutes / 10:+.2f} MB; {100 * 6 * slope / held_mb:+.1f} % an hour",
        f"{slope:+.2f} ± {margin:.2f} MB in ten minutes",
        "",
        f"≤ {SLOPE_BUDGET_MB:g}, or 0 within",
        slope <= SLOPE_BUDGET_MB or slope - margin <= 0,
    )
    for kind, name in (("resident", "rss_mb"), ("proportional", "pss_mb")):
        before, held = (median(getattr(s, name) for s in part) for part in (second, last))
        yield Row(f"  {kind} set size, with files", f"{held:.1f} MB", f"{before:.1f} MB")
    for kind in ("files", "tasks", "blocks", "objects"):
        before, held = (median(getattr(s, kind) for s in part) for part in (second, last))
        judged = kind in ("files", "tasks")
        yield Row(
            f"  {kind}",
            f"{held:,.0f}",
            f"{before:,.0f}",
            f"{held / before - 1:+.2%}",
            f"≤ +{COUNT_BUDGET:.0%}" if judged else "",
            held <= (1 + COUNT_BUDGET) * before if judged else None,
        )
    cpu = (measured[-1].cpu_s - measured[0].cpu_s) / (60 * minutes)
    yield Row("  CPU of the service, of a core", f"{cpu:.1%}", "")


def _slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Through the medians of ten parts, and half of its confidence interval: single samples hang
    together too much."""
    size = len(points) // _PARTS
    parts = [points[-(n + 1) * size : len(points) - n * size] for n in range(_PARTS)]
    x = [median(at for at, _ in part) for part in parts]
    y = [median(value for _, value in part) for part in parts]
    slope, intercept = linear_regression(x, y)
    residual = sum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    spread = sum((a - mean(x)) ** 2 for a in x)
    return slope, _T_QUANTILE * (residual / (_PARTS - 2) / spread) ** 0.5


def _work(counters: Mapping[str, int], minutes: float) -> Iterator[Row]:
    """That it was under load: else flat memory shows nothing."""
    least = 60 * minutes * _QUERIES / 4  # Half of what is sent: the machine may be busy.
    for name in ("observations", "published", "batches_recorded", "mirror_commits"):
        done = counters[name]
        reach = least if name != "mirror_commits" else 1
        yield Row(f"  {name}", f"{done:,}", "", "", f"≥ {reach:,.0f}", done >= reach)
    failures = {name: n for name, n in counters.items() if n and "fail" in name}
    yield Row("  failures", str(failures or "none"), "", "", "none", not failures)


def main() -> int:
    """1 where it is not flat."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"default: {MINUTES:g}")
    rows = run(parser.parse_args().minutes)
    print_table(rows)
    flat = all(row.reached is not False for row in rows)
    say(f"soak: {'flat' if flat else 'NOT flat'}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
