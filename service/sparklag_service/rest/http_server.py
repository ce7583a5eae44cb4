"""uvicorn with limits: on the number of connections, and on the time that a request may take to
arrive."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparklag_schemas.runtime.logs import RepeatLimit
from sparklag_schemas.settings import LimitSettings
from sparklag_service.counters import Counters
from sparklag_service.live.reader import WIRE_STATE, Wire
from sparklag_service.rest.app import create_app
from sparklag_service.rest.authentication import Authenticator
from sparklag_service.rest.request_rules import SlicedResponses, UnsentResponses
from sparklag_service.rest.system import Backend
from sparklag_service.rest.tls import server_contexts

_log = logging.getLogger(__name__)
_BACKLOG: Final = 128
"""Connections that wait to be accepted. asyncio accepts this many at a time, even without free file
descriptors."""
_SHARE_OF_OPEN_REQUESTS: Final = 0.2
"""Share of the shutdown time."""
_READ_BYTES: Final = 16 * 1024
"""Bytes read of a connection at a time, and so the most that is kept of pipelined requests."""
_MAX_LINES: Final = 200
"""Limit for the lines of a head and of pipelined requests: thousands of headers take a megabyte."""
_OTHER_FILES: Final = 200
"""Files for brokers, stores and logs, and for connections that wait to be accepted."""
_UNLIMITED_FILES: Final = 1_000_000
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 10\r\n"
    b"content-length: 0\r\n\r\n"
)


_repeat_limit = RepeatLimit()
"""Any client can cause warnings, and asyncio's error for a connection without a file descriptor."""


class ConnectionLimits:
    """Counts the connections, and limits their number."""

    def __init__(self, limits: LimitSettings, counters: Counters) -> None:
        """Raises the limit of open files as far as the system allows."""
        self.request_s = limits.request_s
        self.unsent = UnsentResponses(limits, counters)
        self._max = max(1, min(limits.connections, _max_files() - _OTHER_FILES))
        self._max_of_address = limits.connections_per_address
        self._counters = counters
        self._of_address: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Count a connection from `address`. Returns False if the limit is reached."""
        if (
            self._of_address.total() >= self._max
            or self._of_address[address] >= self._max_of_address
        ):
            self._counters.connections_refused += 1
            return False
        self._of_address[address] += 1
        return True

    def release(self, address: str) -> None:
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


def _max_files() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _UNLIMITED_FILES if soft == resource.RLIM_INFINITY else soft


class _JoinedWrites:
    """A transport that writes the head of a response together with the first part of its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._is_begun = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._is_begun:
            data, self._head = self._head + data, b""
            self._transport.write(data)
        else:
            self._is_begun, self._head = True, data
            # The body may come much later.
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def end_response(self) -> None:
        self.flush()
        self._is_begun = False

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Connection(H11Protocol):
    """Puts the request's wire into its state, so that the application can cut it off.

    Each server makes a subclass with its own `limits`.
    """

    limits: ConnectionLimits
    _raw: asyncio.Transport | None = None
    """The transport to the kernel, below TLS."""
    _wire: Wire | None = None
    _lines = 0
    """Lines of requests without a response."""
    _deadline: asyncio.TimerHandle | None = None

    def accept(self, transport: asyncio.Transport) -> bool:
        """Count a client, and limit what is kept of it. Returns False if there are too many."""
        self._raw = transport
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if not self.limits.take(address):
            return False
        # No write buffer: UnsentResponses watches every byte that the kernel does not accept.
        transport.set_write_buffer_limits(0)
        transport.max_size = _READ_BYTES  # type: ignore[attr-defined]  # asyncio's, 256 KiB
        self._wire = Wire(transport, address)
        self._wire.limit_unsent()
        return True

    def release(self) -> None:
        """End the count of a client. Idempotent."""
        if self._wire is not None:
            self.limits.release(self._wire.address)
            self.limits.unsent.end_wait(self._wire)
            self._wire = None
        # asyncio's transport refers to itself by this callback. The cycle would leak: the garbage
        # collector skips long-lived objects (SurvivorsFrozen).
        if hasattr(raw := self._raw, "_read_ready_cb"):
            raw._read_ready_cb = None  # type: ignore[union-attr]  # asyncio's

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if self._raw is None and not self.accept(transport):
            transport.write(_FULL)
            transport.close()
            return
        self.transport = cast(Any, _JoinedWrites(transport))
        self.app_state = {**self.app_state, WIRE_STATE: self._wire}
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        if self._wire is None:
            return
        self._lines += data.count(b"\n")
        if self._lines > _MAX_LINES:
            self.limits.unsent.cut_off(self._wire)
            return
        super().data_received(data)
        if self.cycle is not None:
            # No route reads the body.
            self.cycle.body.clear()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_deadline()
        elif self._deadline is None:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self.release()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing() and self._raw is not None:
            self._raw.close()  # An idle client does not answer the end of TLS.

    def pause_writing(self) -> None:
        if self._wire is not None and self.flow is not None:
            super().pause_writing()
            self.limits.unsent.begin_wait(self._wire)

    def resume_writing(self) -> None:
        if self._wire is not None and self.flow is not None:
            self.limits.unsent.end_wait(self._wire)
            super().resume_writing()

    def on_response_complete(self) -> None:
        """Clear the request: an idle connection keeps no part of it."""
        self._lines = 0
        cast(_JoinedWrites, self.transport).end_response()
        self.scope.clear()  # type: ignore[attr-defined]  # of a TypedDict
        self.headers.clear()
        super().on_response_complete()

    def _start_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self.limits.request_s, self.transport.abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class TlsConnection(SSLProtocol):
    """TLS of a Connection, which counts from its first byte on, and has a deadline for the
    handshake. asyncio's own buffers a quarter of a megabyte, which no limit would see."""

    max_size = _READ_BYTES

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            connection,
            context,
            cast(Any, None),
            server_side=True,
            ssl_handshake_timeout=cast(int, connection.limits.request_s),
        )
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._connection.connections.add(cast(Any, self))
        if self._connection.accept(self._raw):
            super().connection_made(transport)
        else:
            self._raw.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connection.connections.discard(cast(Any, self))
        if self._connection.transport is None and isinstance(exc, ssl.SSLError):
            peer = self._raw.get_extra_info("peername") or ["?"]
            _log.warning("TLS handshake with %s failed: %s", peer[0], exc.reason)
        self._connection.release()
        if self._app_transport is not None:
            # Python 3.10 warns of an aborted transport that it was not closed.
            self._app_transport._closed = True
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._raw.get_write_buffer_size():
            self._connection.resume_writing()

    def shutdown(self) -> None:
        """End a handshake; uvicorn calls this for each of `connections`."""
        if self._connection.transport is None:
            self._raw.abort()


class HttpServer(uvicorn.Server):
    """The server of `backend`. Its shutdown ends the live streams, which never end by themselves:
    uvicorn would wait for them until its timeout."""

    def __init__(self, backend: Backend) -> None:
        timeout_s = backend.settings.shutdown_timeout_s
        limits = ConnectionLimits(backend.settings.limits, backend.counters)
        app = create_app(backend)
        self._authenticators: list[Authenticator] = app.state.authenticators
        for name in ("uvicorn.error", "asyncio", __name__):
            logging.getLogger(name).addFilter(_repeat_limit)
        super().__init__(
            uvicorn.Config(
                SlicedResponses(app, limits.unsent),
                http=type("LimitedConnection", (Connection,), {"limits": limits}),
                server_header=False,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=max(1, round(_SHARE_OF_OPEN_REQUESTS * timeout_s)),
                lifespan="off",
                proxy_headers=False,
                ws="none",
            )
        )
        self._live = backend.live
        tls = backend.settings.http_tls
        self._tls = None if tls.certfile is None else server_contexts(tls)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. The first socket is of `http_port`, the second of `http_monitoring_port`: uvicorn
        has one TLS context for all."""
        self.servers = []

        def make_protocol(number: int) -> asyncio.Protocol | TlsConnection:
            connection: Any = self.config.http_protocol_class(self.config, self.server_state, {})  # type: ignore[call-arg]  # uvicorn's
            return (
                connection
                if self._tls is None
                else TlsConnection(connection, self._tls.value[number])
            )

        for number, listening in enumerate(sockets or ()):
            server = await asyncio.get_running_loop().create_server(
                partial(make_protocol, number), sock=listening, backlog=_BACKLOG
            )
            self.servers.append(server)
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls this ten times a second, which `counter` counts."""
        if counter % 10 == 0:
            if self._tls is not None:
                await asyncio.to_thread(self._tls.refresh)
            for authenticator in self._authenticators:
                # Reads a changed file: open streams end without another request.
                await authenticator.authenticate("")
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Keep SIGINT ignored if the process ignores it: uvicorn would handle it."""
        is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with super().capture_signals():
            if is_ignored and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.close()
        await super().shutdown(sockets)

    def close(self) -> None:
        """End the streams and stop listening: uvicorn does not if serving is cancelled."""
        self._live.close()
        for server in getattr(self, "servers", ()):
            server.close()
