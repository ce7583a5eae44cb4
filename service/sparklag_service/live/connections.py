"""uvicorn's connections: limited in number, and in the time that a request may take to arrive; with
a way for the application to cut one off.

ASGI has none. Where a reader does not read, uvicorn's `send` waits for it without an end, and a
response that is given up is closed only once the reader has taken all that was written before.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparklag_schemas.settings import LimitSettings
from sparklag_service.counters import Counters

_STATE: Final = "sparklag.transport"
_UNSENT_BYTES: Final = 64 * 1024
"""What the kernel takes for a connection beyond what is on its way: its buffers grow to megabytes,
and hide for long that nobody reads."""
_OTHER_FILES: Final = 200
"""Connections to brokers and stores, files, and those that wait to be taken."""
_PLENTY: Final = 1_000_000
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 10\r\n"
    b"content-length: 0\r\n\r\n"
)
_RESET: Final = struct.pack("ii", 1, 0)


class ConnectionLimits:
    """How many connections there are, and how many may be."""

    def __init__(self, limits: LimitSettings, counters: Counters) -> None:
        """Takes as many files as the system lets this process have."""
        self.request_s = limits.request_s
        self._most = max(1, min(limits.connections, _files() - _OTHER_FILES))
        self._most_of_address = limits.connections_per_address
        self._counters = counters
        self._of_address: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Whether there is room for one more from `address`."""
        if (
            self._of_address.total() >= self._most
            or self._of_address[address] >= self._most_of_address
        ):
            self._counters.connections_refused += 1
            return False
        self._of_address[address] += 1
        return True

    def release(self, address: str) -> None:
        """One has ended."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


def _files() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _PLENTY
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


class Connection(H11Protocol):
    """Requests carry their transport in their state.

    A class of its own is made for each server: `limits` are that server's.
    """

    limits: ConnectionLimits
    _address: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if not self.limits.take(address):
            transport.write(_FULL)
            transport.close()
            return
        self._address = address
        self.app_state = {**self.app_state, _STATE: transport}
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._address is None:
            return
        if self._deadline is None:
            self._await_request()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._end_deadline()
        if self._address is not None:
            self.limits.release(self._address)
            self._address = None
        super().connection_lost(exc)

    def _await_request(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self.limits.request_s, self.transport.abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Wire:
    """The connection that a request came on."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        # Another server, or none, as in tests, has no transport to show.
        self._transport = cast(asyncio.WriteTransport | None, scope.get("state", {}).get(_STATE))
        self.is_cut = False

    @property
    def is_clear(self) -> bool:
        """Whether all was passed on to the kernel."""
        return self._transport is None or not self._transport.get_write_buffer_size()

    def show_slowness(self) -> None:
        """From now on the kernel takes little that it cannot send."""
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            self._set(socket.IPPROTO_TCP, option, _UNSENT_BYTES)

    def cut(self) -> None:
        """End it now, whatever was not sent: the kernel forgets it too, and the reader is reset."""
        if self._transport is not None and not self.is_cut:
            self.is_cut = True
            self._set(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _set(self, level: int, option: int, value: int | bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            connection = self._transport.get_extra_info("socket")
            # Where it is none of TCP the stream works as well, only less well guarded.
            with suppress(OSError):
                connection.setsockopt(level, option, value)
