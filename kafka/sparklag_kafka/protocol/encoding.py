"""Kafka's words as bytes, in the older form and the newer, with tags. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from struct import Struct
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import Schema

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_schemas import IsolationLevel

Versions = dict[int, tuple[int, int]]

CONSUMER: Final = -1
"""The replica id of one that is no replica."""
UP_TO: Final[Mapping[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}
"""How far it reads."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_VARINT_BITS: Final = 35


class PreparedRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """A request as an aiokafka connection sends it. `answer` takes the answer's bytes.

    It must not read them: what it raised would cost the connection.
    """

    API_KEY = API_VERSION = -1
    SCHEMA = Schema()
    RESPONSE_TYPE: Any = None

    def __init__(
        self, key: int, version: int, body: bytes, flexible: bool, answer: Callable[[bytes], Any]
    ) -> None:
        self.API_KEY = key
        self.API_VERSION = version
        self.FLEXIBLE_VERSION = flexible
        self.RESPONSE_TYPE = _AnswerType(answer)
        self._body = body

    def encode(self) -> bytes:
        return self._body


class _AnswerType:
    """Stands where aiokafka has the class of an answer."""

    def __init__(self, answer: Callable[[bytes], Any]) -> None:
        self._answer = answer

    def decode(self, data: BytesIO) -> Any:
        return self._answer(data.read())


def newest(versions: Versions, key: int, known: Iterable[int]) -> int:
    """The first of `known` that the broker speaks. Raises IncompatibleBrokerVersion."""
    lowest, highest = versions.get(key, (0, -1))
    for version in known:
        if lowest <= version <= highest:
            return version
    raise IncompatibleBrokerVersion("it is older than Kafka 0.11")


def string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def compact_string(text: str) -> bytes:
    raw = text.encode()
    return varint(len(raw) + 1) + raw


def varint(value: int) -> bytes:
    raw = bytearray()
    while value >= 0x80:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)


class Reader:
    """A place in an answer, in either form. Past the answer's end it raises ResponseUnreadable."""

    def __init__(self, data: bytes, flexible: bool) -> None:
        self.data = data
        self.at = 0
        self.flexible = flexible

    def skip(self, size: int) -> int:
        """Pass over `size` bytes; where they began."""
        began = self.at
        self.at += size
        if size < 0 or self.at > len(self.data):
            raise ResponseUnreadable("its answer ends in the middle")
        return began

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self.data, self.skip(2))
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self.data, self.skip(4))
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while shift < _VARINT_BITS:
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ResponseUnreadable("its answer has a number without an end")

    def length(self, item_size: int) -> int:
        """Of an array whose items take at least `item_size` bytes each; one that is null has none.

        So an answer that promises more than it holds is found out before it is read.
        """
        length = max(self.varint() - 1 if self.flexible else self.int32(), 0)
        if length * item_size > len(self.data) - self.at:
            raise ResponseUnreadable("its answer ends in the middle")
        return length

    def string(self) -> str:
        """One that is null is empty."""
        size = max(self.varint() - 1 if self.flexible else self.int16(), 0)
        began = self.skip(size)
        try:
            return self.data[began : self.at].decode()
        except UnicodeDecodeError as error:
            raise ResponseUnreadable("its answer has a name that is no text") from error

    def tags(self) -> None:
        """Pass over what newer brokers may add."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())
