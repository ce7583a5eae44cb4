"""ListGroups and FindCoordinator as bytes: which groups there are, and who keeps them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

_FIND_COORDINATOR, _LIST_GROUPS = 10, 16
_LIST_FLEXIBLE: Final = 3
_LIST_OLD: Final = 1
_FIND_MANY: Final = 4
"""FindCoordinator of many groups at once, of Kafka 3.0."""
_FIND_ONE: Final = 1
_GROUP_KIND: Final = b"\0"
_NOT_OF_CONSUMERS: Final = frozenset({"share"})
"""Protocol types of groups that commit no offsets."""


class ListGroupsRequest:
    """The groups that one broker coordinates. The answer: `ListGroupsAnswer`."""

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that speaks `versions`."""
        version = newest(versions, _LIST_GROUPS, (_LIST_FLEXIBLE, 2, _LIST_OLD))
        flexible = version == _LIST_FLEXIBLE
        body = b"\0" if flexible else b""
        return PreparedRequest(
            _LIST_GROUPS, version, body, flexible, lambda data: ListGroupsAnswer(data, flexible)
        )


class ListGroupsAnswer(NamedTuple):
    """An answer as it came; `flexible` is its newer form."""

    data: bytes
    flexible: bool

    def read(self) -> tuple[int, Iterator[str]]:
        """The error code, and the ids of consumer groups, each read when it is taken.

        Raises ResponseUnreadable, also while they are taken.
        """
        reader = Reader(self.data, self.flexible)
        reader.skip(4)  # the throttle time
        return reader.int16(), _group_ids(reader)


def _group_ids(reader: Reader) -> Iterator[str]:
    for _ in range(reader.length(item_size=2)):
        group_id = reader.string()
        protocol_type = reader.string()
        reader.tags()
        if protocol_type not in _NOT_OF_CONSUMERS:
            yield group_id


class FindCoordinatorRequest:
    """Who coordinates these groups. The answer: `CoordinatorsAnswer`.

    `prepare` raises OneGroupPerRequest where the broker takes no more than one.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that speaks `versions`."""
        version = newest(versions, _FIND_COORDINATOR, (_FIND_MANY, 2, _FIND_ONE))
        group = None
        if version == _FIND_MANY:
            keys = map(compact_string, self._groups)
            body = b"".join((_GROUP_KIND, varint(len(self._groups) + 1), *keys, b"\0"))
        elif len(self._groups) == 1:
            group = self._groups[0]
            body = string(group) + _GROUP_KIND
        else:
            raise OneGroupPerRequest("it is older than Kafka 3.0")
        return PreparedRequest(
            *(_FIND_COORDINATOR, version, body, group is None),
            lambda data: CoordinatorsAnswer(data, group),
        )


class Coordinator(NamedTuple):
    """Who coordinates a group, as some broker says: a broker's id, or why none is known."""

    group: str
    node: int
    error_code: int


class CoordinatorsAnswer(NamedTuple):
    """An answer as it came, to a question about `group`, or, where that is None, about several."""

    data: bytes
    group: str | None

    def read(self) -> Iterator[Coordinator]:
        """Each when it is taken. Raises ResponseUnreadable."""
        reader = Reader(self.data, flexible=self.group is None)
        reader.skip(4)  # the throttle time
        if self.group is not None:
            error_code = reader.int16()
            reader.string()  # the error in words
            yield Coordinator(self.group, reader.int32(), error_code)
            return
        for _ in range(reader.length(item_size=14)):
            group = reader.string()
            node = reader.int32()
            reader.string()  # its host
            reader.int32()  # its port
            error_code = reader.int16()
            reader.string()
            reader.tags()
            yield Coordinator(group, node, error_code)
