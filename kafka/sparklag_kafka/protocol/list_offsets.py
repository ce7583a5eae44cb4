"""Kafka's ListOffsets as bytes, written and read by hand. Pure.

aiokafka reads an answer field by field and whole, which holds the loop ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct, error
from typing import Final, Literal

from aiokafka.structs import TopicPartition

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import (
    CONSUMER,
    UP_TO,
    PreparedRequest,
    Versions,
    newest,
    string,
)
from sparklag_schemas import IsolationLevel

Moment = Literal[-1, -2]
LATEST: Final = -1
EARLIEST: Final = -2

_LIST_OFFSETS: Final = 2

_INT16, _INT32 = Struct(">h"), Struct(">i")
_OFFSETS_HEAD = Struct(">ibi")
_ASKED = Struct(">iq")
_ANSWERED = Struct(">ihqq")


class TopicPart:
    """Partitions of one topic that are asked of one leader."""

    __slots__ = ("_encoded", "earliest_asked", "numbers", "partitions", "topic")

    def __init__(self, topic: str, numbers: tuple[int, ...]) -> None:
        self.topic = topic
        self.numbers = numbers
        self.partitions = {number: TopicPartition(topic, number) for number in numbers}
        self.earliest_asked = False
        self._encoded: dict[Moment, bytes] = {}

    def encoded(self, moment: Moment) -> bytes:
        """Its place in a ListOffsets request. Kept: it is asked for every second."""
        known = self._encoded.get(moment)
        if known is None:
            asked = (_ASKED.pack(number, moment) for number in self.numbers)
            known = b"".join((string(self.topic), _INT32.pack(len(self.numbers)), *asked))
            self._encoded[moment] = known
        return known

    def cut(self, size: int) -> Sequence[TopicPart]:
        """The same in parts of at most `size` partitions."""
        if len(self.numbers) <= size:
            return (self,)
        starts = range(0, len(self.numbers), size)
        return [TopicPart(self.topic, self.numbers[start : start + size]) for start in starts]


def slices(parts: Iterable[TopicPart], size: int) -> Iterator[list[TopicPart]]:
    """The parts in requests of at most `size` partitions; a topic is in each at most once."""
    some: list[TopicPart] = []
    room = size
    for part in parts:
        for piece in part.cut(size):
            if len(piece.numbers) > room:
                yield some
                some, room = [], size
            some.append(piece)
            room -= len(piece.numbers)
    if some:
        yield some


class OffsetsRequest:
    """ListOffsets, of one leader. The answer is what `read_offsets` reads."""

    def __init__(self, level: IsolationLevel, parts: Sequence[TopicPart], moment: Moment) -> None:
        head = _OFFSETS_HEAD.pack(CONSUMER, UP_TO[level], len(parts))
        self._body = b"".join((head, *(part.encoded(moment) for part in parts)))

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that speaks `versions`."""
        version = newest(versions, _LIST_OFFSETS, (3, 2))
        return PreparedRequest(_LIST_OFFSETS, version, self._body, False, bytes)


class OffsetsAtRequest(OffsetsRequest):
    """The same at times, epoch milliseconds, by topic and partition: asked for is the first offset
    whose record has that time or a later one; -1 where there is none."""

    def __init__(self, level: IsolationLevel, times: Mapping[str, Mapping[int, int]]) -> None:
        topics = (
            b"".join(
                (
                    string(topic),
                    _INT32.pack(len(some)),
                    *(_ASKED.pack(number, at_ms) for number, at_ms in some.items()),
                )
            )
            for topic, some in times.items()
        )
        self._body = b"".join((_OFFSETS_HEAD.pack(CONSUMER, UP_TO[level], len(times)), *topics))


Answered = tuple[int, int, int, int]


def read_offsets(answer: bytes) -> Iterator[tuple[str, Iterator[Answered]]]:
    """Each topic with the partition, error code, timestamp and offset of its partitions.

    Raises ResponseUnreadable.
    """
    try:
        (topics,) = _INT32.unpack_from(answer, 4)  # behind the throttle time
        at = 8
        for _ in range(topics):
            (length,) = _INT16.unpack_from(answer, at)
            at += 2
            topic = answer[at : at + length].decode()
            (partitions,) = _INT32.unpack_from(answer, at + length)
            at += length + 4
            end = at + partitions * _ANSWERED.size
            if min(length, partitions) < 0 or end > len(answer):
                raise ResponseUnreadable("its answer ends in the middle")
            yield topic, _ANSWERED.iter_unpack(answer[at:end])
            at = end
    except (error, UnicodeDecodeError) as cut:
        raise ResponseUnreadable("its answer ends in the middle") from cut
