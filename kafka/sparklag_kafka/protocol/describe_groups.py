"""DescribeGroups, and ConsumerGroupDescribe of KIP-848, each for many groups. Pure.

A coordinator describes a group in the request of its protocol. To DescribeGroups one of KIP-848 is
Dead, as is a group that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import (
    PreparedRequest,
    Reader,
    Versions,
    compact_string,
    newest,
    string,
    varint,
)

_DESCRIBE_GROUPS: Final = 15
_CONSUMER_GROUP_DESCRIBE: Final = 69
_VERSION: Final = 0
"""The first of both."""
DEAD: Final = "Dead"
_STABLE: Final = "Stable"
_CONSUMER: Final = "consumer"
_MAX_STATE: Final = 100
"""Characters: Kafka's longest has 19."""

# The least bytes that items of arrays take.
_MIN_GROUP: Final = 14
_MIN_MEMBER: Final = 14
_MIN_TOPIC: Final = 6
_MIN_MEMBER_OF_CONSUMER: Final = 16
_MIN_TOPIC_OF_CONSUMER: Final = 19

_INT32 = Struct(">i")


class GroupDescription(NamedTuple):
    """A group as its coordinator describes it."""

    error_code: int
    state: str
    members: int
    members_without_partitions: int | None
    """None: not known, as while a classic group rebalances, or where it is not of consumers."""


class DescribeGroupsRequest:
    """Of the classic protocol. The response is a `DescribeGroupsResponse`."""

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that supports `versions`."""
        version = newest(versions, _DESCRIBE_GROUPS, (_VERSION,))
        body = b"".join((_INT32.pack(len(self._groups)), *map(string, self._groups)))
        make_response = partial(DescribeGroupsResponse, flexible=False)
        return PreparedRequest(_DESCRIBE_GROUPS, version, body, False, make_response)


class ConsumerGroupDescribeRequest:
    """Of KIP-848's protocol. The response is a `DescribeGroupsResponse`.

    `prepare` raises IncompatibleBrokerVersion where the broker is older than Kafka 3.7.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that supports `versions`."""
        version = newest(versions, _CONSUMER_GROUP_DESCRIBE, (_VERSION,))
        # No authorized operations, and no tags.
        names = map(compact_string, self._groups)
        body = b"".join((varint(len(self._groups) + 1), *names, b"\0\0"))
        make_response = partial(DescribeGroupsResponse, flexible=True)
        return PreparedRequest(_CONSUMER_GROUP_DESCRIBE, version, body, True, make_response)


class DescribeGroupsResponse(NamedTuple):
    """A response, not decoded yet; `flexible` is that of KIP-848's request."""

    data: bytes
    flexible: bool

    def decode(self) -> dict[str, GroupDescription]:
        """By group. Raises ResponseUnreadable."""
        if not self.flexible:
            classic = _ClassicReader(self.data, flexible=False)
            return dict(classic.group() for _ in range(classic.length(_MIN_GROUP)))
        reader = _ConsumerReader(self.data, flexible=True)
        reader.skip(4)  # the throttle time
        return dict(reader.group() for _ in range(reader.length(_MIN_GROUP)))


class _GroupReader(Reader):
    def state(self) -> str:
        state = self.string()
        if len(state) > _MAX_STATE:
            raise ResponseUnreadable("the state of a group is too long")
        return state


class _ClassicReader(_GroupReader):
    def group(self) -> tuple[str, GroupDescription]:
        error_code, group, state = self.int16(), self.string(), self.state()
        protocol_type = self.string()
        self.string()  # the assignor
        # A coordinator has no assignments before all members have theirs.
        is_known = state == _STABLE and protocol_type == _CONSUMER
        members = self.length(_MIN_MEMBER)
        idle: int | None = 0 if is_known or not members else None
        for _ in range(members):
            for _ in range(3):
                self.string()  # the member, its client, its host
            self._bytes()  # its subscription
            assignment = self._bytes()
            if idle is not None:
                has_partitions = _has_partitions(assignment)
                idle = None if has_partitions is None else idle + (not has_partitions)
        return group, GroupDescription(error_code, state, members, idle)

    def _bytes(self) -> bytes:
        began = self.skip(max(self.int32(), 0))
        return self.data[began : self.at]


def _has_partitions(assignment: bytes) -> bool | None:
    """Whether a member, which has written its assignment itself, has partitions. None: it is not of
    the consumer protocol."""
    if not assignment:
        return False
    reader = Reader(assignment, flexible=False)
    try:
        reader.int16()  # the version
        for _ in range(reader.length(_MIN_TOPIC)):
            reader.string()
            partitions = reader.length(4)
            if partitions:
                return True
    except ResponseUnreadable:
        return None
    return False


class _ConsumerReader(_GroupReader):
    def group(self) -> tuple[str, GroupDescription]:
        error_code = self.int16()
        self.string()  # the error
        group, state = self.string(), self.state()
        self.skip(8)  # the epochs
        self.string()  # the assignor
        members = self.length(_MIN_MEMBER_OF_CONSUMER)
        idle = sum(not self._member() for _ in range(members))
        self.skip(4)  # authorized operations
        self.tags()
        return group, GroupDescription(error_code, state, members, idle)

    def _member(self) -> int:
        """How many partitions it has now."""
        for _ in range(3):
            self.string()  # the member, its instance, its rack
        self.skip(4)  # its epoch
        for _ in range(2):
            self.string()  # its client and its host
        for _ in range(self.length(1)):
            self.string()  # a topic that it subscribes to
        self.string()  # the pattern that it does
        partitions = self._assignment()
        self._assignment()  # the one to come
        self.tags()
        return partitions

    def _assignment(self) -> int:
        partitions = 0
        for _ in range(self.length(_MIN_TOPIC_OF_CONSUMER)):
            self.skip(16)  # the topic's id
            self.string()
            count = self.length(4)
            self.skip(4 * count)
            self.tags()
            partitions += count
        self.tags()
        return partitions
