"""What a scrape of 10,000 partitions costs while all of them change; how soon it shows a record.

First the rendering in this process, every query's event being new each time, in turn with
`prometheus_client.generate_latest` of the same series; then `GET /metrics` of a real service, whose
10,000 partitions are published anew every second; then the time from a record's acknowledgement to
the scrape that shows it, of a real topic: alone, and beside a process that takes a core.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from benchmarks.busy_processes import busy_processes
from benchmarks.comparison import Row, ms, say, within
from benchmarks.costs import Costs
from benchmarks.loop_stall import longest_stall
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from sparklag_jobs.demo.streams import create_topics
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import (
    LagEvent,
    PartitionLag,
    Settings,
    TopicLag,
    decode_lag_event,
    encode,
)
from sparklag_schemas.messages.topics import TopicSpec, key_of, own_topics
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.instance_state import InstanceState
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.metrics.schemes import NATIVE
from sparklag_service.pipeline import Pipeline
from sparklag_service.view.view import Entry
from tests.local_kafka import LocalKafka
from tests.messages import seen

TIME_BUDGET_MS: Final = 25.0
CPU_BUDGET_MS: Final = 15.0
HELD_BUDGET_MS: Final = 5.0
FRESH_BUDGET_S: Final = 0.1
"""More than the refresh interval."""

_QUERIES: Final = 100
_TOPICS_EACH: Final = 2
_PARTITIONS_EACH: Final = 50
_ROUNDS: Final = 30
_WARM_UP: Final = 3
_SCRAPES: Final = 20
_VARIANTS: Final = 3
_RECORDS: Final = 30
_TOPIC: Final = "watched"


def run() -> list[Row]:
    """Rows for the rendering, for the service, and for a record."""
    quiet_client_logs()
    rows = asyncio.run(_rendering())
    with LocalKafka() as broker:
        with _fed_service(broker.bootstrap_servers) as service:
            rows += _over_http(service)
    for beside in (0, 1):
        with LocalKafka() as broker, busy_processes(beside):
            rows.append(_freshness(broker.bootstrap_servers, beside))
    return rows


async def _rendering() -> list[Row]:
    rows: list[Row] = []
    # As `sparklag serve` does.
    gc.freeze()
    for series in (4, 6):
        say(f"scrape: rendering {_partitions():,} partitions × {series} series")
        ours, theirs = Costs(), Costs()
        pipeline = _pipeline()
        exposition = Exposition(InstanceState(pipeline))
        for number in range(_WARM_UP + _ROUNDS):
            events = _events(number, full=series == 6)
            sides = [
                partial(_ours, exposition, pipeline, events, ours),
                partial(_theirs, events, series, theirs),
            ]
            for side in sides[:: 1 - 2 * (number % 2)]:
                await side(number >= _WARM_UP)
        what = f"scrape, {_partitions():,} × {series}, all changed"
        against = "generate_latest"
        cpu_ms, time_ms = (CPU_BUDGET_MS, TIME_BUDGET_MS) if series == 4 else (None, None)
        rows += [
            within(f"{what}: CPU", ours.cpu_ms, against, theirs.cpu_ms, cpu_ms),
            within(f"{what}: time", ours.wall_ms, against, theirs.wall_ms, time_ms),
        ]
        held_ms = await _held(exposition, pipeline, full=series == 6)
        rows.append(
            Row(
                "  longest the loop was held (CPU), events coming in",
                f"{max(held_ms):.2f} ms, median {median(held_ms):.2f}",
                "",
                reach=f"≤ {HELD_BUDGET_MS:g} ms",
                reached=max(held_ms) <= HELD_BUDGET_MS,
            )
        )
    return rows


async def _ours(
    exposition: Exposition,
    pipeline: Pipeline,
    events: Sequence[LagEvent],
    costs: Costs,
    keep: bool,
) -> None:
    for event in events:
        pipeline.view.put(Entry(event, b"", time.monotonic(), 0, 0))
    with costs.timed(keep=keep):
        await exposition.render("", "")


async def _theirs(events: Sequence[LagEvent], series: int, costs: Costs, keep: bool) -> None:
    registry = CollectorRegistry()
    registry.register(_Bare(events, series))
    with costs.timed(keep=keep):
        text = generate_latest(registry)
    if text.count(b"\nsparklag_") < series * _partitions():
        raise RuntimeError("generate_latest left some out")


class _Bare(Collector):
    """The partitions' series as prometheus_client has them made; queries and topics left out."""

    def __init__(self, events: Sequence[LagEvent], series: int) -> None:
        self._events, self._series = events, series

    def collect(self) -> Iterator[Metric]:
        names = ["cluster", "query", "query_id", "topic", "partition"]
        for gauge in NATIVE.partition[: self._series]:
            family = GaugeMetricFamily(gauge.name, gauge.meaning, labels=names)
            for event in self._events:
                for topic in event.topics:
                    for each in topic.partitions:
                        value = gauge.read(each)
                        if value is not None:
                            labels = (event.cluster, event.display_name, event.query_id)
                            family.add_metric((*labels, topic.topic, str(each.partition)), value)
            yield family


async def _held(exposition: Exposition, pipeline: Pipeline, *, full: bool) -> list[float]:
    """The most CPU between two turns of another task, of each scrape, gzip and all, while all
    events are decoded and put into the view again every second."""
    documents = [encode(event) for event in _events(_ROUNDS, full=full)]

    async def feed() -> None:
        number = 0
        while True:
            number += 1
            document = documents[number % len(documents)]
            event = decode_lag_event(document)
            pipeline.view.put(Entry(event, document, time.monotonic(), 0, 0))
            await asyncio.sleep(1 / len(documents))

    held: list[float] = []
    feeding = asyncio.create_task(feed())
    for _ in range(_ROUNDS):
        for event in _events(random.randrange(1_000), full=full):
            pipeline.view.put(Entry(event, b"", time.monotonic(), 0, 0))
            # Others have their turns, as where events come one by one.
            await asyncio.sleep(0)
        async with longest_stall() as stall:
            await exposition.render("", "gzip")
        held.append(stall.longest_s * 1e3)
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    return held


def _over_http(service: ServiceProcess) -> list[Row]:
    rows: list[Row] = []
    for encoding in ("identity", "gzip"):
        say(f"scrape: over HTTP, {encoding}")
        took_ms, cpu_ms, size = [], [], 0
        for _ in range(_SCRAPES):
            # At any moment, and most partitions have changed by then.
            time.sleep(0.5 + random.random())
            began_s, cpu_s = time.perf_counter(), _cpu_s(service.pid)
            size = len(_scrape(service.url, encoding))
            took_ms.append((time.perf_counter() - began_s) * 1e3)
            cpu_ms.append((_cpu_s(service.pid) - cpu_s) * 1e3)
        is_plain = encoding == "identity"
        rows += [
            Row(
                f"scrape over HTTP, {encoding}, 10,000 × 4, all changing each second: time",
                f"{ms(took_ms)}, worst {max(took_ms):.0f}",
                f"{size / 1e6:.2f} MB",
                reach=f"≤ {TIME_BUDGET_MS:g} ms" if is_plain else "",
                reached=median(took_ms) <= TIME_BUDGET_MS if is_plain else None,
            ),
            Row("  CPU of the service meanwhile", ms(cpu_ms), ""),
        ]
    return rows


def _cpu_s(pid: int) -> float:
    """CPU seconds of all threads so far, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _scrape(url: str, encoding: str = "identity") -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"accept-encoding": encoding})
        return connection.getresponse().read()
    finally:
        connection.close()


@contextmanager
def _fed_service(bootstrap_servers: str) -> Iterator[ServiceProcess]:
    """A service in whose view 10,000 partitions change every second."""
    settings = Settings(bootstrap_servers=bootstrap_servers)
    asyncio.run(create_topics(bootstrap_servers, own_topics(settings)))
    stopping = threading.Event()
    feeding = threading.Thread(
        target=lambda: asyncio.run(_feed(bootstrap_servers, settings.lag_topic, stopping))
    )
    every_query = f"sparklag_queries {float(_QUERIES)}".encode()
    with service_process(bootstrap_servers, publish_interval_s=1) as service:
        feeding.start()
        try:
            wait_for(lambda: every_query in service.get("/metrics"))
            yield service
        finally:
            stopping.set()
            feeding.join()


async def _feed(bootstrap_servers: str, topic: str, stopping: threading.Event) -> None:
    # Encoding them is not what is measured.
    rounds = [[encode(event) for event in _events(n, full=False)] for n in range(_VARIANTS)]
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, compression_type="lz4"
    ) as producer:
        number = 0
        due_s = time.monotonic()
        while not stopping.is_set():
            number += 1
            for query, document in enumerate(rounds[number % _VARIANTS]):
                # The version rises, or the view would keep the older one.
                value = document.replace(b'"observed_at":0', b'"observed_at":%d' % epoch_ms())
                await producer.send(topic, value, key=key_of(_query_id(query)))
                due_s += 1 / _QUERIES
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))


def _freshness(bootstrap_servers: str, beside: int) -> Row:
    """From a record to the scrape that shows it, beside so many busy processes."""
    say(f"scrape: from a record to the scrape that shows it, {beside} busy processes beside it")
    settings = Settings(bootstrap_servers=bootstrap_servers)
    topics = [*own_topics(settings), TopicSpec(_TOPIC, 1, 1)]
    asyncio.run(create_topics(bootstrap_servers, topics))
    with service_process(
        bootstrap_servers, publish_interval_s=settings.publish_interval_s
    ) as service:
        took_s = asyncio.run(_shown_after(bootstrap_servers, settings, service.url))
    budget_s = settings.refresh_interval_s + FRESH_BUDGET_S
    what = f"record acknowledged → in the scrape, refresh {settings.refresh_interval_s:g} s"
    return Row(
        f"{what}, beside a busy process" if beside else what,
        f"{median(took_s):.2f} s, worst {max(took_s):.2f} of {len(took_s)}",
        "",
        reach=f"≤ {budget_s:g} s",
        reached=max(took_s) <= budget_s,
    )


async def _shown_after(bootstrap_servers: str, settings: Settings, url: str) -> list[float]:
    took_s: list[float] = []
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await asyncio.to_thread(wait_for, lambda: _scrape(url))
        observation = seen(_TOPIC, {0: 0})
        await producer.send_and_wait(
            settings.offsets_topic, encode(observation), key=key_of(observation.query_id)
        )
        for number in range(_RECORDS + 1):
            # At any moment of the refresh, and not faster than events are published.
            await asyncio.sleep(1.5 + random.random())
            await producer.send_and_wait(_TOPIC, b"record", partition=0)
            began_s = time.perf_counter()
            shown = partial(_shows, url, number + 1)
            await asyncio.to_thread(wait_for, shown, pause_s=0.01)
            if number:
                took_s.append(time.perf_counter() - began_s)
    return took_s


def _shows(url: str, lag: int) -> bool:
    return any(
        line.startswith(b"sparklag_partition_lag{") and line.endswith(b" %d" % lag)
        for line in _scrape(url).splitlines()
    )


def _pipeline() -> Pipeline:
    """Not running: what it shows is put into its view."""
    servers = "127.0.0.1:1"
    settings = Settings(bootstrap_servers=servers)
    resolved = settings.resolved(servers)
    return Pipeline(resolved, partial(TopicIntake, resolved), "service")


def _events(number: int, *, full: bool) -> list[LagEvent]:
    """Of every query, all values other than in another round. `full`: times too."""
    return [_event(query, number, full=full) for query in range(_QUERIES)]


def _event(query: int, number: int, *, full: bool) -> LagEvent:
    topics = [_topic(query, topic, number, full=full) for topic in range(_TOPICS_EACH)]
    return LagEvent(
        event_id=str(uuid4()),
        query_id=_query_id(query),
        run_id=str(uuid4()),
        query=f"query-{query}",
        batch_id=number,
        cause="progress",
        # An embedded service's: nobody else measures it.
        measured_by="embedded",
        status="OK",
        total_lag=sum(topic.total_lag or 0 for topic in topics),
        max_lag=number + _PARTITIONS_EACH,
        observed_at=0,
        processed_at=epoch_ms(),
        measured_at=epoch_ms(),
        topics=topics,
    )


def _topic(query: int, topic: int, number: int, *, full: bool) -> TopicLag:
    base = 1_000_000_000 + 1_000 * number
    return TopicLag(
        topic=f"topic-{query}-{topic}",
        source=0,
        total_lag=_PARTITIONS_EACH * number,
        partitions=[
            PartitionLag(
                partition=n,
                processed_offset=base + n,
                latest_offset=base + 2 * n + number,
                earliest_offset=base - 1_000_000 + n,
                lag=n + number,
                time_lag_s=(n + number) / 7 if full else None,
                headroom_s=3_600 + n / 7 if full else None,
                status="OK",
            )
            for n in range(_PARTITIONS_EACH)
        ],
    )


def _query_id(query: int) -> str:
    return f"00000000-0000-4000-8000-{query:012d}"


def _partitions() -> int:
    return _QUERIES * _TOPICS_EACH * _PARTITIONS_EACH
