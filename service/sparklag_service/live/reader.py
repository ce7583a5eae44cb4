"""One reader of the live stream: its connection, and what it gets next."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from sparklag_service.live import sse
from sparklag_service.live.sse import Frame

WIRE_STATE: Final = "sparklag.wire"
"""Under which the server puts a request's Wire into its state: ASGI has no way to end a connection.
Where a reader does not read, uvicorn's `send` waits for it without an end, and an abandoned
response is closed only once the reader has taken all that was written before."""
CHUNK_BYTES: Final = 32 * 1024
"""Written at once, where no single frame is larger."""
_OPENING_CHUNK_BYTES: Final = 4 * 1024
"""Of what a reader gets first, which is its own: of a thousand that come at once, larger ones would
leave holes in the memory that nothing else fits in (75 KB a reader, not 36)."""
_UNSENT_BYTES: Final = 64 * 1024
"""What the kernel takes for a connection beyond what is in flight: its buffers grow to megabytes,
and hide for long that nobody reads."""
_RESET: Final = struct.pack("ii", 1, 0)


class Wire:
    """The connection that a request came on. Another server, or none, as in tests, has no transport
    to show."""

    def __init__(self, transport: asyncio.Transport | None = None, address: str = "") -> None:
        self._transport = transport
        self.address = address
        self.text = b""
        """That is being written."""
        self.is_cut = False

    @property
    def unsent_bytes(self) -> int:
        """Not yet passed on to the kernel."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_clear(self) -> bool:
        """Whether all was passed on to the kernel."""
        return not self.unsent_bytes

    def limit_unsent(self) -> None:
        """From now on the kernel takes little that it cannot send: a slow reader shows. It sends
        each slice at once; asyncio asks for that only where a socket names its protocol."""
        self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            self._set(socket.IPPROTO_TCP, option, _UNSENT_BYTES)

    def cut(self) -> None:
        """End it now, whatever was not sent: the kernel drops it too, and the reader is reset."""
        if self._transport is not None and not self.is_cut:
            self.is_cut = True
            self._set(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _set(self, level: int, option: int, value: int | bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            connection = self._transport.get_extra_info("socket")
            # Without TCP the stream works as well, only less well guarded.
            with suppress(OSError):
                connection.setsockopt(level, option, value)


class Chunk(NamedTuple):
    """What is written at once."""

    text: bytes
    frames: int
    is_last: bool
    """The stream ends with it."""


class Selection(NamedTuple):
    """What a reader wants."""

    query_id: str | None = None
    """None: all queries."""
    summaries: bool = False
    """In place of whole documents; of all queries."""

    def frame(self, frame: Frame) -> bytes:
        """As such a reader gets it."""
        if self.summaries:
            return frame.of_summaries
        return frame.of_all if self.query_id is None else frame.of_query


SharedChunks = dict[tuple[Selection, int, int], Chunk]
"""What all readers of a selection get to whom the same frames are new: its numbers."""


class Reader:
    """Its connection and the frames that wait for it."""

    def __init__(self, wire: Wire, selection: Selection, shared: SharedChunks) -> None:
        self.selection = selection
        self.missed: deque[Frame] = deque()
        """From before it came back: no other reader has missed just these. The oldest first."""
        self.pending: deque[Frame] = deque()
        """All that came since."""
        self._shared = shared
        self._wire = wire
        self._woken = asyncio.Event()
        self._wrote_s = time.monotonic()
        self._keep_alive = False
        self.is_idle = True
        """No write is under way."""
        self.is_catching_up = False
        """The newest events are written to it."""
        self.overtaken = False
        """Meanwhile, frames came and were gone again."""
        self.ended = False
        """Nothing more is written to it."""
        self.too_slow = False
        """It was ended for that."""

    def catch_up(self) -> None:
        """From here on the newest events are written to it. One of a query alone gets each frame
        since: the last one ends its stream."""
        self.pending.clear()
        self.is_catching_up = self.selection.query_id is None
        self.overtaken = False

    def add(self, frame: Frame, first_kept: int) -> None:
        """It gets this frame too. It is too slow where its next one is older than `first_kept`, and
        overtaken while it catches up."""
        self.pending.append(frame)
        if self.pending[0].number < first_kept and not self.ended:
            if self.is_catching_up:
                self.pending.clear()
                self.overtaken = True
            else:
                self.cut_off()

    def wake(self) -> None:
        """There may be something to write."""
        self._woken.set()

    def keep_alive(self, idle_s: float) -> None:
        """Write a comment, where nothing was written for so long."""
        if self.is_idle and time.monotonic() - self._wrote_s >= idle_s:
            self._keep_alive = True
            self._woken.set()

    def end(self, *, at_once: bool) -> None:
        """Write no more; `at_once`: drop what it has not received yet."""
        self.ended = True
        self._woken.set()
        if at_once or not self.is_idle or not self._wire.is_clear:
            self._wire.cut()

    def cut_off(self) -> None:
        """It is too slow."""
        self.too_slow = True
        self.end(at_once=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Meanwhile it is not idle."""
        self.is_idle = False
        yield
        self.is_idle = True
        self._wrote_s = time.monotonic()

    async def chunks(self) -> AsyncIterator[bytes]:
        """What waits for it, and what comes. Ends with its query, or when it is ended."""
        while not self.ended:
            chunk = self.take_chunk()
            if chunk is not None:
                yield chunk.text
                if chunk.is_last:
                    return
                # uvicorn waits for no reader as long as there is room: let others have the loop.
                await asyncio.sleep(0)
                continue
            self._woken.clear()
            await self._woken.wait()
            if self._keep_alive:
                self._keep_alive = False
                yield sse.KEEP_ALIVE

    def take_chunk(self) -> Chunk | None:
        """What comes next. None: nothing yet."""
        frames = self.missed or self.pending
        if not frames:
            return None
        key = (self.selection, frames[0].number, frames[-1].number)
        chunk = None if self.missed else self._shared.get(key)
        if chunk is None:
            chunk = _joined(frames, self.selection)
            if not self.missed:
                self._shared[key] = chunk
        for _ in range(chunk.frames):
            frames.popleft()
        return chunk


def _joined(frames: Iterable[Frame], selection: Selection) -> Chunk:
    parts: list[bytes] = []
    size = 0
    for frame in frames:
        parts.append(selection.frame(frame))
        # Of the documents: a summary takes as long to make as its document is long.
        size += len(frame.of_all)
        if frame.is_last and selection.query_id is not None:
            return Chunk(b"".join(parts), len(parts), True)
        if size > CHUNK_BYTES:
            break
    return Chunk(b"".join(parts), len(parts), False)


def opening_chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes: small parts together, a large one as it is."""
    gathered: list[bytes] = []
    size = 0
    for part in parts:
        gathered.append(part)
        size += len(part)
        if size >= _OPENING_CHUNK_BYTES:
            chunk = b"".join(gathered)
            gathered.clear()
            size = 0
            yield chunk
    if gathered:
        yield b"".join(gathered)
