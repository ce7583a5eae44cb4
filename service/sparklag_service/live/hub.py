"""The live stream of one instance: its readers, and what they get.

Every reader has a queue of frames that are encoded once, and shared. The hub wakes readers, and
then leaves the loop to others for as long as that took; it cuts off readers that are too slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final

from sparklag_schemas import Settings
from sparklag_schemas.runtime.tasks import until_set, with_pauses
from sparklag_service.counters import Counters
from sparklag_service.live import sse
from sparklag_service.live.reader import Reader, Selection, SharedChunks, Wire
from sparklag_service.live.sse import Ring
from sparklag_service.view.feed import Arrival
from sparklag_service.view.view import View, summary

_MB: Final = 1024 * 1024
_SLICE: Final = 50
"""Readers that are woken before others have the loop."""
_REST_S: Final = 0.01
_TOMBSTONES: Final = 10_000


class TooManyReaders(Exception):
    """`live.max_readers` read already."""


class LiveHub:
    """Follows the feed. `run` must run for any reader to get anything."""

    def __init__(self, settings: Settings, view: View, counters: Counters) -> None:
        self._max_readers = settings.live.max_readers
        self.keep_alive_s = 15.0
        """A stream that is idle for so long gets a comment: proxies end idle connections."""
        self.check_interval_s = 1.0
        self._view = view
        self._counters = counters
        self._ring = Ring(settings.live.resume_mb * _MB)
        self._tombstones: dict[str, tuple[int, int]] = {}
        """Partition and offset."""
        self._shared: SharedChunks = {}
        self._readers: dict[str | None, set[Reader]] = {}
        """By the query they want; None: all."""
        self._wake = asyncio.Event()
        self._closed = False
        self.reading = 0
        """How many readers there are."""
        self.openings = 0
        """How many of them get what comes first."""

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """See Follower."""
        self._ring.begin(restarted)

    def arrived(self, arrival: Arrival) -> None:
        """See Follower."""
        query_id, partition, offset = arrival.query_id, arrival.partition, arrival.offset
        if arrival.event is None:
            body = sse.forgotten(query_id)
            self._tombstones[query_id] = (partition, offset)
            if len(self._tombstones) > _TOMBSTONES:
                del self._tombstones[next(iter(self._tombstones))]
        else:
            body = sse.lag(arrival.document)
            self._tombstones.pop(query_id, None)
        frame = self._ring.put(query_id, partition, offset, body, is_last=arrival.event is None)
        self._shared.clear()
        first_kept = self._ring.first
        for wanted in (None, query_id):
            for reader in self._readers.get(wanted, ()):
                reader.add(frame, first_kept)
        self._wake.set()

    @contextmanager
    def reader(
        self, wire: Wire, selection: Selection, last_id: str | None
    ) -> Iterator[tuple[Reader, Iterator[bytes]]]:
        """Let a reader of that selection in: the reader, and the frames that it gets first.

        `last_id`: the last id that it has seen, of any instance. Raises TooManyReaders.
        """
        if self.reading >= self._max_readers:
            self._counters.stream_refused += 1
            raise TooManyReaders
        self._counters.stream_accepted += 1
        self.reading += 1
        reader, query_id = Reader(wire, selection, self._shared), selection.query_id
        self._readers.setdefault(query_id, set()).add(reader)
        try:
            if self._closed:
                reader.end(at_once=False)
            yield reader, self._opening(reader, last_id)
        finally:
            self.reading -= 1
            self._counters.stream_cut_off += reader.too_slow
            readers = self._readers[query_id]
            readers.discard(reader)
            if not readers:
                del self._readers[query_id]

    @contextmanager
    def opening_written(self) -> Iterator[None]:
        """Count a reader that gets what comes first."""
        self.openings += 1
        try:
            yield
        finally:
            self.openings -= 1

    async def run(self) -> None:
        """Wake and check readers, until cancelled."""
        check_s = time.monotonic() + self.check_interval_s
        while True:
            await until_set(self._wake, check_s - time.monotonic())
            self._wake.clear()
            began_s = time.thread_time()
            await self._wake_readers()
            if time.monotonic() >= check_s:
                await self._check()
                check_s = time.monotonic() + self.check_interval_s
            # Half of the loop's time, at most, is theirs. Not of the clock's: what other processes
            # take is no reason to be late as well.
            await asyncio.sleep(max(_REST_S, time.thread_time() - began_s))

    def close(self) -> None:
        """End every stream, now: the service shuts down."""
        self._closed = True
        for reader in self._all_readers():
            reader.end(at_once=False)

    async def _wake_readers(self) -> None:
        waiting = [reader for reader in self._all_readers() if reader.pending or reader.missed]
        async for reader in with_pauses(waiting, _SLICE):
            reader.wake()
        # Those woken last write as well before the time is taken.
        await asyncio.sleep(0)

    async def _check(self) -> None:
        async for reader in with_pauses(self._all_readers(), _SLICE):
            reader.keep_alive(self.keep_alive_s)

    def _all_readers(self) -> list[Reader]:
        return [reader for readers in self._readers.values() for reader in readers]

    def _opening(self, reader: Reader, last_id: str | None) -> Iterator[bytes]:
        """The newest events; or, for a reader that comes back, nothing, if the ring has what it
        missed."""
        selection, query_id = reader.selection, reader.selection.query_id
        if last_id is None:
            # It has seen no query that could be forgotten. If it loses this on the way, it comes
            # back as a reader that has, and has seen nothing to the end.
            return chain([sse.with_id({}, b"\n")], self._state(reader, {}, []))
        since = sse.parse_id(last_id)
        if since is not None:
            partition = self._partition_of(query_id)
            if since and partition is not None and partition not in since:
                # An id of another query.
                since = None
            elif (missed := self._ring.since(since, partition)) is not None:
                reader.missed.extend(f for f in missed if query_id in (None, f.query_id))
                return iter(())
        self._counters.stream_gaps += 1
        if since is None:
            reason, since = "not an id of this stream: the newest of each query follows", {}
        else:
            reason = "events since then are gone: the newest of each query follows"
            newest = self._ring.offsets
            # A reader that has seen more read another topic, or an instance ahead of this one.
            since = {p: o for p, o in since.items() if o <= newest.get(p, sse.NOTHING_SEEN)}
        forgotten = self._forgotten(selection, since)
        return chain([sse.gap(last_id, reason)], self._state(reader, since, forgotten))

    def _partition_of(self, query_id: str | None) -> int | None:
        entry = self._view.get(query_id) if query_id is not None else None
        return entry.partition if entry is not None else None

    def _state(
        self, reader: Reader, since: Mapping[int, int], forgotten: Iterable[str]
    ) -> Iterator[bytes]:
        """The newest event of every query that changed after those offsets; again of those that
        changed meanwhile, until the ring still has all that came since. The last one carries the
        id: a reader that loses its connection before begins again."""
        held: Callable[[], bytes] = bytes
        while True:
            after = self._read_by_now(reader.selection.query_id)
            reader.catch_up()
            for frame in self._changed(reader.selection, since, forgotten):
                yield held()
                held = frame
            if not reader.overtaken:
                break
            since, forgotten = after, self._forgotten(reader.selection, after)
        reader.is_catching_up = False
        yield sse.with_id(sse.id_parts(after), held() or b"\n")

    def _changed(
        self, selection: Selection, since: Mapping[int, int], forgotten: Iterable[str]
    ) -> Iterator[Callable[[], bytes]]:
        """The frames of one round of that. Each is made when it is written: until then it would be
        held, once for each reader."""
        changed = [selection.query_id] if selection.query_id is not None else self._later(since)
        for query_id in forgotten:
            yield partial(sse.forgotten, query_id)
        for query_id in changed:
            yield partial(self._newest, selection, query_id)

    def _newest(self, selection: Selection, query_id: str) -> bytes:
        """Empty: it is forgotten meanwhile."""
        entry = self._view.get(query_id)
        if entry is None:
            return b""
        return sse.lag(summary(entry.event) if selection.summaries else entry.document)

    def _later(self, since: Mapping[int, int]) -> list[str]:
        return [
            entry.event.query_id
            for entry in self._view
            if _is_later(entry.partition, entry.offset, since)
        ]

    def _forgotten(self, selection: Selection, since: Mapping[int, int]) -> list[str]:
        if selection.query_id is not None:
            return []
        return [i for i, place in self._tombstones.items() if _is_later(*place, since)]

    def _read_by_now(self, query_id: str | None) -> Mapping[int, int]:
        if query_id is None:
            return self._ring.offsets
        entry = self._view.get(query_id)
        return {} if entry is None else {entry.partition: entry.offset}


def _is_later(partition: int, offset: int, since: Mapping[int, int]) -> bool:
    return offset > since.get(partition, sse.NOTHING_SEEN)
