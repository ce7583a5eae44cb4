"""A REST interface on a real port without a pipeline, and readers of its live stream."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

from sparklag_schemas import LagEvent, Settings, encode
from sparklag_service.instance_state import InstanceState
from sparklag_service.live.hub import LiveHub
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.http_server import HttpServer
from sparklag_service.server import bind
from sparklag_service.view.feed import Arrival
from sparklag_service.view.view import Entry
from tests.background_task import background
from tests.service.pipelines import complete_pipeline_of
from tests.waiting import DEADLINE_S, holds


class StreamEvent(NamedTuple):
    kind: str
    id: str
    """The last id: an event without one keeps that of the event before."""
    data: str


class StreamReader:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lines: deque[bytes] = deque()
        self._unfinished = b""
        self.head = ""
        self.last_id = ""
        self.comments = 0

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    async def open(self, path: str, last_id: str | None = None) -> None:
        resuming = "" if last_id is None else f"Last-Event-ID: {last_id}\r\n"
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: sparklag\r\n{resuming}\r\n".encode())
        async with deadline():
            self.head = (await self._reader.readuntil(b"\r\n\r\n")).decode()

    async def next(self) -> StreamEvent | None:
        kind, data = "message", ""
        async with deadline():
            while (line := await self._line()) is not None:
                if not line and data:
                    return StreamEvent(kind, self.last_id, data)
                name, _, value = line.partition(": ")
                if line.startswith(":"):
                    self.comments += 1
                elif name == "event":
                    kind = value
                elif name == "data":
                    data = value
                elif name == "id":
                    self.last_id = value
        return None

    async def events(self, count: int) -> list[StreamEvent]:
        result = [await self.next() for _ in range(count)]
        assert None not in result, f"the stream has ended: {result}"
        return [event for event in result if event is not None]

    async def _line(self) -> str | None:
        while not self._lines:
            size = int(await self._reader.readline() or b"0", 16)
            if not size:
                return None
            chunk = await self._reader.readexactly(size + 2)
            *lines, self._unfinished = (self._unfinished + chunk[:-2]).split(b"\n")
            self._lines += lines
        return self._lines.popleft().decode()


class LiveServer:
    def __init__(self, pipeline: Pipeline, port: int) -> None:
        self.pipeline = pipeline
        self.port = port
        self.http = HttpServer(InstanceState(pipeline))
        self.clients = ExitStack()
        self._offsets: dict[int, int] = {}

    @property
    def hub(self) -> LiveHub:
        return self.pipeline.live

    @property
    def url(self) -> str:
        return f"{self.pipeline.settings.http_scheme}://127.0.0.1:{self.port}"

    def show(self, event: LagEvent, partition: int = 0) -> bytes:
        """The event is read from the next offset of the partition; its document."""
        document = encode(event)
        offset = self._offsets.get(partition, 0)
        self.pipeline.view.put(Entry(event, document, 0.0, partition, offset))
        self._arrive(event.query_id, partition, event, document)
        return document

    def forget(self, query_id: str) -> None:
        self.pipeline.view.remove(query_id)
        self._arrive(query_id, 0, None, b"")

    def _arrive(
        self, query_id: str, partition: int, event: LagEvent | None, document: bytes
    ) -> None:
        offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + 1
        at_ms = event.measured_at if event is not None else 0
        self.pipeline.view_reader.feed.dispatch(
            Arrival(query_id, partition, offset, at_ms, event, document)
        )

    def reading(
        self, path: str, last_id: str | None = None
    ) -> AbstractAsyncContextManager[StreamReader]:
        return reading(self.port, path, last_id)

    async def connect(
        self, sends: bytes = b"", tls: ssl.SSLContext | None = None, port: int | None = None
    ) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port, ssl=tls)
        self.clients.callback(writer.close)
        writer.write(sends)
        return reader

    async def status(
        self, path: str = "/lag", tls: ssl.SSLContext | None = None, port: int | None = None
    ) -> int | None:
        """By a connection of its own. None where that is refused."""
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        try:
            return int((await ended(await self.connect(request.encode(), tls, port))).split()[1])
        except (OSError, IndexError):
            return None

    @asynccontextmanager
    async def not_reading(
        self,
        path: str,
        received_bytes: int,
        head: str = "Host: x\r\n\r\n",
        repeated: int = 1,
        tls: ssl.SSLContext | None = None,
    ) -> AsyncIterator[socket.socket]:
        """A client that sends a request and never reads, with so much room in its own kernel."""

        def connect() -> socket.socket:
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
            connection.settimeout(DEADLINE_S)
            connection.connect(("127.0.0.1", self.port))
            if tls is not None:
                connection = tls.wrap_socket(connection, server_hostname="127.0.0.1")
            connection.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode() * repeated)
            return connection

        with await asyncio.to_thread(connect) as connection:
            yield connection


async def ended(reader: asyncio.StreamReader) -> bytes:
    got = b""
    with suppress(ConnectionResetError):
        while part := await asyncio.wait_for(reader.read(65_536), DEADLINE_S):
            got += part
    return got


@asynccontextmanager
async def reading(port: int, path: str, last_id: str | None = None) -> AsyncIterator[StreamReader]:
    streams = await asyncio.open_connection("127.0.0.1", port)
    try:
        reader = StreamReader(*streams)
        await reader.open(path, last_id)
        yield reader
    finally:
        streams[1].transport.abort()


@asynccontextmanager
async def live_server(**fields: Any) -> AsyncIterator[LiveServer]:
    """A service with these settings, without Kafka."""
    pipeline = complete_pipeline_of(Settings(**fields))
    listening = [bind("127.0.0.1", 0)]
    if (monitoring_port := pipeline.settings.http_monitoring_port) is not None:
        listening.append(bind("127.0.0.1", monitoring_port))
    server = LiveServer(pipeline, listening[0].getsockname()[1])
    async with background(pipeline.live.run()):
        serving = asyncio.create_task(server.http.serve(sockets=listening))
        try:
            await holds(lambda: server.http.started, "the server listens")
            yield server
        finally:
            server.http.should_exit = True
            await asyncio.wait_for(serving, DEADLINE_S)
            server.clients.close()


@asynccontextmanager
async def deadline() -> AsyncIterator[None]:
    """Cancel what takes longer. (`asyncio.timeout` came with Python 3.11.)"""
    task = asyncio.current_task()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(DEADLINE_S, task.cancel)
    try:
        yield
    finally:
        timer.cancel()
