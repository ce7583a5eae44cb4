"""The live stream of one instance: its readers, their first frames, and the HTTP response.

Each reader has a queue of frames that are encoded once. The hub wakes readers, then lets other
tasks run for as long as that took. It disconnects readers that are too slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from sparklag_schemas import Settings
from sparklag_schemas.runtime.tasks import TimeSlice, cancel_and_wait, until_set, with_pauses
from sparklag_service.access.principals import Principal, subject_of, visible
from sparklag_service.counters import Counters
from sparklag_service.live import sse
from sparklag_service.live.reader import WIRE_STATE, Reader, Selection, Wire
from sparklag_service.live.sse import Frame, Ring
from sparklag_service.view.feed import Arrival
from sparklag_service.view.view import View, summary

_MB: Final = 1024 * 1024
_SLICE: Final = 50
"""Readers that are woken before other tasks run."""
_REST_S: Final = 0.01
_REPEAT_S: Final = 5.0
"""How often readers get the events that are measured too late, with their age."""
_TOMBSTONES: Final = 10_000
_OPENING_CHUNK_BYTES: Final = 4 * 1024
"""Chunk size of a reader's first frames. Each reader has its own: with a thousand readers, larger
chunks fragment the memory (75 KB a reader, not 36)."""


class TooManyReaders(Exception):
    """The stream has as many readers as `live.max_readers` allows."""


class LiveHub:
    """Sends the feed to the readers of the live stream. They get new events while `run` runs."""

    def __init__(self, settings: Settings, view: View, counters: Counters) -> None:
        self._max_readers = settings.live.max_readers
        self.keep_alive_s = 15.0
        """A stream that is idle for this long gets a comment: proxies close idle connections."""
        self._view = view
        self._counters = counters
        self._ring = Ring(settings.live.resume_mb * _MB)
        self._tombstones: dict[str, Frame] = {}
        """By query id."""
        self._readers: dict[str | None, set[Reader]] = {}
        """The readers by selected query id; None: all queries."""
        self._wake = asyncio.Event()
        self._closed = False
        self.reading = 0
        self.openings = 0
        """The number of readers to which the newest events are being written."""

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self._ring.begin(restarted)

    def arrived(self, arrival: Arrival) -> None:
        query_id, partition, offset = arrival.query_id, arrival.partition, arrival.offset
        is_last = arrival.event is None
        body = sse.forgotten(query_id) if is_last else sse.lag(arrival.document)
        known = arrival.event or arrival.forgotten
        subject = None if known is None else subject_of(known)
        frame = self._ring.put(query_id, partition, offset, body, is_last=is_last, subject=subject)
        self._send(frame)
        self._tombstones.pop(query_id, None)
        if is_last:
            self._tombstones[query_id] = frame
            if len(self._tombstones) > _TOMBSTONES:
                del self._tombstones[next(iter(self._tombstones))]

    def _send(self, frame: Frame) -> None:
        for wanted in (None, frame.query_id):
            for reader in self._readers.get(wanted, ()):
                reader.add(frame)
        self._wake.set()

    @contextmanager
    def reader(
        self, wire: Wire, selection: Selection, last_id: str | None
    ) -> Iterator[tuple[Reader, Iterator[bytes]]]:
        """Admit a reader with that selection. Yields the reader and its first frames.

        `last_id`: the last id that it received, from any instance. Raises TooManyReaders.
        """
        if self.reading >= self._max_readers:
            self._counters.stream_refused += 1
            raise TooManyReaders
        self._counters.stream_accepted += 1
        self.reading += 1
        reader, query_id = Reader(wire, selection, self._ring), selection.query_id
        self._readers.setdefault(query_id, set()).add(reader)
        try:
            if self._closed:
                reader.end()
            yield reader, self._opening(reader, last_id)
        finally:
            self.reading -= 1
            self._counters.stream_cut_off += reader.too_slow
            readers = self._readers[query_id]
            readers.discard(reader)
            if not readers:
                del self._readers[query_id]

    async def run(self) -> None:
        """Wake readers until cancelled, and repeat late events, for which no record arrives."""
        repeat_s = time.monotonic() + _REPEAT_S
        while True:
            await until_set(self._wake, repeat_s - time.monotonic())
            if time.monotonic() >= repeat_s:
                repeat_s = time.monotonic() + _REPEAT_S
                for late in self._view.late() if self.reading else ():
                    if (entry := self._view.get(late.query_id)) is not None:
                        body = sse.lag(self._view.shown(entry).document)
                        at, subject = (entry.partition, entry.offset), subject_of(late)
                        self._send(self._ring.put(late.query_id, *at, body, subject=subject))
            self._wake.clear()
            began_s = time.thread_time()
            waiting = [reader for reader in self._all_readers() if reader.pending]
            async for reader in with_pauses(waiting, _SLICE):
                reader.wake()
            # The readers woken last write before the time is measured.
            await asyncio.sleep(0)
            # Readers get at most half of the loop's time. Thread time, not wall time: time that
            # other processes take is no reason for a longer pause.
            await asyncio.sleep(max(_REST_S, time.thread_time() - began_s))

    def close(self) -> None:
        """End every stream at once: the service shuts down."""
        self._closed = True
        for reader in self._all_readers():
            reader.end()

    def _all_readers(self) -> list[Reader]:
        return [reader for readers in self._readers.values() for reader in readers]

    def _opening(self, reader: Reader, last_id: str | None) -> Iterator[bytes]:
        """The newest events; none for a reader that resumes while the ring has all it missed."""
        query_id = reader.selection.query_id
        if last_id is None:
            # A new reader needs no frames of forgotten queries. If it disconnects before the last
            # of these frames, it resumes without an offset.
            return chain([sse.with_id({}, b"\n")], self._newest_events(reader, {}, []))
        since = sse.parse_id(last_id)
        if since is not None:
            entry = self._view.get(query_id) if query_id is not None else None
            partition = entry.partition if entry is not None else None
            if since and partition is not None and partition not in since:
                # The id is of another query's stream.
                since = None
            elif (missed := self._ring.since(since, partition)) is not None:
                reader.missed.extend(filter(reader.selection.has, missed))
                return iter(())
        self._counters.stream_gaps += 1
        if since is None:
            reason, since = "not an id of this stream: the newest of each query follows", {}
        else:
            reason = "events since then are gone: the newest of each query follows"
            newest = self._ring.offsets
            # A higher offset is of an earlier topic, or of an instance that is ahead.
            since = {p: o for p, o in since.items() if o <= newest.get(p, sse.NO_OFFSET)}
        forgotten = self._forgotten(since, reader.selection) if query_id is None else []
        return chain([sse.gap(last_id, reason)], self._newest_events(reader, since, forgotten))

    def _newest_events(
        self, reader: Reader, since: Mapping[int, int], forgotten: Iterable[str]
    ) -> Iterator[bytes]:
        """The newest event of every query that changed after `since`, repeated for later changes
        until the ring has all newer frames. Each frame is made when it is written. Only the last
        one has the id: a reader that disconnects before it starts over."""
        selection = reader.selection
        if selection.query_id is not None:
            entry = self._view.get(selection.query_id)
            offsets = {} if entry is None else {entry.partition: entry.offset}
            yield self._last_newest(selection, selection.query_id, offsets)
            return
        reader.takes_frames = False
        reader.pending.clear()
        while True:
            after = self._ring.offsets
            yield from map(sse.forgotten, forgotten)
            *changed, last = self._changed(since, selection.principal) or [""]
            for query_id in changed:
                yield self._newest(selection, query_id)
            missed = self._ring.since(after)
            if missed is not None:
                break
            yield self._newest(selection, last)
            since, forgotten = after, self._forgotten(after, selection)
        reader.pending.extend(filter(selection.has, missed))
        reader.takes_frames = True
        yield self._last_newest(selection, last, after)

    def _newest(self, selection: Selection, query_id: str) -> bytes:
        """The frame of a query's newest event; empty if the query was forgotten meanwhile."""
        view = visible(self._view, selection.principal)
        entry = view.get(query_id)
        if entry is None:
            return b""
        entry = view.shown(entry)
        return sse.lag(summary(entry.event) if selection.summaries else entry.document)

    def _last_newest(
        self, selection: Selection, query_id: str, offsets: Mapping[int, int]
    ) -> bytes:
        return sse.with_id(sse.id_parts(offsets), self._newest(selection, query_id) or b"\n")

    def _changed(self, since: Mapping[int, int], principal: Principal) -> list[str]:
        return [
            entry.event.query_id
            for entry in visible(self._view, principal)
            if _is_later(entry.partition, entry.offset, since)
        ]

    def _forgotten(self, since: Mapping[int, int], selection: Selection) -> list[str]:
        return [
            query_id
            for query_id, frame in self._tombstones.items()
            if _is_later(frame.partition, frame.offset, since) and selection.has(frame)
        ]


def _is_later(partition: int, offset: int, since: Mapping[int, int]) -> bool:
    return offset > since.get(partition, sse.NO_OFFSET)


class EventStream(Response):
    """Server-Sent Events of one query or of all, until the reader disconnects or is cut off.

    Plain ASGI: Starlette's StreamingResponse is as fast, but notices a disconnect only at the next
    write.
    """

    media_type = "text/event-stream"

    def __init__(self, hub: LiveHub, selection: Selection, last_id: str | None) -> None:
        # A proxy must neither cache nor buffer the stream.
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._selection = selection
        self._last_id = last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server. Raises TooManyReaders before anything is sent."""
        wire = scope.get("state", {}).get(WIRE_STATE) or Wire()
        with self._hub.reader(wire, self._selection, self._last_id) as (reader, opening):
            disconnected = asyncio.create_task(_until_disconnected(receive, reader))
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                await _write_opening(self._hub, reader, opening, send)
                async for chunk in reader.chunks(self._hub.keep_alive_s):
                    await send(_body(chunk))
                    # Free the chunk while waiting for the next.
                    del chunk
                if not wire.is_cut:
                    await send({**_body(b""), "more_body": False})
                else:
                    # The server treats an end before the disconnect as a failure.
                    await asyncio.wait({disconnected})
            finally:
                await cancel_and_wait(disconnected)


async def _write_opening(hub: LiveHub, reader: Reader, frames: Iterable[bytes], send: Send) -> None:
    hub.openings += 1
    try:
        time_slice = TimeSlice()
        parts: list[bytes] = []
        size = 0
        for frame in chain([sse.OPENING], frames):
            parts.append(frame)
            size += len(frame)
            if size >= _OPENING_CHUNK_BYTES:
                chunk, parts, size = b"".join(parts), [], 0
                await send(_body(chunk))
                # uvicorn's `send` does not yield while its buffer has room: let other tasks run.
                # Not after each chunk, which would slow down thousands of queries.
                await time_slice.rest(hub.openings)
                if reader.ended:
                    return
        await send(_body(b"".join(parts)))
    finally:
        hub.openings -= 1


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _until_disconnected(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end()
