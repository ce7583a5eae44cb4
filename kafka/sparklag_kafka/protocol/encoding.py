"""Primitives of the Kafka protocol: fixed lengths, and the flexible versions with tags. Pure."""

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
"""The lowest and the highest version that a broker supports, by API key."""

CONSUMER_REPLICA_ID: Final = -1
ISOLATION_CODES: Final[Mapping[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}

_INT16, _INT32 = Struct(">h"), Struct(">i")
_VARINT_BITS: Final = 35


class PreparedRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """A request as an aiokafka connection sends it. `make_response` takes the response's bytes.

    It must not decode them: an exception there would close the connection.
    """

    API_KEY = API_VERSION = -1
    SCHEMA = Schema()
    RESPONSE_TYPE: Any = None

    def __init__(
        self,
        key: int,
        version: int,
        body: bytes,
        flexible: bool,
        make_response: Callable[[bytes], Any],
    ) -> None:
        self.API_KEY = key
        self.API_VERSION = version
        self.FLEXIBLE_VERSION = flexible
        self.RESPONSE_TYPE = _ResponseType(make_response)
        self._body = body

    def encode(self) -> bytes:
        return self._body


class _ResponseType:
    """In the place of aiokafka's response class."""

    def __init__(self, make_response: Callable[[bytes], Any]) -> None:
        self._make_response = make_response

    def decode(self, data: BytesIO) -> Any:
        return self._make_response(data.read())


def newest(versions: Versions, key: int, candidates: Iterable[int]) -> int:
    """The first of `candidates` that the broker supports. Raises IncompatibleBrokerVersion."""
    lowest, highest = versions.get(key, (0, -1))
    for version in candidates:
        if lowest <= version <= highest:
            return version
    raise IncompatibleBrokerVersion("the broker is older than Kafka 0.11")


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
    """A cursor in a response of either form. Raises ResponseUnreadable past the response's end."""

    def __init__(self, data: bytes, flexible: bool) -> None:
        self.data = data
        self.at = 0
        self.flexible = flexible

    def skip(self, size: int) -> int:
        """Skip `size` bytes; returns where they began."""
        began = self.at
        self.at += size
        if size < 0 or self.at > len(self.data):
            raise ResponseUnreadable("the response is truncated")
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
        raise ResponseUnreadable("the response has a varint that is too long")

    def length(self, item_size: int) -> int:
        """Of an array whose items take at least `item_size` bytes each; 0 for a null array.

        A length that the response cannot hold is refused before anything is allocated for it.
        """
        length = max(self.varint() - 1 if self.flexible else self.int32(), 0)
        if length * item_size > len(self.data) - self.at:
            raise ResponseUnreadable("the response is truncated")
        return length

    def string(self) -> str:
        """A null string is returned as an empty one."""
        size = max(self.varint() - 1 if self.flexible else self.int16(), 0)
        began = self.skip(size)
        try:
            return self.data[began : self.at].decode()
        except UnicodeDecodeError as error:
            raise ResponseUnreadable("the response has a string that is not UTF-8") from error

    def tags(self) -> None:
        """Skip the tagged fields, which newer brokers may add."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())
