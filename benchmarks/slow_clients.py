"""What 500 slow and 2,000 idle clients cost the others: the time of `GET /lag/{query}`.

A slow client sends a byte of its request each second, or reads the answer as slowly; an idle one
sends nothing. Each comes back as soon as the service gives it up. The others' requests are made one
after another, each on a connection of its own, from another address.
"""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import random
import resource
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Final
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer

from benchmarks.comparison import Row, say, times
from benchmarks.live_stream import lag_event
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import encode
from sparklag_schemas.messages.topics import key_of
from tests.local_kafka import LocalKafka

SLOW: Final = 500
IDLE: Final = 2_000
P99_BUDGET: Final = 2.0

_OTHERS: Final = "127.0.0.2"
_REQUESTS: Final = 1_000
_PAUSE_S: Final = 0.02
_SETTLED_S: Final = 12.0
"""Longer than a request may take to arrive: the first ones were given up."""
_BYTE_S: Final = 1.0
_Use = Callable[[StreamReader, StreamWriter], Awaitable[None]]
_FILES: Final = SLOW + IDLE + 200


def run() -> list[Row]:
    """Rows for the time of a request, and for the connections that were there meanwhile."""
    quiet_client_logs()
    with (
        LocalKafka() as kafka,
        service_process(kafka.bootstrap_servers, publish_interval_s=1) as service,
    ):
        wait_for(service.health)
        path = f"/lag/{asyncio.run(_publish(kafka.bootstrap_servers))}"
        wait_for(lambda: _get(service, path) == 200)
        say("slow_clients: nobody else")
        before_ms = _requests(service, path)
        say(f"slow_clients: {SLOW:,} slow and {IDLE:,} idle clients")
        loaded_ms, open_ = _beside_clients(service, path)
        say("slow_clients: nobody else, again")
        alone_ms = before_ms + _requests(service, path)
    ours, other = quantiles(loaded_ms, n=100)[98], quantiles(alone_ms, n=100)[98]
    what = f"GET /lag/{{query}} beside {SLOW:,} slow and {IDLE:,} idle clients"
    return [
        Row(
            f"{what}: 99 %",
            f"{ours:.1f} ms",
            f"{other:.1f} ms, nobody else",
            times(ours / other),
            f"≤ {times(P99_BUDGET)}",
            ours / other <= P99_BUDGET,
        ),
        Row(
            f"{what}: median",
            f"{median(loaded_ms):.2f} ms",
            f"{median(alone_ms):.2f} ms, nobody else",
            times(median(loaded_ms) / median(alone_ms)),
        ),
        Row("  their connections that were open", f"{open_:,}", f"{SLOW + IDLE:,} at most"),
    ]


async def _publish(bootstrap_servers: str) -> str:
    event = lag_event(0, None)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait("consumer-lag", encode(event), key=key_of(event.query_id))
    return event.query_id


def _requests(service: ServiceProcess, path: str) -> list[float]:
    """Milliseconds that each took."""
    took_ms = []
    for _ in range(_REQUESTS):
        began_s = time.perf_counter()
        status = _get(service, path)
        took_ms.append((time.perf_counter() - began_s) * 1e3)
        if status != 200:
            raise RuntimeError(f"{path} was answered with {status}")
        time.sleep(_PAUSE_S)
    return took_ms


def _get(service: ServiceProcess, path: str) -> int:
    parts = urlsplit(service.url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=30, source_address=(_OTHERS, 0)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _beside_clients(service: ServiceProcess, path: str) -> tuple[list[float], int]:
    """How long requests take meanwhile, and how many clients were connected at the end."""
    parts = urlsplit(service.url)
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(
        target=_clients_process, args=((parts.hostname, parts.port), path, theirs)
    )
    process.start()
    # Else its end is not told: `recv` would wait for ever.
    theirs.close()
    try:
        ours.recv()
        took_ms = _requests(service, path)
        ours.send("how many?")
        return took_ms, ours.recv()
    finally:
        process.terminate()
        process.join(10)


def _clients_process(address: tuple[str, int], path: str, pipe: Connection) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard), hard))
    asyncio.run(_clients(address, path, pipe))


async def _clients(address: tuple[str, int], path: str, pipe: Connection) -> None:
    clients = _Clients(address, path)
    kinds = [clients.send_slowly, clients.read_slowly] * (SLOW // 2) + [clients.idle] * IDLE
    tasks = [asyncio.create_task(clients.come_back(kind)) for kind in kinds]
    await asyncio.sleep(_SETTLED_S)
    pipe.send("they are there")
    await asyncio.to_thread(pipe.recv)
    pipe.send(clients.open)
    # Until this process is ended.
    await asyncio.gather(*tasks)


class _Clients:
    def __init__(self, address: tuple[str, int], path: str) -> None:
        self._address = address
        self._request = f"GET {path} HTTP/1.1\r\nHost: sparklag\r\n\r\n".encode()
        self.open = 0
        """Connections there are."""

    async def come_back(self, use: _Use) -> None:
        """Connect, and do so again whenever the connection has ended."""
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(*self._address)
                self.open += 1
                try:
                    await use(reader, writer)
                finally:
                    self.open -= 1
                    writer.close()
            # Not all at once.
            await asyncio.sleep(random.random())

    async def send_slowly(self, reader: StreamReader, writer: StreamWriter) -> None:
        """A byte of the request after the other."""
        for byte in self._request:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(_BYTE_S)
            if reader.at_eof():
                return

    async def read_slowly(self, reader: StreamReader, writer: StreamWriter) -> None:
        """A byte of the answer after the other."""
        writer.write(self._request)
        while True:
            if not await reader.read(1):
                return
            await asyncio.sleep(_BYTE_S)

    async def idle(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Nothing."""
        await reader.read()
