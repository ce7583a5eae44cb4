"""Kafka's ListOffsets and Metadata as bytes, written and read by hand. Pure.

aiokafka reads an answer field by field and whole, which holds the loop ten times as long, and its
Metadata knows no topic ids. Its connections carry these requests as they carry its own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from struct import Struct
from typing import Any, Final, Literal, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import Schema
from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel

Moment = Literal[-1, -2]
LATEST: Final = -1
EARLIEST: Final = -2

_LIST_OFFSETS, _METADATA = 2, 3
_IDS_VERSION: Final = 11
"""Metadata with topic ids, of Kafka 2.8."""
_OLD_VERSION: Final = 4
"""Metadata that can be told not to create topics, of Kafka 0.11."""
_CONSUMER: Final = -1
"""The replica id of one that is no replica."""
_UP_TO: Final[dict[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}

_INT16, _INT32 = Struct(">h"), Struct(">i")
_OFFSETS_HEAD = Struct(">ibi")
_ASKED = Struct(">iq")
_ANSWERED = Struct(">ihqq")
_PARTITION = {True: Struct(">hiii"), False: Struct(">hii")}
_NO_ID: Final = bytes(16)

Versions = dict[int, tuple[int, int]]
Address = tuple[str, int]


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
            known = b"".join((_string(self.topic), _INT32.pack(len(self.numbers)), *asked))
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


class _Prepared(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """A request in the form that a connection sends; its answer comes as bytes."""

    API_KEY = API_VERSION = -1
    SCHEMA = Schema()
    RESPONSE_TYPE: Any = None

    def __init__(self, key: int, version: int, body: bytes, answer: _Answer) -> None:
        self.API_KEY = key
        self.API_VERSION = version
        self.FLEXIBLE_VERSION = answer.flexible
        self.RESPONSE_TYPE = answer
        self._body = body

    def encode(self) -> bytes:
        return self._body


class _Answer:
    """Stands where aiokafka has the class of an answer. Reading is left to who asked."""

    def __init__(self, flexible: bool) -> None:
        self.flexible = flexible

    def decode(self, data: BytesIO) -> bytes | MetadataAnswer:
        return MetadataAnswer(data.read(), self.flexible)


class _OffsetsAnswer(_Answer):
    def decode(self, data: BytesIO) -> bytes:
        return data.read()


class OffsetsRequest:
    """ListOffsets, of one leader. The answer is what `read_offsets` reads."""

    def __init__(self, level: IsolationLevel, parts: Sequence[TopicPart], moment: Moment) -> None:
        head = _OFFSETS_HEAD.pack(_CONSUMER, _UP_TO[level], len(parts))
        self._body = b"".join((head, *(part.encoded(moment) for part in parts)))

    def prepare(self, versions: Versions) -> _Prepared:
        """The request for a broker that speaks `versions`."""
        version = _newest(versions, _LIST_OFFSETS, (3, 2))
        return _Prepared(_LIST_OFFSETS, version, self._body, _OffsetsAnswer(flexible=False))


Answered = tuple[int, int, int, int]


def read_offsets(answer: bytes) -> Iterator[tuple[str, Iterator[Answered]]]:
    """Each topic with the partition, error code, timestamp and offset of its partitions."""
    (topics,) = _INT32.unpack_from(answer, 4)  # behind the throttle time
    at = 8
    for _ in range(topics):
        (length,) = _INT16.unpack_from(answer, at)
        at += 2
        topic = answer[at : at + length].decode()
        (partitions,) = _INT32.unpack_from(answer, at + length)
        at += length + 4
        end = at + partitions * _ANSWERED.size
        yield topic, _ANSWERED.iter_unpack(answer[at:end])
        at = end


class MetadataRequest:
    """Metadata of these topics alone, none of which is created. The answer: `MetadataAnswer`."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def prepare(self, versions: Versions) -> _Prepared:
        """The request for a broker that speaks `versions`: with topic ids, if it has them."""
        version = _newest(versions, _METADATA, (_IDS_VERSION, _OLD_VERSION))
        flexible = version == _IDS_VERSION
        if flexible:
            names = (_NO_ID + _compact_string(topic) + b"\0" for topic in self._topics)
            # Neither creation nor authorized operations, and no tags.
            body = b"".join((_varint(len(self._topics) + 1), *names, b"\0\0\0"))
        else:
            body = b"".join((_INT32.pack(len(self._topics)), *map(_string, self._topics), b"\0"))
        return _Prepared(_METADATA, version, body, _Answer(flexible))


class TopicFound(NamedTuple):
    """A topic as a broker describes it; `leaders` by partition, -1 where there is none."""

    name: str
    error_code: int
    topic_id: str | None
    leaders: dict[int, int]


class MetadataAnswer(NamedTuple):
    """An answer as it came; `flexible` is its newer form."""

    data: bytes
    flexible: bool

    def read(self) -> tuple[dict[int, Address], Iterator[TopicFound]]:
        """The brokers by id, and the topics, each read when it is taken."""
        reader = _Reader(self.data, self.flexible)
        reader.skip(4)  # the throttle time
        brokers = {}
        for _ in range(reader.length()):
            node = reader.int32()
            host = reader.string()
            brokers[node] = (host, reader.int32())
            reader.string()  # the rack
            reader.tags()
        reader.string()  # the cluster's id
        reader.skip(4)  # the controller
        return brokers, (reader.topic() for _ in range(reader.length()))


class _Reader:
    """A place in a Metadata answer, in either form."""

    def __init__(self, data: bytes, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._at = 0

    def topic(self) -> TopicFound:
        data, flexible, partition = self._data, self._flexible, _PARTITION[self._flexible]
        (error_code,) = _INT16.unpack_from(data, self._at)
        self._at += 2
        name = self.string()
        topic_id = None
        if flexible:
            raw = data[self._at : self._at + 16]
            self._at += 16
            topic_id = None if raw == _NO_ID else _id_text(raw)
        self.skip(1)  # whether it is internal
        leaders = {}
        for _ in range(self.length()):
            _, number, leader, *_ = partition.unpack_from(data, self._at)
            leaders[number] = leader
            at = self._at + partition.size
            # Replicas, those in sync and those offline, and tags: nearly always of a few bytes.
            for _ in range(3 if flexible else 0):
                count = data[at]
                if not 0 < count < 0x80:
                    break
                at += 4 * count - 3
            else:
                if flexible and data[at] == 0:
                    self._at = at + 1
                    continue
            self._at += partition.size
            self.numbers()
            self.numbers()
            if flexible:
                self.numbers()
                self.tags()
        if flexible:
            self.skip(4)  # authorized operations
            self.tags()
        return TopicFound(name, error_code, topic_id, leaders)

    def skip(self, size: int) -> None:
        self._at += size

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def length(self) -> int:
        """Of an array; one that is null has none."""
        return max(self.varint() - 1 if self._flexible else self.int32(), 0)

    def numbers(self) -> None:
        """Pass over an array of int32."""
        length = self.length()
        self._at += 4 * length

    def string(self) -> str:
        if self._flexible:
            length = max(self.varint() - 1, 0)
        else:
            (length,) = _INT16.unpack_from(self._data, self._at)
            self._at += 2
            length = max(length, 0)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def tags(self) -> None:
        """Pass over what newer brokers may add."""
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                size = self.varint()
                self._at += size


def _newest(versions: Versions, key: int, known: Iterable[int]) -> int:
    lowest, highest = versions.get(key, (0, -1))
    for version in known:
        if lowest <= version <= highest:
            return version
    raise IncompatibleBrokerVersion("it is older than Kafka 0.11")


def _id_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _compact_string(text: str) -> bytes:
    raw = text.encode()
    return _varint(len(raw) + 1) + raw


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value >= 0x80:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)
