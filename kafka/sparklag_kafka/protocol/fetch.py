"""Kafka's Fetch as bytes, of many partitions at once, none of which is waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from aiokafka.errors import NoError, for_code

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import (
    CONSUMER_REPLICA_ID,
    ISOLATION_CODES,
    PreparedRequest,
    Reader,
    Versions,
    newest,
    string,
)
from sparklag_schemas import IsolationLevel

_FETCH: Final = 1
_WITH_SESSION: Final = 10
"""Of Kafka 2.1. Before it no broker gives what is compressed by zstd."""
_OLDEST: Final = 4
"""With isolation levels, of Kafka 0.11."""
_AT_ONCE: Final = 0
"""Milliseconds to wait for, and bytes to wait for."""
_NO_SESSION: Final = (0, -1)
_UNKNOWN: Final = -1

_INT32 = Struct(">i")
_HEAD = Struct(">iiiib")
_SESSION = Struct(">ii")
_ASKED = {_WITH_SESSION: Struct(">iiqqi"), _OLDEST: Struct(">iqi")}
_ANSWERED = {_WITH_SESSION: Struct(">ihqqq"), _OLDEST: Struct(">ihqq")}
_ABORTED = Struct(">qq")
_LEAST_BYTES: Final = {_WITH_SESSION: 38, _OLDEST: 30}
"""Of a partition in an answer."""


class Aborted(NamedTuple):
    """A transaction that came to nothing, as far as its producer's records are from there on."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    """What a leader gives of a partition: whole batches, and at the end a piece of another."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[Aborted]
    records: bytes

    def ends_at(self, level: IsolationLevel) -> int:
        """Where a reader of that level comes to the end."""
        return self.last_stable_offset if level == "read_committed" else self.high_watermark


Place = tuple[int, int, int]
"""A partition, the offset to read from, and how many bytes at most. A batch that is larger is left
out, but for the first in the request."""


class FetchRequest:
    """The records at these places, of each topic, of `level`. The answer: `FetchAnswer`."""

    def __init__(
        self, level: IsolationLevel, places: Mapping[str, Iterable[Place]], most_bytes: int
    ) -> None:
        self._head = _HEAD.pack(
            CONSUMER_REPLICA_ID, _AT_ONCE, _AT_ONCE, most_bytes, ISOLATION_CODES[level]
        )
        self._places = places

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that speaks `versions`."""
        version = newest(versions, _FETCH, (_WITH_SESSION, _OLDEST))
        with_session = version == _WITH_SESSION
        asked = _ASKED[version]
        parts = [self._head]
        if with_session:
            parts.append(_SESSION.pack(*_NO_SESSION))
        parts.append(_INT32.pack(len(self._places)))
        for topic, some in self._places.items():
            places = [
                asked.pack(number, _UNKNOWN, offset, _UNKNOWN, size)
                if with_session
                else asked.pack(number, offset, size)
                for number, offset, size in some
            ]
            parts += [string(topic), _INT32.pack(len(places)), *places]
        if with_session:
            parts.append(_INT32.pack(0))  # nothing to forget
        return PreparedRequest(
            *(_FETCH, version, b"".join(parts), False), lambda data: FetchAnswer(data, version)
        )


class FetchAnswer(NamedTuple):
    """An answer as it came, in this version."""

    data: bytes
    version: int

    def read(self) -> Iterator[Fetched]:
        """Each partition when it is taken. One that was asked for and is not in it was held back:
        the client has had its share. Raises KafkaError, ResponseUnreadable among them."""
        reader = Reader(self.data, flexible=False)
        reader.skip(4)  # the throttle time
        with_session = self.version == _WITH_SESSION
        if with_session:
            error = for_code(reader.int16())
            if error is not NoError:
                raise error("of the whole request")
            reader.skip(4)  # the session
        answered = _ANSWERED[self.version]
        for _ in range(reader.length(item_size=6)):
            topic = reader.string()
            for _ in range(reader.length(_LEAST_BYTES[self.version])):
                number, error_code, high, stable, *_ = answered.unpack_from(
                    self.data, reader.skip(answered.size)
                )
                aborted = [
                    Aborted(*_ABORTED.unpack_from(self.data, reader.skip(_ABORTED.size)))
                    for _ in range(reader.length(_ABORTED.size))
                ]
                size = max(reader.int32(), 0)
                began = reader.skip(size)
                records = self.data[began : began + size]
                yield Fetched(topic, number, error_code, high, stable, aborted, records)
        if reader.at != len(self.data):
            raise ResponseUnreadable("its answer goes on after its end")
