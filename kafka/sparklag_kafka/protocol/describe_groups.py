"""DescribeGroups, and ConsumerGroupDescribe of KIP-848, in aiokafka's types (ADR 0017). Pure.

A coordinator describes a group in the request of its protocol. To DescribeGroups one of KIP-848 is
Dead, as is a group that it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any, Final, NamedTuple

from aiokafka.protocol.admin import DescribeGroupsRequest_v0, DescribeGroupsResponse_v0
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import PreparedRequest, Versions, newest

_DESCRIBE_GROUPS: Final = 15
_CONSUMER_GROUP_DESCRIBE: Final = 69
_VERSION: Final = 0
"""The first of both."""
DEAD: Final = "Dead"
_STABLE: Final = "Stable"
_CONSUMER: Final = "consumer"
_MAX_STATE: Final = 100
"""Characters: Kafka's longest has 19."""

_NAME: Final = CompactString("utf-8")
_REQUEST: Final = Schema(
    ("groups", CompactArray(_NAME)), ("authorized_operations", Boolean), ("", TaggedFields)
)
_ASSIGNED_TOPIC: Final = Schema(
    *(("id_high", Int64), ("id_low", Int64), ("topic", _NAME)),
    *(("partitions", CompactArray(Int32)), ("", TaggedFields)),
)
_ASSIGNMENT: Final = Schema(("topics", CompactArray(_ASSIGNED_TOPIC)), ("", TaggedFields))
_MEMBER: Final = Schema(
    *(("member", _NAME), ("instance", _NAME), ("rack", _NAME), ("epoch", Int32)),
    *(("client", _NAME), ("host", _NAME), ("topics", CompactArray(_NAME)), ("pattern", _NAME)),
    *(("assignment", _ASSIGNMENT), ("target_assignment", _ASSIGNMENT), ("", TaggedFields)),
)
_GROUP: Final = Schema(
    *(("error_code", Int16), ("error", _NAME), ("group", _NAME), ("state", _NAME)),
    *(("epoch", Int32), ("assignment_epoch", Int32), ("assignor", _NAME)),
    *(("members", CompactArray(_MEMBER)), ("authorized_operations", Int32), ("", TaggedFields)),
)
_RESPONSE: Final = Schema(
    ("throttle_time_ms", Int32), ("groups", CompactArray(_GROUP)), ("", TaggedFields)
)
_CLASSIC_ASSIGNMENT: Final = Schema(
    ("version", Int16), ("topics", Array(("topic", String()), ("partitions", Array(Int32))))
)
"""The beginning of it: what follows is the assignor's own."""


class GroupDescription(NamedTuple):
    """A group as its coordinator describes it."""

    error_code: int
    state: str
    members: int
    members_without_partitions: int | None
    """None: not known, as while a classic group rebalances, or where it is not of consumers."""


class DescribeGroupsRequest:
    """Of the classic protocol, or of KIP-848's. The response is a `DescribeGroupsResponse`.

    `prepare` raises IncompatibleBrokerVersion where a broker has no such groups.
    """

    def __init__(self, groups: Sequence[str], *, classic: bool) -> None:
        self._groups = groups
        self._classic = classic

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that supports `versions`."""
        if self._classic:
            key, read = _DESCRIBE_GROUPS, _classic_groups
            body = DescribeGroupsRequest_v0(self._groups).encode()
        else:
            key, read = _CONSUMER_GROUP_DESCRIBE, _consumer_groups
            body = _REQUEST.encode((self._groups, False, {}))
        version = newest(versions, key, (_VERSION,))
        make_response = partial(DescribeGroupsResponse, read=read)
        return PreparedRequest(key, version, body, not self._classic, make_response)


class DescribeGroupsResponse(NamedTuple):
    """A response to either, not decoded yet."""

    data: bytes
    read: Callable[[BytesIO], dict[str, GroupDescription]]

    def decode(self) -> dict[str, GroupDescription]:
        """By group. Raises ResponseUnreadable."""
        try:
            return self.read(BytesIO(self.data))
        except (ValueError, struct.error) as error:
            raise ResponseUnreadable("its description of groups is malformed") from error


def _classic_groups(data: BytesIO) -> dict[str, GroupDescription]:
    described = {}
    for code, group, state, protocol_type, _, members in (
        DescribeGroupsResponse_v0.decode(data).groups or ()
    ):
        assignments = [assignment for *_, assignment in members or ()]
        # A coordinator has no assignments before all members have theirs.
        is_known = not assignments or (state == _STABLE and protocol_type == _CONSUMER)
        idle = _without_partitions(assignments) if is_known else None
        described[group] = GroupDescription(code, _state(state), len(assignments), idle)
    return described


def _without_partitions(assignments: Sequence[bytes | None]) -> int | None:
    """How many have none. None: one is not of the consumer protocol; its member has written it."""
    idle = 0
    for assignment in assignments:
        try:
            topics = _CLASSIC_ASSIGNMENT.decode(BytesIO(assignment))[1] if assignment else ()
        except ValueError:
            return None
        idle += not any(partitions for _, partitions in topics or ())
    return idle


def _consumer_groups(data: BytesIO) -> dict[str, GroupDescription]:
    described = {}
    _, groups, _ = _RESPONSE.decode(data)
    for code, _, group, state, _, _, _, members, _, _ in groups or ():
        topics_of_members = [member[8][0] for member in members or ()]
        idle = sum(not any(topic[3] for topic in topics or ()) for topics in topics_of_members)
        described[group] = GroupDescription(code, _state(state), len(topics_of_members), idle)
    return described


def _state(state: Any) -> str:
    if state is None or len(state) > _MAX_STATE:
        raise ValueError("no state of a group")
    return str(state)
