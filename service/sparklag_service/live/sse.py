"""Server-Sent Events: frames and their ids, and the last frames, bounded in bytes. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from sparklag_service.view.view import summary_of_document

NOTHING_SEEN: Final = -1
KEEP_ALIVE: Final = b":\n\n"
OPENING: Final = b"retry: 2000\n\n"
"""How long a reader that lost its connection waits before it comes back, milliseconds."""
_NO_OFFSETS: Final = b"-"
"""Not empty: an empty id is none to a reader, who would come back without one."""
_ID: Final = re.compile(r"\d{1,9}:\d{1,19}(,\d{1,9}:\d{1,19})*")
_MAX_ID: Final = 64 * 1024


def id_parts(offsets: Mapping[int, int]) -> dict[int, bytes]:
    """The parts of an id, by partition, in order."""
    return {p: id_part(p, offset) for p, offset in sorted(offsets.items()) if offset >= 0}


def id_part(partition: int, offset: int) -> bytes:
    """Of one partition, that of a reader that has seen this offset last."""
    return b"%d:%d" % (partition, offset)


def format_id(parts: Mapping[int, bytes]) -> bytes:
    """The id of a reader that has seen so much."""
    return b",".join(parts.values()) or _NO_OFFSETS


def parse_id(text: str) -> dict[int, int] | None:
    """The offsets in an id. None: it is no id of this stream."""
    if text == _NO_OFFSETS.decode():
        return {}
    if len(text) > _MAX_ID or not _ID.fullmatch(text):
        return None
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def lag(document: bytes) -> bytes:
    """An event with that very document, without its id."""
    # Ours has no line breaks. In another writer's JSON they are white space.
    if b"\n" in document or b"\r" in document:
        document = document.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: lag\ndata: " + document + b"\n\n"


def summarized(frame: bytes) -> bytes:
    """A frame of an event, with its summary in place of the document."""
    head, separator, document = frame.partition(b"\ndata: ")
    return head + separator + summary_of_document(document) + b"\n\n"


def forgotten(query_id: str) -> bytes:
    """The query has left a tombstone."""
    return b"event: forgotten\ndata: " + msgspec.json.encode({"query_id": query_id}) + b"\n\n"


def gap(since: str, reason: str) -> bytes:
    """Events are missing from here on; the newest of each query follows."""
    data = msgspec.json.encode({"since": since, "reason": reason})
    return b"event: gap\ndata: " + data + b"\n\n"


def with_id(parts: Mapping[int, bytes], frame: bytes) -> bytes:
    """The frame, with the id of a reader that has seen so much then."""
    return b"id: " + format_id(parts) + b"\n" + frame


_OVERHEAD_BYTES = 400
"""What Python takes for a frame beside its bytes, about."""


class Frame(NamedTuple):
    """An event as it is written to readers."""

    number: int
    """It only rises."""
    query_id: str
    partition: int
    offset: int
    of_all: bytes
    """As readers of all queries get it: its id is of one that has read everything up to it."""
    is_last: bool
    """A tombstone's."""

    @property
    def of_query(self) -> bytes:
        """As readers of its query alone get it."""
        body = self.of_all.partition(b"\n")[2]
        return with_id(id_parts({self.partition: self.offset}), body)

    @property
    def of_summaries(self) -> bytes:
        """As readers of all queries' summaries get it."""
        return self.of_all if self.is_last else summarized(self.of_all)

    @property
    def held_bytes(self) -> int:
        """Of memory."""
        return len(self.of_all) + _OVERHEAD_BYTES


@dataclass
class _Partition:
    """What is here of one partition, since its reading started over last."""

    first_number: int
    """No older frame is of this topic."""
    complete_after: int
    """Every frame after this offset is here."""
    last: int
    """Offset."""


class Ring:
    """Frames, and where in the topic they were."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[Frame] = deque()
        self._partitions: dict[int, _Partition] = {}
        self._id_parts: dict[int, bytes] = {}
        """Of a reader that has seen everything."""
        self._end = 0
        self.held_bytes = 0

    @property
    def first(self) -> int:
        """Number of the oldest frame."""
        return self._end - len(self._frames)

    @property
    def offsets(self) -> dict[int, int]:
        """How far the topic was read: partition, last offset."""
        return {number: partition.last for number, partition in self._partitions.items()}

    def begin(self, restarted: Mapping[int, int]) -> None:
        """Reading of these partitions starts over: no reader can resume from before."""
        for partition, start in restarted.items():
            self._partitions[partition] = _Partition(self._end, start - 1, start - 1)
        self._id_parts = id_parts(self.offsets)

    def put(
        self, query_id: str, partition: int, offset: int, body: bytes, *, is_last: bool
    ) -> Frame:
        """Take a frame in."""
        if partition not in self._partitions:
            self.begin({partition: offset})
        self._partitions[partition].last = offset
        if partition in self._id_parts:
            self._id_parts[partition] = id_part(partition, offset)
        else:
            self._id_parts = id_parts(self.offsets)
        of_all = with_id(self._id_parts, body)
        frame = Frame(self._end, query_id, partition, offset, of_all, is_last)
        self._end += 1
        self._frames.append(frame)
        self.held_bytes += frame.held_bytes
        # The newest stays, however large it is: somebody is about to read it.
        while self.held_bytes > self._max_bytes and len(self._frames) > 1:
            oldest = self._frames.popleft()
            self.held_bytes -= oldest.held_bytes
            of_partition = self._partitions[oldest.partition]
            if oldest.number >= of_partition.first_number:
                of_partition.complete_after = oldest.offset
        return frame

    def since(self, offsets: Mapping[int, int], partition: int | None = None) -> list[Frame] | None:
        """Every frame after those offsets, the oldest first; of one partition, or of all. None:
        some are gone, or never were here."""
        behind = set()
        for number, of_partition in self._partitions.items():
            if partition in (None, number):
                seen = offsets.get(number, NOTHING_SEEN)
                if not of_partition.complete_after <= seen <= of_partition.last:
                    return None
                if seen < of_partition.last:
                    behind.add(number)
        frames: list[Frame] = []
        for frame in reversed(self._frames):
            if not behind:
                break
            if frame.partition in behind:
                is_new = frame.number >= self._partitions[frame.partition].first_number
                if is_new and frame.offset > offsets.get(frame.partition, NOTHING_SEEN):
                    frames.append(frame)
                else:
                    behind.discard(frame.partition)
        return frames[::-1]
