"""uvicorn's connections, with a way for the application to cut one off.

ASGI has none. Where a reader does not read, uvicorn's `send` waits for it without an end, and a
response that is given up is closed only once the reader has taken all that was written before.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_STATE: Final = "sparklag.transport"
_UNSENT_BYTES: Final = 64 * 1024
"""What the kernel takes for a connection beyond what is on its way: its buffers grow to megabytes,
and hide for long that nobody reads."""
_RESET: Final = struct.pack("ii", 1, 0)


class Connection(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # known when it runs
    """The protocol that uvicorn would take itself; requests carry its transport in their state."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, _STATE: transport}


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
