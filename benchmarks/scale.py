"""What 100,000 partitions of 10,000 queries take, of one instance and of three, and how that grows.

Simulated drivers report the queries, and a real Spark query is among them, whose lag has to be
right. Each figure is taken at a tenth of the size first: it may grow tenfold. A run takes most of
an hour; `BENCH_SCALE_QUERIES` is the number of queries, 10,000 by default.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from benchmarks.comparison import Row, say, times
from benchmarks.large_cluster import LargeCluster, create_topics, large_cluster
from benchmarks.lasting_batch import LastingBatch, lasting_batch
from benchmarks.measured_times import FirstMeasured
from benchmarks.quiet_spark import quiet_spark
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from benchmarks.simulated_drivers import (
    HEARTBEAT_S,
    PARTITIONS,
    SimulatedDrivers,
    query_id,
    topic_name,
    write_records,
)
from sparklag_kafka.access import quiet_client_logs

STALL_BUDGET_MS: Final = 50.0
_GROWTH: Final = 10
_INSTANCES: Final = (1, 3)
_SETTLED_S: Final = 15.0
_WATCHED_S: Final = HEARTBEAT_S
_REFRESH_S: Final = 5.0
"""As the sizing guide recommends for so many queries, like the heartbeat."""
_SHOWN_S: Final = 900.0
_REQUESTS: Final = 5
_OWN_PARTITIONS: Final = 200


def run() -> list[Row]:
    """Rows for each number of instances."""
    quiet_client_logs()
    queries = int(os.environ.get("BENCH_SCALE_QUERIES", "10000"))
    rows: list[Row] = []
    with large_cluster(queries * PARTITIONS + _OWN_PARTITIONS) as cluster:
        say(f"scale: {queries * PARTITIONS:,} partitions on {len(cluster.directories)} brokers")
        names = [topic_name(number) for number in range(queries)]
        asyncio.run(create_topics(cluster.bootstrap_servers, names, PARTITIONS))
        asyncio.run(write_records(cluster.bootstrap_servers, queries))
        with quiet_spark() as spark, lasting_batch(spark, cluster.bootstrap_servers) as real:
            for instances in _INSTANCES:
                fewer = _measure(cluster, queries // _GROWTH, instances, real)
                more = _measure(cluster, queries, instances, real)
                rows += _rows(fewer, more)
    return rows


@dataclass
class _Figures:
    """Of so many instances with so many queries, in seconds, milliseconds, megabytes (10⁶) and
    percent of a core."""

    queries: int
    instances: int
    grown: dict[str, tuple[float, str]] = field(default_factory=dict)
    """What may grow with the queries: value and unit."""
    stalls: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Milliseconds: the longest stall, and of it garbage collection."""
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str) -> None:
        of_what = f"{self.queries:,} queries, {self.instances} instances"
        say(f"scale: {of_what}: {what} {value:.4g} {unit}")
        self.grown[what] = (value, unit)


def _measure(cluster: LargeCluster, queries: int, instances: int, real: LastingBatch) -> _Figures:
    figures = _Figures(queries, instances)
    name = f"scale-{queries}-{instances}-{uuid4().hex[:4]}"
    offsets_topic, lag_topic = f"{name}-offsets", f"{name}-lag"
    environment = {
        "SPARKLAG_OFFSETS_TOPIC": offsets_topic,
        "SPARKLAG_LAG_TOPIC": lag_topic,
        "SPARKLAG_GROUP_ID": name,
        "SPARKLAG_TOPIC_REPLICATION_FACTOR": "1",
        "SPARKLAG_LIMITS__QUERIES": str(2 * queries),
        "SPARKLAG_LIMITS__WATCHED_PARTITIONS": str(2 * queries * PARTITIONS),
        "SPARKLAG_LIMITS__VIEW_MB": "256",
        "SPARKLAG_METRICS__QUERIES": "owned",
        "SPARKLAG_REFRESH_INTERVAL_S": str(_REFRESH_S),
        "SPARKLAG_HEARTBEAT_S": str(HEARTBEAT_S),
    }
    drivers = SimulatedDrivers(cluster.bootstrap_servers, offsets_topic, queries)
    with ExitStack() as stack:

        def start() -> ServiceProcess:
            return stack.enter_context(
                service_process(
                    cluster.bootstrap_servers,
                    publish_interval_s=1,
                    environment=environment,
                    watched=True,
                )
            )

        # The first instance creates the topics.
        began_s = time.monotonic()
        services = [start()]
        wait_for(services[0].health)
        figures.add("start → ready, no query yet", time.monotonic() - began_s, "s")
        services += [start() for _ in range(instances - 1)]
        wait_for(lambda: [service.health() for service in services])
        began_s = time.monotonic()
        stack.enter_context(drivers.reporting())
        stack.enter_context(real.observed(cluster.bootstrap_servers, offsets_topic))
        _until_shown(services, queries + 1)
        figures.add("all queries reported → shown by all", time.monotonic() - began_s, "s")
        time.sleep(_SETTLED_S)
        for what, batches in (("nothing changes", False), ("batches complete", True)):
            drivers.batches = batches
            time.sleep(_SETTLED_S)
            _watch(figures, what, cluster, lag_topic, services)
        figures.wrong += [wrong for s in services if (wrong := real.wrong_lag(s))]
        _request(figures, services[0], queries)
        if instances > 1:
            services[0] = _hand_over(figures, cluster, lag_topic, services, start)
        else:
            os.kill(services[0].pid, signal.SIGTERM)
            wait_for(lambda: _has_ended(services[0].pid))
            began_s = time.monotonic()
            services[0] = start()
            wait_for(services[0].health)
            _until_shown(services, queries + 1)
            figures.add("restart → ready, all queries shown", time.monotonic() - began_s, "s")
        figures.wrong += [wrong for s in services if (wrong := real.wrong_lag(s))]
    return figures


def _watch(
    figures: _Figures,
    what: str,
    cluster: LargeCluster,
    lag_topic: str,
    services: list[ServiceProcess],
) -> None:
    """Watch them for a while."""
    began, began_s, ticks = time.time(), time.monotonic(), _machine_ticks()
    cpu_s, size = [service.cpu_s() for service in services], cluster.log_bytes(lag_topic)
    time.sleep(_WATCHED_S)
    took_s = time.monotonic() - began_s
    shares = [
        100 * (service.cpu_s() - before_s) / took_s
        for service, before_s in zip(services, cpu_s, strict=True)
    ]
    figures.add(f"{what}: CPU of all", sum(shares), "%")
    figures.add(f"{what}: CPU of one, at most", max(shares), "%")
    busy, total = (after - before for after, before in zip(_machine_ticks(), ticks, strict=True))
    figures.add(f"{what}: all cores, brokers and drivers too", 100 * busy / total, "%")
    figures.add(
        f"{what}: consumer-lag", (cluster.log_bytes(lag_topic) - size) / took_s / 1e3, "KB/s"
    )
    held = [service.held_mb() for service in services]
    figures.add(f"{what}: memory of one, at most", max(held), "MB")
    stalls = [service.longest_stall_ms(began, time.time()) for service in services]
    figures.stalls[what] = (max(stall for stall, _ in stalls), max(gc for _, gc in stalls))
    say(f"scale: {what}: stall, of it collections {figures.stalls[what]} ms")


def _machine_ticks() -> tuple[int, int]:
    """Of all cores since the machine began: busy ones, and all."""
    user, nice, system, idle, waiting, *rest = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    busy = sum([user, nice, system, *rest])
    return busy, busy + idle + waiting


def _request(figures: _Figures, service: ServiceProcess, queries: int) -> None:
    """What REST answers with, and how soon."""

    def timed(what: str, read: Callable[[], int]) -> None:
        samples, size = [], 0
        for _ in range(_REQUESTS):
            began_s = time.perf_counter()
            size = read()
            samples.append(time.perf_counter() - began_s)
        figures.add(f"{what}: time", sorted(samples)[_REQUESTS // 2] * 1e3, "ms")
        figures.add(f"{what}: size", size / 1e6, "MB")

    def all_pages() -> int:
        size, shown, cursor = 0, 0, ""
        while cursor is not None:
            body = service.get(f"/lag?limit=1000{cursor and f'&cursor={cursor}'}")
            page = msgspec.json.decode(body)
            size, shown, cursor = (
                size + len(body),
                shown + len(page["queries"]),
                page["next_cursor"],
            )
        if shown != queries + 1:
            figures.wrong.append(f"{shown} queries are listed, of {queries + 1}")
        return size

    def stream_opening() -> int:
        size = shown = 0
        with urllib.request.urlopen(f"{service.url}/stream?summary=true", timeout=120) as answer:
            while shown <= queries:
                line = answer.readline()
                size, shown = size + len(line), shown + line.startswith(b"data:")
        return size

    timed("GET /lag, first page", lambda: len(service.get("/lag")))
    timed("GET /lag, all pages of 1,000", all_pages)
    timed("GET /lag/{query}", lambda: len(service.get(f"/lag/{query_id(queries // 2)}")))
    history = f"/lag/{query_id(queries // 2)}/history"
    timed("GET /lag/{query}/history", lambda: len(service.get(history)))
    timed("page, GET /", lambda: len(service.get("/")))
    timed("page, all summaries of the stream", stream_opening)
    timed("GET /metrics, its own queries", lambda: len(service.get("/metrics")))
    figures.add("peak memory of one", service.peak_mb(), "MB")


def _hand_over(
    figures: _Figures,
    cluster: LargeCluster,
    lag_topic: str,
    services: list[ServiceProcess],
    start: Callable[[], ServiceProcess],
) -> ServiceProcess:
    """End the first, and start it again."""
    ending, *others = services
    body = ending.get("/metrics").decode()
    owned = set(re.findall(r'^sparklag_query_.*query_id="([^"]+)"', body, re.MULTILINE))
    say(f"scale: {len(owned):,} queries are handed over")
    with FirstMeasured(cluster.bootstrap_servers, lag_topic) as measured:
        terminated_s, began = time.monotonic(), time.time()
        os.kill(ending.pid, signal.SIGTERM)
        wait_for(lambda: _has_ended(ending.pid))
        figures.add("hand-over: SIGTERM → ended", time.monotonic() - terminated_s, "s")
        ended_ms = int(time.time() * 1000)
        gaps_s = measured.all_after(owned, ended_ms, int(began * 1000))
    figures.add("hand-over: queries", len(owned), "")
    figures.add(
        "hand-over: a query is measured again, median", sorted(gaps_s)[len(gaps_s) // 2], "s"
    )
    figures.add("hand-over: all are measured again", max(gaps_s), "s")
    stalls = [service.longest_stall_ms(began, time.time()) for service in others]
    figures.stalls["hand-over"] = (max(stall for stall, _ in stalls), max(gc for _, gc in stalls))
    say(f"scale: hand-over: stall, of it collections {figures.stalls['hand-over']} ms")
    began_s = time.monotonic()
    service = start()
    wait_for(service.health)
    _until_shown([service], figures.queries + 1)
    figures.add("restart → ready, all queries shown", time.monotonic() - began_s, "s")
    return service


def _has_ended(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "ZX"


def _until_shown(services: Iterable[ServiceProcess], queries: int) -> None:
    wait_for(
        lambda: all(service.health()["queries"] == queries for service in services),
        within_s=_SHOWN_S,
        pause_s=0.5,
    )


def _rows(fewer: _Figures, more: _Figures) -> Iterator[Row]:
    instances = f"{more.instances} instance{'s' * (more.instances > 1)}"
    what = f"scale, {more.queries * PARTITIONS:,} partitions, {instances}"
    for name, (value, unit) in more.grown.items():
        before, _ = fewer.grown[name]
        ratio = value / before if before else 0.0
        yield Row(
            f"{what}: {name}",
            f"{value:,.4g} {unit}".strip(),
            f"{before:,.4g} {unit}".strip() + f", 1/{_GROWTH} of them",
            times(ratio),
            f"≤ {times(_GROWTH)}",
            ratio <= _GROWTH,
        )
    for name, (stall_ms, collection_ms) in more.stalls.items():
        yield Row(
            f"{what}: {name}: worst stall (CPU)",
            f"{stall_ms:.0f} ms, garbage collection {collection_ms:.0f}",
            "{:.0f} ms, garbage collection {:.0f}".format(*fewer.stalls[name]),
            reach=f"≤ {STALL_BUDGET_MS:g} ms",
            reached=stall_ms <= STALL_BUDGET_MS,
        )
    wrong = [*fewer.wrong, *more.wrong]
    right = "; ".join(wrong) or "right"
    yield Row(f"{what}: lag of the real query", right, "", reach="right", reached=not wrong)
