"""Kafka's ListOffsets, encoded and decoded by hand. Pure.

aiokafka decodes a whole response field by field, which blocks the loop ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, error
from typing import Final, Literal

from aiokafka.protocol.types import String

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import (
    CONSUMER_REPLICA_ID,
    ISOLATION_CODES,
    PreparedRequest,
    Versions,
    newest,
)
from sparklag_schemas import IsolationLevel

OffsetSpec = Literal[-1, -2]
"""The log end offset, or the log start offset."""
LATEST: Final = -1
EARLIEST: Final = -2

_LIST_OFFSETS: Final = 2

_STRING: Final = String("utf-8")
_INT16, _INT32 = Struct(">h"), Struct(">i")
_HEADER = Struct(">ibi")
_REQUESTED = Struct(">iq")
_RETURNED = Struct(">ihqq")


class TopicPart:
    """Partitions of one topic that have one leader."""

    __slots__ = ("_encoded", "earliest_requested", "numbers", "topic")

    def __init__(self, topic: str, numbers: tuple[int, ...]) -> None:
        self.topic = topic
        self.numbers = numbers
        self.earliest_requested = False
        self._encoded: dict[OffsetSpec, bytes] = {}

    def encoded(self, spec: OffsetSpec) -> bytes:
        """The bytes of the part in a ListOffsets request. Cached: it is requested every second."""
        cached = self._encoded.get(spec)
        if cached is None:
            requested = (_REQUESTED.pack(number, spec) for number in self.numbers)
            head = (_STRING.encode(self.topic), _INT32.pack(len(self.numbers)))
            cached = self._encoded[spec] = b"".join((*head, *requested))
        return cached


def slices(parts: Iterable[TopicPart], size: int) -> Iterator[list[TopicPart]]:
    """The parts for each request: at most `size` partitions, and each topic at most once."""
    filling: list[TopicPart] = []
    room = size
    for part in parts:
        for start in range(0, len(part.numbers), size):
            numbers = part.numbers[start : start + size]
            # The part itself has its encoded bytes.
            piece = part if len(part.numbers) <= size else TopicPart(part.topic, numbers)
            if len(piece.numbers) > room:
                yield filling
                filling, room = [], size
            filling.append(piece)
            room -= len(piece.numbers)
    if filling:
        yield filling


class OffsetsRequest:
    """ListOffsets to one leader. `read_offsets` reads the response."""

    def __init__(self, level: IsolationLevel, parts: Sequence[TopicPart], spec: OffsetSpec) -> None:
        head = _HEADER.pack(CONSUMER_REPLICA_ID, ISOLATION_CODES[level], len(parts))
        self._body = b"".join((head, *(part.encoded(spec) for part in parts)))

    def prepare(self, versions: Versions) -> PreparedRequest:
        version = newest(versions, _LIST_OFFSETS, (3, 2))
        return PreparedRequest(_LIST_OFFSETS, version, self._body, False, bytes)


PartitionOffset = tuple[int, int, int, int]
"""Partition, error code, timestamp and offset."""


def read_offsets(response: bytes) -> Iterator[tuple[str, Iterator[PartitionOffset]]]:
    """Each topic with its partitions. Raises ResponseUnreadable."""
    try:
        (topics,) = _INT32.unpack_from(response, 4)  # behind the throttle time
        position = 8
        for _ in range(topics):
            (length,) = _INT16.unpack_from(response, position)
            position += 2
            topic = response[position : position + length].decode()
            (partitions,) = _INT32.unpack_from(response, position + length)
            position += length + 4
            end = position + partitions * _RETURNED.size
            if min(length, partitions) < 0 or end > len(response):
                raise ResponseUnreadable("the response is truncated")
            yield topic, _RETURNED.iter_unpack(response[position:end])
            position = end
    except (error, UnicodeDecodeError) as cause:
        raise ResponseUnreadable("the response is truncated") from cause
