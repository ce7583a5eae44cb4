"""One reader of the live stream: its connection, and the frames that wait for it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple

from sparklag_schemas.runtime.tasks import until_set
from sparklag_service.live import sse
from sparklag_service.live.sse import Frame, Ring

WIRE_STATE: Final = "sparklag.wire"
"""Under which the server puts a request's Wire into its state: ASGI has no way to end a connection.
Where a reader does not read, uvicorn's `send` waits for it without an end, and an abandoned
response is closed only once the reader has taken all that was written before."""
_CHUNK_BYTES: Final = 32 * 1024
"""Written at once, where no single frame is larger."""
_UNSENT_BYTES: Final = 64 * 1024
"""The most that the kernel takes for a connection beyond what is in flight: its buffers grow to
megabytes, and hide for long that nobody reads."""
_RESET: Final = struct.pack("ii", 1, 0)


class Wire:
    """The connection of a request. Without a transport (tests, another server) it does nothing."""

    def __init__(self, transport: asyncio.Transport | None = None, address: str = "") -> None:
        self._transport = transport
        self.address = address
        self.text = b""
        """The part of a response that is being written."""
        self.is_cut = False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that are not yet passed on to the kernel."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_clear(self) -> bool:
        """True once all was passed on to the kernel."""
        return not self.unsent_bytes

    def limit_unsent(self) -> None:
        """Let the kernel take little that it cannot send, so that a slow reader shows. It sends
        each slice at once; asyncio sets that only where a socket names its protocol."""
        self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            self._set(socket.IPPROTO_TCP, option, _UNSENT_BYTES)

    def cut(self) -> None:
        """Reset the connection: the kernel drops what was not sent."""
        if self._transport is not None and not self.is_cut:
            self.is_cut = True
            self._set(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _set(self, level: int, option: int, value: int | bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            connection = self._transport.get_extra_info("socket")
            # A socket without TCP has no such options; the stream works all the same.
            with suppress(OSError):
                connection.setsockopt(level, option, value)


class Selection(NamedTuple):
    """The events that a reader wants."""

    query_id: str | None = None
    """None: those of all queries."""
    summaries: bool = False
    """Summaries in place of whole documents; only of all queries."""


class Reader:
    """A connection and a queue, which holds only frames that are in the ring."""

    def __init__(self, wire: Wire, selection: Selection, ring: Ring) -> None:
        self._ring = ring
        self.wire = wire
        self.selection = selection
        self.missed: deque[Frame] = deque()
        """Frames from before it resumed: they stay, also when the ring has dropped them."""
        self.pending: deque[Frame] = deque()
        self.takes_frames = True
        """False while the newest event of every query is written to it."""
        self.ended = False
        """True once nothing more is written to it."""
        self.too_slow = False
        """True if it was cut off because the ring has dropped its next frame."""
        self._awake = asyncio.Event()

    def add(self, frame: Frame) -> None:
        """Queue a frame. Cut the reader off where the ring has dropped its next one."""
        if not self.takes_frames or self.ended:
            return
        self.pending.append(frame)
        if self.pending[0].number < self._ring.first:
            self.too_slow = True
            self.wire.cut()
            self.end()

    def wake(self) -> None:
        """Let it write what is pending."""
        if self.pending:
            self._awake.set()

    def end(self) -> None:
        """Write nothing more; cut the connection where something is still to be sent."""
        self.ended = True
        self._awake.set()
        if not self.wire.is_clear:
            self.wire.cut()

    async def chunks(self, keep_alive_s: float) -> AsyncIterator[bytes]:
        """The pending frames, then new ones, and a comment after each `keep_alive_s` without any.
        Ends with its query, or with the reader."""
        while not self.ended:
            if chunk := self.take_chunk():
                yield chunk
                # uvicorn waits for no reader as long as there is room: let others have the loop.
                await asyncio.sleep(0)
                continue
            self._awake.clear()
            await until_set(self._awake, keep_alive_s)
            if not self.pending and not self.ended:
                yield sse.KEEP_ALIVE

    def take_chunk(self) -> bytes:
        """The next frames, joined. Empty: there are none. Its query's last frame ends a reader."""
        frames = self.missed or self.pending
        parts: list[bytes] = []
        size = 0
        while frames and size <= _CHUNK_BYTES:
            frame = frames.popleft()
            parts.append(self._text(frame))
            # A summary takes as long to make as its document is long.
            size += len(frame.text)
            if frame.is_last and self.selection.query_id is not None:
                self.ended = True
                break
        return b"".join(parts)

    def _text(self, frame: Frame) -> bytes:
        if self.selection.query_id is not None:
            return frame.of_query
        return self._ring.summary(frame) if self.selection.summaries else frame.text
