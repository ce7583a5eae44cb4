"""1,000 readers of the live stream, beside some that do not read, against one reader alone.

Lag events are written to `consumer-lag` as a service would write them; a service in a process of
its own reads them, and readers in a third process get them over sockets of their own. What is
measured is from just before an event is produced until a reader has it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Final
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer

from benchmarks.comparison import Row, say, times
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import LagEvent, PartitionLag, TopicLag, encode
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka

READERS: Final = 1_000
P99_BUDGET_MS: Final = 250.0
MEMORY_BUDGET_MB: Final = 50.0

_SLOW: Final = 50
_QUERIES: Final = 10
_PARTITIONS: Final = 8
_RATE: Final = 10.0
_FAST_RATE: Final = 50.0
_WATCHED_S: Final = 20.0
_CUT_OFF_S: Final = 60.0
_ARRIVED_S: Final = 20.0
_SETTLED_S: Final = 1.0
_SMALL_BYTES: Final = 4 * 1024
_MARK: Final = b'"event_id":"'
_PLACE: Final = re.compile(rb"^id: \d", re.MULTILINE)


def run() -> list[Row]:
    """Rows for latency, memory and CPU."""
    quiet_client_logs()
    with LocalKafka() as kafka, ExitStack() as stack:
        service = stack.enter_context(
            service_process(kafka.bootstrap_servers, publish_interval_s=1)
        )
        wait_for(service.health)
        return asyncio.run(_measure(kafka.bootstrap_servers, service))


async def _measure(bootstrap_servers: str, service: ServiceProcess) -> list[Row]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await _produce(producer, _RATE, 2.0)
        say("live_stream: one reader")
        alone = await _watch(producer, service, 1, 0, _RATE)
        say(f"live_stream: {READERS:,} readers, and {_SLOW} that do not read")
        many = await _watch(producer, service, READERS, _SLOW, _RATE)
        say(f"live_stream: one reader, {_FAST_RATE:g} events a second")
        fast_alone = await _watch(producer, service, 1, 0, _FAST_RATE)
        say(f"live_stream: {READERS:,} readers, {_FAST_RATE:g} events a second")
        fast = await _watch(producer, service, READERS, 0, _FAST_RATE)
    return [
        *_latency(f"live stream, {READERS:,} readers, {_RATE:g} events/s", many, alone, True),
        Row(
            f"live stream, {READERS:,} readers come at once: until all have the newest events",
            f"{many.joined_s:.1f} s",
            f"{alone.joined_s * 1e3:.0f} ms, one reader",
        ),
        Row(
            f"live stream, {READERS:,} readers: memory of the service",
            f"+{many.grown_mb:.1f} MB",
            f"{many.before_mb:.0f} MB, before them",
            reach=f"≤ +{MEMORY_BUDGET_MB:g} MB",
            reached=many.grown_mb <= MEMORY_BUDGET_MB,
        ),
        Row(
            f"live stream, {READERS:,} readers, {_RATE:g} events/s: CPU",
            f"{many.cpu_share:.0%}",
            f"{alone.cpu_share:.0%}, one reader",
        ),
        Row(
            "live stream: readers that do not read, cut off",
            f"{many.cut_off}",
            f"{_SLOW} there were",
            reach="equal",
            reached=many.cut_off == _SLOW,
        ),
        *_latency(
            f"live stream, {READERS:,} readers, {_FAST_RATE:g} events/s", fast, fast_alone, False
        ),
        Row(
            f"live stream, {READERS:,} readers, {_FAST_RATE:g} events/s: CPU",
            f"{fast.cpu_share:.0%}",
            f"{fast_alone.cpu_share:.0%}, one reader",
        ),
    ]


class _Watched:
    """What one run measured."""

    def __init__(self) -> None:
        self.latencies_ms: Sequence[float] = ()
        self.before_mb = 0.0
        self.grown_mb = 0.0
        self.cpu_share = 0.0
        self.cut_off = 0
        self.joined_s = 0.0


def _latency(what: str, many: _Watched, alone: _Watched, budgeted: bool) -> list[Row]:
    ours, other = quantiles(many.latencies_ms, n=100), quantiles(alone.latencies_ms, n=100)
    return [
        Row(
            f"{what}: event → reader, median",
            f"{median(many.latencies_ms):.1f} ms",
            f"{median(alone.latencies_ms):.1f} ms, one reader",
            times(median(many.latencies_ms) / median(alone.latencies_ms)),
        ),
        Row(
            f"{what}: event → reader, 99 %",
            f"{ours[98]:.1f} ms",
            f"{other[98]:.1f} ms, one reader",
            times(ours[98] / other[98]),
            f"≤ {P99_BUDGET_MS:g} ms" if budgeted else "",
            ours[98] <= P99_BUDGET_MS if budgeted else None,
        ),
    ]


async def _watch(
    producer: AIOKafkaProducer, service: ServiceProcess, readers: int, slow: int, rate: float
) -> _Watched:
    watched = _Watched()
    watched.before_mb = service.held_mb()
    cut_off = _counter(service, "stream_cut_off")
    address = urlsplit(service.url)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_readers_process, args=((address.hostname, address.port), readers, slow, theirs)
    )
    process.start()
    # Else `recv` would not notice its end.
    theirs.close()
    try:
        watched.joined_s = await asyncio.to_thread(ours.recv)
        await asyncio.to_thread(ours.recv)
        cpu_s, began_s = service.cpu_s(), time.monotonic()
        produced = await _produce(producer, rate, _WATCHED_S)
        watched.cpu_share = (service.cpu_s() - cpu_s) / (time.monotonic() - began_s)
        watched.grown_mb = service.held_mb() - watched.before_mb
        # What is on its way is measured still.
        await asyncio.sleep(2)
        deadline_s = time.monotonic() + _CUT_OFF_S
        while slow and time.monotonic() < deadline_s and watched.cut_off < slow:
            # Small events: it takes some until their sockets are full.
            await _produce(producer, _RATE, 1.0, wide=True)
            watched.cut_off = _counter(service, "stream_cut_off") - cut_off
        ours.send(produced * readers)
        latencies_ms: list[float] = await asyncio.to_thread(ours.recv)
    finally:
        process.join(10)
        process.kill()
    if len(latencies_ms) < produced * readers:
        raise RuntimeError(f"{produced * readers - len(latencies_ms)} events did not arrive")
    watched.latencies_ms = latencies_ms
    return watched


async def _produce(
    producer: AIOKafkaProducer, rate: float, duration_s: float, *, wide: bool = False
) -> int:
    """Lag events at that rate; how many."""
    count = round(rate * duration_s)
    begin_s = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, begin_s + number / rate - time.monotonic()))
        event = lag_event(number % _QUERIES, "x" * 20_000 if wide else None)
        # Not waited for: the next one is due however long this one takes.
        await producer.send("consumer-lag", encode(event), key=key_of(event.query_id))
    await producer.flush()
    return count


def lag_event(query: int, reason: str | None, partitions: int = _PARTITIONS) -> LagEvent:
    now_ms = epoch_ms()
    return LagEvent(
        # A wide one is not measured.
        event_id=str(time.monotonic_ns()) if reason is None else "",
        query_id=f"00000000-0000-4000-8000-{query:012d}",
        run_id="79f1bf68-0000-4000-8000-000000000001",
        query=f"query-{query}",
        cause="progress",
        # The service does not adopt it, as long as events of it come.
        measured_by="embedded",
        status="OK",
        reason=reason,
        observed_at=now_ms,
        measured_at=now_ms,
        total_lag=partitions,
        topics=[
            TopicLag(
                topic="orders",
                source=0,
                total_lag=partitions,
                partitions=[
                    PartitionLag(partition=number, processed_offset=5, latest_offset=6, lag=1)
                    for number in range(partitions)
                ],
            )
        ],
    )


def _readers_process(address: tuple[str, int], readers: int, slow: int, pipe: Connection) -> None:
    """Read until the pipe ends it; then send how long each event took, milliseconds."""
    asyncio.run(_read(address, readers, slow, pipe))


async def _read(address: tuple[str, int], readers: int, slow: int, pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    latencies_ms: list[float] = []
    began_s = time.monotonic()
    reading = [
        (await loop.create_connection(lambda: _Reader(latencies_ms), *address))[1]
        for _ in range(readers)
    ]
    idle = []
    for _ in range(slow):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BYTES)
        connection.connect(address)
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: sparklag\r\n\r\n")
        idle.append(connection)
    for reader in reading:
        await reader.first_received.wait()
    pipe.send(time.monotonic() - began_s)
    # Events from before are not measured.
    await asyncio.sleep(_SETTLED_S)
    latencies_ms.clear()
    pipe.send("ready")
    expected = await asyncio.to_thread(pipe.recv)
    await asyncio.to_thread(_until_many, latencies_ms, expected)
    pipe.send(latencies_ms)


def _until_many(latencies: list[float], expected: int) -> None:
    deadline_s = time.monotonic() + _ARRIVED_S
    while len(latencies) < expected and time.monotonic() < deadline_s:
        time.sleep(0.1)


class _Reader(asyncio.Protocol):
    def __init__(self, latencies_ms: list[float]) -> None:
        self._latencies_ms = latencies_ms
        self._rest = b""
        self.first_received = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"GET /stream HTTP/1.1\r\nHost: sparklag\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        data = self._rest + data
        at = done = 0
        while (at := data.find(_MARK, done)) >= 0:
            end = data.find(b'"', at + len(_MARK))
            if end < 0:
                break
            mark = data[at + len(_MARK) : end]
            # The service's own events, of queries without one for long, are not measured.
            if mark.isdigit():
                self._latencies_ms.append((now_ns - int(mark)) / 1e6)
            done = end
        else:
            at = max(done, len(data) - len(_MARK))
        self._rest = data[at:]
        # The last event of what it gets first carries a place.
        if _PLACE.search(data):
            self.first_received.set()


def _counter(service: ServiceProcess, name: str) -> int:
    return int(service.health()["counters"][name])
