"""One reader of the live stream: its connection, and what it gets next."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from sparklag_service.live import sse
from sparklag_service.live.ring import Frame, Ring

TRANSPORT_STATE: Final = "sparklag.transport"
"""Under which the server puts a request's transport into its state: ASGI has no way to end a
connection. Where a reader does not read, uvicorn's `send` waits for it without an end, and an
abandoned response is closed only once the reader has taken all that was written before."""
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
    """The connection that a request came on."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        # Another server, or none, as in tests, has no transport to show.
        state = scope.get("state", {})
        self._transport = cast(asyncio.WriteTransport | None, state.get(TRANSPORT_STATE))
        self.is_cut = False

    @property
    def is_clear(self) -> bool:
        """Whether all was passed on to the kernel."""
        return self._transport is None or not self._transport.get_write_buffer_size()

    def limit_unsent(self) -> None:
        """From now on the kernel takes little that it cannot send: a slow reader shows."""
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


class Reader:
    """At its position in the ring. It wants `query_id`, or everything."""

    def __init__(self, ring: Ring, shared: SharedChunks, wire: Wire, query_id: str | None) -> None:
        self.query_id = query_id
        self._ring = ring
        self._shared = shared
        self._wire = wire
        self._number = ring.end
        self._since: dict[int, int] = {}
        self._alone_until = ring.end
        self._woken = asyncio.Event()
        self._writing_since_s: float | None = None
        self._wrote_s = time.monotonic()
        self._keep_alive = False
        self.ended = False
        """Nothing more is written to it."""
        self.too_slow = False
        """It was ended for that."""

    @property
    def is_idle(self) -> bool:
        """Whether no write is under way."""
        return self._writing_since_s is None

    def resume(self, since: Mapping[int, int]) -> None:
        """Go on after those offsets, which the ring reaches."""
        self._number = self._ring.number_after(since)
        self._since = dict(since)

    def wake(self) -> None:
        """There may be something to write."""
        self._woken.set()

    def keep_alive(self, idle_s: float) -> None:
        """Write a comment, where nothing was written for so long."""
        if self.is_idle and time.monotonic() - self._wrote_s >= idle_s:
            self._keep_alive = True
            self._woken.set()

    def is_stuck(self, timeout_s: float) -> bool:
        """Whether a write has taken longer than that."""
        return (
            self._writing_since_s is not None
            and time.monotonic() - self._writing_since_s > timeout_s
        )

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

    def write_begins(self) -> None:
        """Until `write_ends`, it is not idle."""
        self._writing_since_s = time.monotonic()

    def write_ends(self) -> None:
        """The write went through."""
        self._writing_since_s = None
        self._wrote_s = time.monotonic()

    async def chunks(self) -> AsyncIterator[bytes]:
        """From its position on, as they come. Ends with its query, or where the ring lacks what
        would be next: then it is too slow."""
        while not self.ended:
            if self._ring.lacks(self._number, self.query_id):
                self.cut_off()
                return
            chunk, is_last = self.next_chunk()
            if chunk:
                yield chunk
                if is_last:
                    return
                # uvicorn waits for no reader as long as there is room: let others have the loop.
                await asyncio.sleep(0)
                continue
            self._woken.clear()
            await self._woken.wait()
            if self._keep_alive:
                self._keep_alive = False
                yield sse.KEEP_ALIVE

    def next_chunk(self) -> tuple[bytes, bool]:
        """What comes next, empty if there is nothing yet; and whether the stream ends with it."""
        if self._number < self._alone_until:
            chunk, self._number, is_last = _joined(
                self._own_frames(), self._alone_until, of_one=self.query_id is not None
            )
            if chunk:
                return chunk, is_last
        chunk, self._number, is_last = self._shared.read(self._number, self.query_id)
        return chunk, is_last

    def _own_frames(self) -> Iterator[tuple[int, bytes, Frame]]:
        """Frames from before it came: no other reader has seen just as much."""
        for number, frame in self._ring.frames(self._number, self.query_id):
            if number >= self._alone_until:
                return
            if frame.offset > self._since.get(frame.partition, sse.NOTHING_SEEN):
                self._since[frame.partition] = frame.offset
                of_all = self.query_id is None
                yield number, sse.format_id(self._since) if of_all else frame.id_of_query, frame


class SharedChunks:
    """What all readers at the same position get, put together once."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._end = -1
        self._chunks: dict[tuple[str | None, int], tuple[bytes, int, bool]] = {}

    def read(self, number: int, query_id: str | None) -> tuple[bytes, int, bool]:
        """A chunk, the number after it, and whether the query ends with it. Empty: no more yet."""
        if self._end != self._ring.end:
            self._end = self._ring.end
            self._chunks.clear()
        key = (query_id, number)
        if key not in self._chunks:
            of_one = query_id is not None
            with_ids = (
                (at, frame.id_of_query if of_one else frame.id_of_all, frame)
                for at, frame in self._ring.frames(number, query_id)
            )
            self._chunks[key] = _joined(with_ids, self._end, of_one=of_one)
        return self._chunks[key]


def _joined(
    with_ids: Iterable[tuple[int, bytes, Frame]], end: int, *, of_one: bool
) -> tuple[bytes, int, bool]:
    """A chunk of frames, each with its number and its id; the number after it, `end` after all of
    them; and whether it ends a stream `of_one` query."""
    parts: list[bytes] = []
    held_bytes = 0
    for number, event_id, frame in with_ids:
        parts.append(sse.with_id(event_id, frame.body))
        held_bytes += len(frame.body)
        is_last = frame.is_last and of_one
        if is_last or held_bytes > CHUNK_BYTES:
            return b"".join(parts), number + 1, is_last
    return b"".join(parts), end, False


def opening_chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in small chunks of about the same size."""
    gathered = bytearray()
    for part in parts:
        gathered += part
        while len(gathered) >= _OPENING_CHUNK_BYTES:
            yield bytes(gathered[:_OPENING_CHUNK_BYTES])
            del gathered[:_OPENING_CHUNK_BYTES]
    if gathered:
        yield bytes(gathered)
