"""One reader of the live stream: its connection, and its queue of frames."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sparklag_schemas.runtime.tasks import until_set
from sparklag_service.access.principals import ANYONE, Principal
from sparklag_service.live import sse
from sparklag_service.live.sse import Frame, Ring

WIRE_STATE: Final = "sparklag.wire"
"""The key of a request's Wire in the server's state: ASGI cannot end a connection. uvicorn's `send`
waits without limit for a reader that does not read, and closes an abandoned response only after the
reader has received everything written before."""
_CHUNK_BYTES: Final = 32 * 1024
"""Bytes written at once, unless a single frame is larger."""
_UNSENT_BYTES: Final = 64 * 1024
"""Unsent bytes that the kernel accepts for a connection. Its buffers grow to megabytes otherwise,
and hide for long that the reader does not read."""
_RESET: Final = struct.pack("ii", 1, 0)


class Wire:
    """The connection of a request. Without a transport (tests, another server) it does nothing."""

    def __init__(self, transport: asyncio.Transport | None = None, address: str = "") -> None:
        self._transport = transport
        self.address = address
        self.text = b""
        """The response part that is being written."""
        self.is_cut = False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the kernel has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_clear(self) -> bool:
        """True if the kernel has accepted all bytes."""
        return not self.unsent_bytes

    def limit_unsent(self) -> None:
        """Limit the bytes that the kernel buffers, so that a slow reader shows. The kernel then
        sends each slice at once: asyncio sets that only for sockets that name their protocol."""
        self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            self._set(socket.IPPROTO_TCP, option, _UNSENT_BYTES)

    def cut(self) -> None:
        """Reset the connection; the kernel drops unsent bytes."""
        if self._transport is not None and not self.is_cut:
            self.is_cut = True
            self._set(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _set(self, level: int, option: int, value: int | bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            connection = self._transport.get_extra_info("socket")
            # A socket without TCP has no such options; the stream works without them.
            with suppress(OSError):
                connection.setsockopt(level, option, value)


class Selection(NamedTuple):
    """The events that a reader selects, of the queries that it may see."""

    principal: Principal = ANYONE
    query_id: str | None = None
    """None: all queries."""
    summaries: bool = False
    """Summaries instead of whole documents; only for all queries."""

    def has(self, frame: Frame) -> bool:
        """True: the frame is of a selected query, which the principal may see."""
        if self.query_id not in (None, frame.query_id):
            return False
        return self.principal.sees_all or (
            frame.subject is not None and self.principal.sees(frame.subject)
        )


@dataclass(eq=False, repr=False)
class Reader:
    """A connection, and a queue of frames that the ring holds."""

    wire: Wire
    selection: Selection
    _ring: Ring
    missed: deque[Frame] = field(default_factory=deque)
    """Frames from before the reader resumed, kept even if the ring drops them."""
    pending: deque[Frame] = field(default_factory=deque)
    takes_frames: bool = True
    """False while the newest event of every query is written to the reader."""
    ended: bool = False
    """True once nothing more is written to the reader."""
    too_slow: bool = False
    """True if the reader was cut off because the ring dropped its next frame."""
    _awake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, frame: Frame) -> None:
        """Queue a frame. Cut the reader off if the ring has dropped its next frame."""
        if not self.takes_frames or self.ended or not self.selection.has(frame):
            return
        self.pending.append(frame)
        if self.pending[0].number < self._ring.first:
            self.too_slow = True
            self.wire.cut()
            self.end()

    def wake(self) -> None:
        """Let the reader write its pending frames."""
        if self.pending:
            self._awake.set()

    def end(self) -> None:
        """Write nothing more; cut the connection if bytes are unsent."""
        self.ended = True
        self._awake.set()
        if not self.wire.is_clear:
            self.wire.cut()

    async def chunks(self, keep_alive_s: float) -> AsyncIterator[bytes]:
        """The pending frames, then new ones, and a comment after each `keep_alive_s` without
        frames. Ends with the selected query, with the reader, or with its token."""
        while not self.ended and not self.selection.principal.has_ended():
            if chunk := self.take_chunk():
                yield chunk
                # uvicorn's `send` does not yield while its buffer has room: let other tasks run.
                await asyncio.sleep(0)
                continue
            self._awake.clear()
            await until_set(self._awake, keep_alive_s)
            if not self.pending and not self.ended:
                yield sse.KEEP_ALIVE

    def take_chunk(self) -> bytes:
        """The next frames, joined; may be empty. A selected query's last frame ends the reader."""
        frames = self.missed or self.pending
        parts: list[bytes] = []
        size = 0
        while frames and size <= _CHUNK_BYTES:
            frame = frames.popleft()
            parts.append(self._text(frame))
            # A summary takes time in proportion to its document.
            size += len(frame.text)
            if frame.is_last and self.selection.query_id is not None:
                self.ended = True
                break
        return b"".join(parts)

    def _text(self, frame: Frame) -> bytes:
        if self.selection.query_id is not None:
            return frame.of_query
        return self._ring.summary(frame) if self.selection.summaries else frame.text
