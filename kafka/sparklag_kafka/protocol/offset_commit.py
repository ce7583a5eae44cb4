"""OffsetCommit as bytes: offsets of a group that has no members. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from sparklag_kafka.protocol.encoding import (
    PreparedRequest,
    Reader,
    Versions,
    compact_string,
    newest,
    string,
    varint,
)
from sparklag_schemas import Offsets

_OFFSET_COMMIT: Final = 8
_FLEXIBLE: Final = 8
"""Of Kafka 2.4."""
_OLD: Final = 2
"""Which brokers of Kafka 0.9 to 4 speak."""

_INT32 = Struct(">i")
_NO_MEMBER: Final = _INT32.pack(-1)
"""The generation of a group that was not joined."""
_BROKERS_RETENTION: Final = b"\xff" * 8
_PARTITION = Struct(">iq")
_UNKNOWN_EPOCH: Final = _INT32.pack(-1)
"""Of the leader."""

CommitCodes = dict[str, dict[int, int]]
"""Error codes by topic and partition; 0 is none."""


class OffsetCommitRequest:
    """A group's offsets, with `metadata` beside each. The answer: `OffsetCommitAnswer`.

    A broker refuses it for each partition while the group has members.
    """

    def __init__(self, group: str, offsets: Offsets, metadata: str) -> None:
        self._group = group
        self._offsets = offsets
        self._metadata = metadata

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that speaks `versions`."""
        version = newest(versions, _OFFSET_COMMIT, (_FLEXIBLE, _OLD))
        flexible = version == _FLEXIBLE
        if flexible:
            # Neither member nor static instance.
            head = compact_string(self._group) + _NO_MEMBER + compact_string("") + b"\0"
        else:
            head = string(self._group) + _NO_MEMBER + string("") + _BROKERS_RETENTION
        body = b"".join((head, *self._topics(flexible), b"\0" if flexible else b""))
        return PreparedRequest(
            _OFFSET_COMMIT, version, body, flexible, lambda data: OffsetCommitAnswer(data, flexible)
        )

    def _topics(self, flexible: bool) -> Iterator[bytes]:
        if flexible:
            beside = _UNKNOWN_EPOCH + compact_string(self._metadata) + b"\0"
        else:
            beside = string(self._metadata)
        yield _length(len(self._offsets), flexible)
        for topic, numbers in self._offsets.items():
            yield compact_string(topic) if flexible else string(topic)
            yield _length(len(numbers), flexible)
            for number, offset in numbers.items():
                yield _PARTITION.pack(number, offset)
                yield beside
            if flexible:
                yield b"\0"


class OffsetCommitAnswer(NamedTuple):
    """An answer as it came; `flexible` is its newer form."""

    data: bytes
    flexible: bool

    def read(self) -> CommitCodes:
        """What became of each partition. Raises ResponseUnreadable."""
        reader = Reader(self.data, self.flexible)
        if self.flexible:
            reader.skip(4)  # the throttle time
        codes: CommitCodes = {}
        for _ in range(reader.length(item_size=2)):
            of_topic = codes.setdefault(reader.string(), {})
            for _ in range(reader.length(item_size=6)):
                number = reader.int32()
                of_topic[number] = reader.int16()
                reader.tags()
            reader.tags()
        return codes


def _length(count: int, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else _INT32.pack(count)
