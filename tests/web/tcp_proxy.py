"""One port that leads to another, until it is cut: a service that is away, and comes back."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 64 * 1024


class TcpProxy:
    """A context manager. It leads to `port` of this machine."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # It does not listen: what connects while the proxy is cut is refused, and the port is kept.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((_HOST, 0))
        self.port = self._reservation.getsockname()[1]
        self.url = f"http://{_HOST}:{self.port}"

    async def __aenter__(self) -> TcpProxy:
        await self.restore()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cut()
        self._reservation.close()

    async def cut(self) -> None:
        """Close every connection, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)

    async def restore(self) -> None:
        """Take connections again."""
        self._server = await asyncio.start_server(self._connect, _HOST, self.port)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            upstream, upstream_writer = await asyncio.open_connection(_HOST, self._upstream)
            self._writers.add(upstream_writer)
            await asyncio.gather(self._copy(reader, upstream_writer), self._copy(upstream, writer))
            self._writers.discard(upstream_writer)
        except OSError:
            writer.transport.abort()
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                writer.write(chunk)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
