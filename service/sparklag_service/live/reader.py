"""One reader of the live stream: what it is to be told next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

from sparklag_service.live import frames
from sparklag_service.live.connections import Wire
from sparklag_service.live.event_ids import NOTHING_SEEN, format_id
from sparklag_service.live.ring import Frame, Ring

CHUNK_BYTES = 32 * 1024
"""Written at once, where no single frame is larger."""
PIECE_BYTES = 4 * 1024
"""Of what a reader is told first, which is its own: of a thousand that come at once, larger ones
would leave holes in the memory that nothing else fits in (75 KB a reader, not 36)."""


class Reader:
    """At its place in the ring. It wants `query_id`, or everything."""

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
        """That is why."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has been told everything."""
        return self._writing_since_s is None

    def resume(self, since: Mapping[int, int]) -> None:
        """Go on after those places, which the ring reaches."""
        self._number = self._ring.number_after(since)
        self._since = dict(since)

    def wake(self) -> None:
        """There may be something to tell."""
        self._woken.set()

    def keep_alive(self, idle_s: float) -> None:
        """Write a comment, where nothing was written for so long."""
        if self.is_waiting and time.monotonic() - self._wrote_s >= idle_s:
            self._keep_alive = True
            self._woken.set()

    def is_stuck(self, patience_s: float) -> bool:
        """Whether a write has not got through for so long."""
        return (
            self._writing_since_s is not None
            and time.monotonic() - self._writing_since_s > patience_s
        )

    def end(self, *, at_once: bool) -> None:
        """Tell it no more; `at_once`: whatever it has not got yet."""
        self.ended = True
        self._woken.set()
        if at_once or not self.is_waiting or not self._wire.is_clear:
            self._wire.cut()

    def cut_off(self) -> None:
        """It is too slow."""
        self.too_slow = True
        self.end(at_once=True)

    def writes(self) -> None:
        """A write begins."""
        self._writing_since_s = time.monotonic()

    def written(self) -> None:
        """It went through."""
        self._writing_since_s = None
        self._wrote_s = time.monotonic()

    async def chunks(self) -> AsyncIterator[bytes]:
        """From its place on, as it comes. Ends with its query, or where the ring lacks what would
        be next: then it is too slow."""
        while not self.ended:
            if self._ring.lacks(self._number, self.query_id):
                self.cut_off()
                return
            chunk, is_last = self.next_chunk()
            if chunk:
                yield chunk
                if is_last:
                    return
                # uvicorn waits for nobody as long as there is room: others have their turn.
                await asyncio.sleep(0)
                continue
            self._woken.clear()
            await self._woken.wait()
            if self._keep_alive:
                self._keep_alive = False
                yield frames.KEEP_ALIVE

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
        """What was there before it came: no other reader has seen as much as it has."""
        for number, frame in self._ring.frames(self._number, self.query_id):
            if number >= self._alone_until:
                return
            if frame.offset > self._since.get(frame.partition, NOTHING_SEEN):
                self._since[frame.partition] = frame.offset
                place = format_id(self._since) if self.query_id is None else place_of(frame)
                yield number, place, frame


class SharedChunks:
    """What all readers at the same place are told, put together once."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._end = -1
        self._chunks: dict[tuple[str | None, int], tuple[bytes, int, bool]] = {}

    def read(self, number: int, query_id: str | None) -> tuple[bytes, int, bool]:
        """A chunk, the number after it, and whether the query ends with it. Empty: no more yet."""
        if self._end != self._ring.end:
            self._end = self._ring.end
            self._chunks.clear()
        found = self._chunks.get((query_id, number))
        if found is None:
            of_one = query_id is not None
            placed = (
                (at, place_of(frame) if of_one else frame.place, frame)
                for at, frame in self._ring.frames(number, query_id)
            )
            found = self._chunks[query_id, number] = _joined(placed, self._end, of_one=of_one)
        return found


def _joined(
    placed: Iterable[tuple[int, bytes, Frame]], end: int, *, of_one: bool
) -> tuple[bytes, int, bool]:
    """A chunk of frames, each with its number and its id; the number after it, `end` after all of
    them; and whether it ends a stream `of_one` query."""
    parts: list[bytes] = []
    held_bytes = 0
    for number, place, frame in placed:
        parts.append(frames.with_id(place, frame.body))
        held_bytes += len(frame.body)
        is_last = frame.is_last and of_one
        if is_last or held_bytes > CHUNK_BYTES:
            return b"".join(parts), number + 1, is_last
    return b"".join(parts), end, False


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in small pieces of about the same size."""
    gathered = bytearray()
    for part in parts:
        gathered += part
        while len(gathered) >= PIECE_BYTES:
            yield bytes(gathered[:PIECE_BYTES])
            del gathered[:PIECE_BYTES]
    if gathered:
        yield bytes(gathered)


def place_of(frame: Frame) -> bytes:
    """The id of one who follows only this query."""
    return f"{frame.partition}:{frame.offset}".encode()
