"""Server-Sent Events: frames, their ids, and a ring of the last frames, bounded in bytes. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from sparklag_service.access.principals import Subject
from sparklag_service.view.view import summary_of_document

NO_OFFSET: Final = -1
KEEP_ALIVE: Final = b":\n\n"
OPENING: Final = b"retry: 2000\n\n"
"""Milliseconds until a disconnected reader connects again."""
_NO_OFFSETS: Final = b"-"
"""A browser sends no `Last-Event-ID` for an empty id."""
_ID: Final = re.compile(r"\d{1,9}:\d{1,19}(,\d{1,9}:\d{1,19})*")
_MAX_ID: Final = 64 * 1024
_OVERHEAD_BYTES: Final = 400
"""Approximate memory of a frame besides its bytes."""


def id_parts(offsets: Mapping[int, int]) -> dict[int, bytes]:
    """The parts of an id by partition, in order."""
    return {p: b"%d:%d" % (p, offset) for p, offset in sorted(offsets.items()) if offset >= 0}


def parse_id(text: str) -> dict[int, int] | None:
    """The offsets in an id. None: not an id of this stream."""
    if text == _NO_OFFSETS.decode():
        return {}
    if len(text) > _MAX_ID or not _ID.fullmatch(text):
        return None
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def lag(document: bytes) -> bytes:
    """The frame of a lag event with this document, without an id."""
    # sparklag writes no line breaks. In other JSON they are white space.
    if b"\n" in document or b"\r" in document:
        document = document.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: lag\ndata: " + document + b"\n\n"


def forgotten(query_id: str) -> bytes:
    """The frame of a query whose tombstone was read."""
    return b"event: forgotten\ndata: " + msgspec.json.encode({"query_id": query_id}) + b"\n\n"


def gap(since: str, reason: str) -> bytes:
    """The frame that marks missing events; the newest event of each query follows."""
    data = msgspec.json.encode({"since": since, "reason": reason})
    return b"event: gap\ndata: " + data + b"\n\n"


def with_id(parts: Mapping[int, bytes], frame: bytes) -> bytes:
    """The frame with the id of a reader that has received everything up to these offsets."""
    return b"id: " + (b",".join(parts.values()) or _NO_OFFSETS) + b"\n" + frame


class Frame(msgspec.Struct, eq=False, gc=False):
    """A lag event or a tombstone as sent to readers. All readers share it."""

    number: int
    """Rises by one with each frame."""
    query_id: str
    subject: Subject | None
    """None: the query is unknown, and forgotten."""
    partition: int
    offset: int
    text: bytes
    """The text for readers of all queries: its id has the offsets of every partition."""
    is_last: bool
    """True for a tombstone."""
    summary: bytes = b""
    """The text for readers of summaries; empty until one of them wants it."""

    @property
    def of_query(self) -> bytes:
        """The text for readers of its query alone."""
        body = self.text.partition(b"\n")[2]
        return with_id(id_parts({self.partition: self.offset}), body)

    @property
    def held_bytes(self) -> int:
        return len(self.text) + len(self.summary) + _OVERHEAD_BYTES


@dataclass
class _Partition:
    """The frames of one partition since its reading last restarted."""

    first_number: int
    """Frames with a lower number are from before the restart."""
    complete_after: int
    """Every frame after this offset is in the ring."""
    last: int


class Ring:
    """The last frames, and the last offset of each partition."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[Frame] = deque()
        self._partitions: dict[int, _Partition] = {}
        self._id_parts: dict[int, bytes] = {}
        """The parts of the next frame's id."""
        self._end = 0
        self.held_bytes = 0

    @property
    def first(self) -> int:
        """Number of the oldest frame."""
        return self._end - len(self._frames)

    @property
    def offsets(self) -> dict[int, int]:
        """The last offset read of each partition."""
        return {number: partition.last for number, partition in self._partitions.items()}

    def begin(self, restarted: Mapping[int, int]) -> None:
        """Reading of these partitions restarts: no reader can resume from earlier offsets."""
        for partition, start in restarted.items():
            self._partitions[partition] = _Partition(self._end, start - 1, start - 1)
        self._id_parts = id_parts(self.offsets)

    def put(
        self,
        query_id: str,
        partition: int,
        offset: int,
        body: bytes,
        *,
        is_last: bool = False,
        subject: Subject | None = None,
    ) -> Frame:
        """Append a frame; drop the oldest ones beyond `max_bytes`."""
        if partition not in self._partitions:
            self.begin({partition: offset})
        self._partitions[partition].last = offset
        if partition in self._id_parts:
            self._id_parts[partition] = b"%d:%d" % (partition, offset)
        else:
            self._id_parts = id_parts(self.offsets)
        text = with_id(self._id_parts, body)
        frame = Frame(self._end, query_id, subject, partition, offset, text, is_last)
        self._end += 1
        self._frames.append(frame)
        self.held_bytes += frame.held_bytes
        # The newest frame stays, whatever its size: readers are about to take it.
        while self.held_bytes > self._max_bytes and len(self._frames) > 1:
            oldest = self._frames.popleft()
            self.held_bytes -= oldest.held_bytes
            of_partition = self._partitions[oldest.partition]
            if oldest.number >= of_partition.first_number:
                of_partition.complete_after = oldest.offset
        return frame

    def summary(self, frame: Frame) -> bytes:
        """The frame's text for readers of summaries, made for the first of them."""
        if frame.is_last:
            return frame.text
        if not frame.summary:
            head, separator, document = frame.text.partition(b"\ndata: ")
            frame.summary = head + separator + summary_of_document(document) + b"\n\n"
            if frame.number >= self.first:
                self.held_bytes += len(frame.summary)
        return frame.summary

    def since(self, offsets: Mapping[int, int], partition: int | None = None) -> list[Frame] | None:
        """Every frame after these offsets, oldest first, of one partition or of all. None: some
        frames were dropped, or never read."""
        behind = set()
        for number, of_partition in self._partitions.items():
            if partition in (None, number):
                offset = offsets.get(number, NO_OFFSET)
                if not of_partition.complete_after <= offset <= of_partition.last:
                    return None
                if offset < of_partition.last:
                    behind.add(number)
        frames: list[Frame] = []
        for frame in reversed(self._frames):
            if not behind:
                break
            if frame.partition in behind:
                is_new = frame.number >= self._partitions[frame.partition].first_number
                if is_new and frame.offset > offsets.get(frame.partition, NO_OFFSET):
                    frames.append(frame)
                else:
                    behind.discard(frame.partition)
        return frames[::-1]
