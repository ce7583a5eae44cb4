"""Requests about many consumer groups, in aiokafka's types (ADR 0017). Pure.

aiokafka's OffsetFetch takes one group. A coordinator describes a group only by the request of the
group's protocol, DescribeGroups or ConsumerGroupDescribe (KIP-848): DescribeGroups returns Dead for
a group of KIP-848, as for an unknown group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

from aiokafka.protocol.admin import DescribeGroupsRequest_v0, DescribeGroupsResponse_v0
from aiokafka.protocol.commit import OffsetFetchRequest as SingleGroupRequest
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
    UnsignedVarInt32,
)

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import PreparedRequest, Versions, newest
from sparklag_kafka.protocol.requests import not_taken

_OFFSET_FETCH: Final = 9
_DESCRIBE_GROUPS: Final = 15
_CONSUMER_GROUP_DESCRIBE: Final = 69
_MANY_GROUPS: Final = 8
"""The version of OffsetFetch of Kafka 3.0."""
_ALL_TOPICS: Final = None
_REQUIRE_STABLE: Final = False
"""Open transactions do not delay the response: it has the offsets committed before them."""
DEAD: Final = "Dead"
STABLE: Final = "Stable"
_CONSUMER: Final = "consumer"
_MAX_STATE: Final = 100
"""Characters; Kafka's longest state has 19."""

_NAME: Final = CompactString("utf-8")
_TAGS: Final = ("", TaggedFields)
_FETCH_REQUEST: Final = Schema(
    ("groups", CompactArray(("group", _NAME), ("topics", CompactArray(Int8)), _TAGS)),
    *(("require_stable", Boolean), _TAGS),
)
_DESCRIBE_REQUEST: Final = Schema(
    ("groups", CompactArray(_NAME)), ("authorized_operations", Boolean), _TAGS
)
_PLAIN: Final = struct.Struct(">iqiBhB")
"""A partition with empty metadata: after the epoch follow the length of the metadata, the error
code and the number of tags."""


class _PartitionArray(CompactArray):  # type: ignore[misc]  # aiokafka has no types
    """Four times as fast as CompactArray where every partition is plain and without an error."""

    def decode(self, data: BytesIO) -> Any:
        start = data.tell()
        size = max(UnsignedVarInt32.decode(data) - 1, 0) * _PLAIN.size
        plain = data.read(size)
        if len(plain) == size:
            rows = list(_PLAIN.iter_unpack(plain))
            if all(length <= 1 and not code and not tags for *_, length, code, tags in rows):
                return [(number, offset, epoch, None, 0, {}) for number, offset, epoch, *_ in rows]
        data.seek(start)
        return super().decode(data)


_PARTITIONS: Final = _PartitionArray(
    *(("partition", Int32), ("offset", Int64), ("leader_epoch", Int32)),
    *(("metadata", CompactBytes), ("error_code", Int16), _TAGS),
)
_TOPICS: Final = CompactArray(("topic", _NAME), ("partitions", _PARTITIONS), _TAGS)
_COMMITTED: Final = Schema(
    ("throttle_time_ms", Int32),
    ("groups", CompactArray(("group", _NAME), ("topics", _TOPICS), ("error_code", Int16), _TAGS)),
    _TAGS,
)
_ASSIGNED_TOPIC: Final = Schema(
    *(("id_high", Int64), ("id_low", Int64), ("topic", _NAME)),
    *(("partitions", CompactArray(Int32)), _TAGS),
)
_ASSIGNMENT: Final = Schema(("topics", CompactArray(_ASSIGNED_TOPIC)), _TAGS)
_MEMBER: Final = Schema(
    *(("member", _NAME), ("instance", _NAME), ("rack", _NAME), ("epoch", Int32)),
    *(("client", _NAME), ("host", _NAME), ("topics", CompactArray(_NAME)), ("pattern", _NAME)),
    *(("assignment", _ASSIGNMENT), ("target_assignment", _ASSIGNMENT), _TAGS),
)
_GROUP: Final = Schema(
    *(("error_code", Int16), ("error", _NAME), ("group", _NAME), ("state", _NAME)),
    *(("epoch", Int32), ("assignment_epoch", Int32), ("assignor", _NAME)),
    *(("members", CompactArray(_MEMBER)), ("authorized_operations", Int32), _TAGS),
)
_DESCRIBED: Final = Schema(("throttle_time_ms", Int32), ("groups", CompactArray(_GROUP)), _TAGS)
_CLASSIC_ASSIGNMENT: Final = Schema(
    ("version", Int16), ("topics", Array(("topic", String()), ("partitions", Array(Int32))))
)
"""The beginning of an assignment; the rest depends on the assignor."""


class CommittedTopic(NamedTuple):
    """Values by partition, without partitions that have no commit."""

    offsets: dict[int, int]
    metadata: dict[int, str]
    """The text that the client committed with an offset, unless it is empty."""
    error_codes: dict[int, int]


class CommittedGroup(NamedTuple):
    """All that a group has committed."""

    error_code: int
    topics: dict[str, CommittedTopic]


class GroupDescription(NamedTuple):
    """A group as its coordinator describes it."""

    error_code: int
    state: str
    members: int
    members_without_partitions: int | None
    """None: not known: a classic group rebalances, or its protocol type is not `consumer`."""
    assigned: Mapping[str, set[int]] | None = None
    """The partitions of all members of a stable group, by topic. None: not known, or no member."""


_Assignment = Sequence[tuple[str, Sequence[int] | None]] | None

Group = TypeVar("Group", CommittedGroup, GroupDescription)


@dataclass(frozen=True)
class GroupsResponse(Generic[Group]):
    """A response as received, not decoded yet: equal responses have equal contents."""

    data: bytes
    read: Callable[..., dict[str, Group]]
    context: tuple[Any, ...] = ()
    """Further arguments of `read`."""

    def decode(self) -> dict[str, Group]:
        """The groups by id; takes 1 to 3 µs for each partition. Raises ResponseUnreadable."""
        try:
            return self.read(BytesIO(self.data), *self.context)
        except (ValueError, struct.error) as error:
            raise ResponseUnreadable("its response about groups is malformed") from error


OffsetFetchResponse = GroupsResponse[CommittedGroup]
DescribeGroupsResponse = GroupsResponse[GroupDescription]


class OffsetFetchRequest:
    """The committed offsets of these groups. The response is an `OffsetFetchResponse`.

    `prepare` raises IncompatibleBrokerVersion where the broker does not take several groups.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def prepare(self, versions: Versions) -> PreparedRequest:
        lowest, highest = versions.get(_OFFSET_FETCH, (0, -1))
        if lowest <= _MANY_GROUPS <= highest:
            groups: list[Any] = [(group, _ALL_TOPICS, {}) for group in self._groups]
            body = _FETCH_REQUEST.encode((groups, _REQUIRE_STABLE, {}))
            return PreparedRequest(
                *(_OFFSET_FETCH, _MANY_GROUPS, body, True),
                lambda data: OffsetFetchResponse(data, committed_groups),
            )
        if len(self._groups) > 1:
            raise not_taken(_OFFSET_FETCH)
        (group,) = self._groups
        newest(versions, _OFFSET_FETCH, (3, 2, 1))
        request = SingleGroupRequest(group, _ALL_TOPICS).prepare(versions)
        context = (group, request.RESPONSE_TYPE)
        return PreparedRequest(
            *(_OFFSET_FETCH, request.API_VERSION, request.encode(), False),
            lambda data: OffsetFetchResponse(data, _committed_by, context),
        )


class DescribeGroupsRequest:
    """Groups of the classic protocol, or of KIP-848's. The response is a `DescribeGroupsResponse`.

    `prepare` raises IncompatibleBrokerVersion where the broker lacks the protocol.
    """

    def __init__(self, groups: Sequence[str], *, classic: bool) -> None:
        self._groups = groups
        self._classic = classic

    def prepare(self, versions: Versions) -> PreparedRequest:
        if self._classic:
            key, read = _DESCRIBE_GROUPS, _classic_groups
            body = DescribeGroupsRequest_v0(self._groups).encode()
        else:
            key, read = _CONSUMER_GROUP_DESCRIBE, _consumer_groups
            body = _DESCRIBE_REQUEST.encode((self._groups, False, {}))
        return PreparedRequest(
            *(key, newest(versions, key, (0,)), body, not self._classic),
            lambda data: DescribeGroupsResponse(data, read),
        )


def committed_groups(data: BytesIO) -> dict[str, CommittedGroup]:
    """The groups in a response of OffsetFetch about several groups."""
    _, groups, _ = _COMMITTED.decode(data)
    return {
        group: _committed(((t, map(_without_epoch, rows or ())) for t, rows, _ in topics or ()), c)
        for group, topics, c, _ in groups or ()
    }


def _committed_by(data: BytesIO, group: str, response_type: Any) -> dict[str, CommittedGroup]:
    response = response_type.decode(data)
    return {group: _committed(response.topics or (), response.error_code)}


def _without_epoch(row: Any) -> Any:
    """A partition as in a response about one group."""
    number, offset, _, metadata, error_code, _ = row
    # A client may commit any bytes.
    return number, offset, metadata and metadata.decode(errors="replace"), error_code


def _committed(topics: Iterable[tuple[str, Any]], error_code: int) -> CommittedGroup:
    committed = CommittedGroup(error_code, {})
    for name, rows in topics:
        if name is None:
            raise ValueError("a topic without a name")
        topic = CommittedTopic({}, {}, {})
        for number, offset, metadata, code in rows or ():
            if code:
                topic.error_codes[number] = code
            elif offset >= 0:
                topic.offsets[number] = offset
                if metadata:
                    topic.metadata[number] = metadata
        if topic.offsets or topic.error_codes:
            committed.topics[name] = topic
    return committed


def _classic_groups(data: BytesIO) -> dict[str, GroupDescription]:
    described = {}
    for code, group, state, protocol_type, _, members in (
        DescribeGroupsResponse_v0.decode(data).groups or ()
    ):
        assignments = [_assignment(assignment) for *_, assignment in members or ()]
        # A coordinator has no assignments until the leader has assigned all members.
        is_known = not assignments or (state == STABLE and protocol_type == _CONSUMER)
        described[group] = _description(code, state, assignments, is_known=is_known)
    return described


def _assignment(encoded: bytes | None) -> _Assignment:
    """The partitions of a member by topic. None: another protocol than `consumer`."""
    try:
        topics = _CLASSIC_ASSIGNMENT.decode(BytesIO(encoded))[1] if encoded else ()
    except ValueError:
        return None
    return topics or ()


def _consumer_groups(data: BytesIO) -> dict[str, GroupDescription]:
    described = {}
    _, groups, _ = _DESCRIBED.decode(data)
    for code, _, group, state, _, _, _, members, _, _ in groups or ():
        assignments: list[_Assignment] = [
            [(topic, numbers) for _, _, topic, numbers, _ in member[8][0] or ()]
            for member in members or ()
        ]
        described[group] = _description(code, state, assignments)
    return described


def _description(
    code: int, state: Any, assignments: Sequence[_Assignment], *, is_known: bool = True
) -> GroupDescription:
    if state is None or len(state) > _MAX_STATE:
        raise ValueError("no state of a group")
    members = len(assignments)
    decoded = [topics for topics in assignments if topics is not None]
    if not is_known or len(decoded) < members:
        return GroupDescription(code, str(state), members, None)
    idle = sum(not any(numbers for _, numbers in topics) for topics in decoded)
    assigned: dict[str, set[int]] | None = None
    if members and state == STABLE:
        assigned = {}
        for topic, numbers in chain.from_iterable(decoded):
            assigned.setdefault(topic, set()).update(numbers or ())
    return GroupDescription(code, str(state), members, idle, assigned)
