"""OffsetFetch as bytes: all that groups have committed. Pure.

Most of what comes is what came before: an answer is compared with the bytes of the last one, group
by group and topic by topic, and only what differs is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from sparklag_kafka.errors import OneGroupPerRequest
from sparklag_kafka.protocol.encoding import (
    PreparedRequest,
    Reader,
    Versions,
    compact_string,
    newest,
    string,
    varint,
)

_OFFSET_FETCH: Final = 9
_MANY_GROUPS: Final = 8
"""Of Kafka 3.0."""
_WITH_EPOCH: Final = 5
_WITH_THROTTLE: Final = 3
_OLDEST: Final = 2
"""The first that can be asked for all topics, of Kafka 0.10.2."""
_ALL_TOPICS: Final = {True: b"\0", False: b"\xff\xff\xff\xff"}
_WITH_UNSTABLE: Final = b"\0"
"""Offsets of transactions that are under way are no reason to wait: those before them are said."""
_PAUSE_PARTITIONS: Final = 1_000
"""Reading so many holds the loop for about a millisecond."""
_GROUP_WORTH: Final = 5
"""So many partitions a group or a topic counts for, however small."""

_PARTITION = Struct(">iq")
_EPOCH_SIZE: Final = 4
_PLAIN = Struct(">iq8x")
"""A partition as nearly all are: without a text beside its offset, an error code, or tags."""
_TEXT_AT: Final = 16
_NO_TEXT: Final = 1
"""The greatest length byte of a text that is empty, or null."""
_ZEROS_AT: Final = (17, 18, 19)
"""Where such a one has its error code and tags."""

Committed = dict[int, int]


class TopicAnswer(NamedTuple):
    """What a group has committed in one topic; `failed` are error codes. `raw`: as it came."""

    offsets: Committed
    metadata: dict[int, str]
    """What who committed wrote beside an offset, where that is anything."""
    failed: dict[int, int]
    raw: bytes


class GroupAnswer(NamedTuple):
    """What a group has committed. Partitions without a commit are in none of it.

    `raw`: as it came, in this version of the protocol.
    """

    group: str
    error_code: int
    topics: dict[str, TopicAnswer]
    raw: bytes
    version: int


class OffsetFetchRequest:
    """All that these groups have committed. The answer: `OffsetFetchAnswer`.

    `prepare` raises OneGroupPerRequest where the broker takes no more than one.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that speaks `versions`."""
        version = newest(
            versions, _OFFSET_FETCH, (_MANY_GROUPS, _WITH_EPOCH, _WITH_THROTTLE, _OLDEST)
        )
        group = None
        many = version == _MANY_GROUPS
        if many:
            asked = (compact_string(group) + _ALL_TOPICS[many] + b"\0" for group in self._groups)
            body = b"".join((varint(len(self._groups) + 1), *asked, _WITH_UNSTABLE, b"\0"))
        elif len(self._groups) == 1:
            group = self._groups[0]
            body = string(group) + _ALL_TOPICS[many]
        else:
            raise OneGroupPerRequest("it is older than Kafka 3.0")
        return PreparedRequest(
            *(_OFFSET_FETCH, version, body, many),
            lambda data: OffsetFetchAnswer(data, version, group),
        )


class OffsetFetchAnswer(NamedTuple):
    """An answer as it came, in this version, about `group`; None where it names its groups."""

    data: bytes
    version: int
    group: str | None

    def read(self, known: Mapping[str, GroupAnswer]) -> Iterator[GroupAnswer | None]:
        """Each group when it is taken; None wherever a reader does well to let others go on.

        `known` are earlier answers: one that nothing differs from is given again, as it is. Raises
        ResponseUnreadable.
        """
        reader = _CommitReader(self.data, self.version)
        if self.version >= _WITH_THROTTLE:
            reader.skip(4)  # the throttle time
        if self.group is not None:
            yield from reader.one_group(self.group, reader.at, known.get(self.group))
            return
        for _ in range(reader.length(item_size=5)):
            began = reader.at
            group = reader.string()
            yield from reader.one_group(group, began, known.get(group))


class _CommitReader(Reader):
    """A place in an OffsetFetch answer."""

    def __init__(self, data: bytes, version: int) -> None:
        super().__init__(data, flexible=version == _MANY_GROUPS)
        self._version = version
        self._many = version == _MANY_GROUPS
        self._epoch_size = _EPOCH_SIZE if version >= _WITH_EPOCH else 0
        self._since_pause = 0

    def one_group(
        self, group: str, began: int, before: GroupAnswer | None
    ) -> Iterator[GroupAnswer | None]:
        if self._pause_is_due(_GROUP_WORTH):
            yield None
        if before is not None and before.version != self._version:
            before = None
        if before is not None and self.data.startswith(before.raw, began):
            self.skip(began + len(before.raw) - self.at)
            yield before
            return
        topics: dict[str, TopicAnswer] = {}
        olds = before.topics if before is not None else {}
        for _ in range(self.length(item_size=2)):
            topic_began = self.at
            topic = self.string()
            old = olds.get(topic)
            if old is not None and self.data.startswith(old.raw, topic_began):
                self.skip(topic_began + len(old.raw) - self.at)
                found = old
            else:
                found = TopicAnswer({}, {}, {}, b"")
                for _ in self._partitions(found):
                    yield None
                self.tags()
                found = found._replace(raw=self.data[topic_began : self.at])
            if found.offsets or found.failed:
                topics[topic] = found
            if self._pause_is_due(_GROUP_WORTH):
                yield None
        error_code = self.int16()
        self.tags()
        yield GroupAnswer(group, error_code, topics, self.data[began : self.at], self._version)

    def _pause_is_due(self, read: int) -> bool:
        self._since_pause += read
        if self._since_pause < _PAUSE_PARTITIONS:
            return False
        self._since_pause = 0
        return True

    def _partitions(self, found: TopicAnswer) -> Iterator[None]:
        """Read a topic's partitions into `found`, with pauses."""
        left = self.length(item_size=_PARTITION.size)
        while left:
            some = min(left, _PAUSE_PARTITIONS)
            left -= some
            if not (self._many and self._plain_ones(some, found.offsets)):
                for _ in range(some):
                    self._one_partition(found)
            if self._pause_is_due(some):
                yield

    def _plain_ones(self, count: int, offsets: Committed) -> bool:
        """Read so many if each is as nearly all are."""
        end = self.at + count * _PLAIN.size
        if end > len(self.data):
            return False
        # One that is not plain ends where no other begins: what follows it is not looked at.
        if max(self.data[self.at + _TEXT_AT : end : _PLAIN.size]) > _NO_TEXT or any(
            any(self.data[self.at + place : end : _PLAIN.size]) for place in _ZEROS_AT
        ):
            return False
        found: Committed = dict(_PLAIN.iter_unpack(self.data[self.at : end]))
        if min(found.values()) < 0:
            found = {number: offset for number, offset in found.items() if offset >= 0}
        offsets.update(found)
        self.at = end
        return True

    def _one_partition(self, found: TopicAnswer) -> None:
        number, offset = _PARTITION.unpack_from(self.data, self.skip(_PARTITION.size))
        self.skip(self._epoch_size)
        size = max(self.varint() - 1 if self._many else self.int16(), 0)
        beside = self.skip(size)
        error_code = self.int16()
        self.tags()
        if error_code:
            found.failed[number] = error_code
        elif offset >= 0:
            found.offsets[number] = offset
            if size:
                # It may be any bytes.
                text = self.data[beside : beside + size].decode(errors="replace")
                found.metadata[number] = text
