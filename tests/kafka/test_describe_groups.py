"""DescribeGroups and ConsumerGroupDescribe: from real groups, and from bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.protocol.admin import DescribeGroupsResponse_v0
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from sparklag_kafka.brokers.group_offsets import describe_groups
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupDescription,
    GroupsResponse,
)
from sparklag_schemas.settings import ClusterAccess
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for


class Members:
    """Consumers of librdkafka, which take part in their groups as long as they are polled."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._consumers: list[Consumer] = []

    def join(self, group: str, topic: str, protocol: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": group,
                "group.protocol": protocol,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        self._consumers.append(consumer)

    def poll(self) -> None:
        for consumer in self._consumers:
            consumer.poll(0.05)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


@pytest.fixture
def members(kafka: LocalKafka) -> Iterator[Members]:
    joined = Members(kafka.bootstrap_servers)
    yield joined
    joined.close()


@pytest.mark.kafka
async def test_real_groups_of_each_kind_are_what_another_client_reports(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, members: Members
) -> None:
    second_client.create(topic_name, 2)
    names = {kind: f"{topic_name}-{kind}" for kind in ("classic", "consumer", "empty", "dead")}
    second_client.commit(names["empty"], {topic_name: {0: 1}})
    for protocol in ("classic", "consumer"):
        for _ in range(3):  # one more than partitions
            members.join(names[protocol], topic_name, protocol)

    def are_stable() -> bool:
        members.poll()
        groups = [second_client.described_group(names[kind]) for kind in ("classic", "consumer")]
        return all(
            group.state.name == "STABLE"
            and len(group.members) == 3
            and sum(len(member.assignment.topic_partitions) for member in group.members) == 2
            for group in groups
        )

    wait_for(are_stable, "both groups are stable", 120.0)
    async with BrokerPool(ClusterAccess(kafka.bootstrap_servers), timeout_s=60.0) as pool:
        described = await describe_groups(pool.connections()[0], list(names.values()))
        # As a broker that is older than Kafka 3.7.
        connection = await pool.connections()[0].connect()
        connection._versions = {15: (0, 5)}
        of_old_broker = await describe_groups(pool.connections()[0], list(names.values()))
    assert described == {
        names["classic"]: GroupDescription(0, "Stable", 3, 1, {topic_name: {0, 1}}),
        names["consumer"]: GroupDescription(0, "Stable", 3, 1, {topic_name: {0, 1}}),
        names["empty"]: GroupDescription(0, "Empty", 0, 0),
        names["dead"]: GroupDescription(0, "Dead", 0, 0),
    }
    dead = GroupDescription(0, "Dead", 0, 0)
    assert of_old_broker == {**described, names["consumer"]: dead}
    for kind, name in names.items():
        there = second_client.described_group(name)
        assert there.state.name == described[name].state.upper(), kind
        assert len(there.members) == described[name].members, kind
        idle = sum(not member.assignment.topic_partitions for member in there.members)
        assert idle == described[name].members_without_partitions, kind


# Bytes.


def response(data: bytes, *, classic: bool) -> DescribeGroupsResponse:
    request = DescribeGroupsRequest([], classic=classic).prepare({15: (0, 5), 69: (0, 0)})
    result = request.RESPONSE_TYPE.decode(BytesIO(data))
    assert isinstance(result, GroupsResponse)
    return result


_names = st.text("aZ9-._ ůὕ🐎", max_size=40)
_assignments = st.dictionaries(
    _names, st.lists(st.integers(0, 2**31 - 1), max_size=3), max_size=3
).map(lambda topics: ConsumerProtocolMemberAssignment(0, list(topics.items()), b"data"))
_members = st.lists(st.tuples(_names, _names, _names, st.binary(max_size=20), _assignments))
_states = st.sampled_from(["Stable", "Empty", "PreparingRebalance", "Dead"])
_protocol_types = st.sampled_from(["consumer", "connect", ""])
_groups = st.dictionaries(
    _names, st.tuples(st.sampled_from([0, 15, 30]), _states, _protocol_types, _members), max_size=3
)


@given(groups=_groups)
def test_classic_groups_that_aiokafka_encodes_are_decoded(groups: dict[str, Any]) -> None:
    rows = []
    expected = {}
    for group, (code, state, protocol_type, joined) in groups.items():
        encoded = [(*texts, meta, assigned.encode()) for *texts, meta, assigned in joined]
        rows.append((code, group, state, protocol_type, "range", encoded))
        idle = sum(not any(numbers for _, numbers in a.assignment) for *_, a in joined)
        is_known = (state, protocol_type) == ("Stable", "consumer") or not joined
        expected[group] = GroupDescription(code, state, len(joined), idle if is_known else None)
    data = DescribeGroupsResponse_v0(rows).encode()
    described = response(data, classic=True).decode()
    assert {group: d._replace(assigned=None) for group, d in described.items()} == expected


def classic(assignment: bytes, state: str = "Stable") -> DescribeGroupsResponse:
    member = ("m", "client", "/127.0.0.1", b"", assignment)
    rows = [(0, "g", state, "consumer", "range", [member])]
    return response(DescribeGroupsResponse_v0(rows).encode(), classic=True)


CONSUMER_GROUP = response(
    b"\0\0\0\0\2\0\0\0\2g\7Stable" + bytes(8) + b"\1"
    # A member with partition 5, then one with a topic and no partition of it.
    + b"\3\2m\0\0\0\0\0\1\2c\2h\2\2t\0\2" + bytes(16) + b"\2t\2\0\0\0\5\0\0\1\0\0"
    + b"\2n\0\0\0\0\0\1\2c\2h\1\0\2" + bytes(16) + b"\2t\1\0\0\1\0\0"
    + bytes(4) + b"\0\0",
    classic=False,
)  # fmt: skip
ASSIGNED = ConsumerProtocolMemberAssignment(0, [("t", [0, 1])], b"").encode()


@pytest.mark.parametrize(
    ("assignment", "idle"),
    [
        (b"", 1),
        (b"\0\0\0\0\0\0", 1),
        (ASSIGNED, 0),
        (b"\0", None),
        (b"\0\0\xff", None),
        (b"\0\0\x7f\xff\xff\xff", None),
        (b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff", None),
        (b"\0\0\0\0\0\1\0\1\xff\0\0\0\1\0\0\0\1", None),
    ],
)
def test_an_assignment_of_another_protocol_is_unknown(assignment: bytes, idle: int | None) -> None:
    described = classic(assignment).decode()["g"]
    assigned = {"t": {0, 1}} if idle == 0 else {} if idle == 1 else None
    assert described == GroupDescription(0, "Stable", 1, idle, assigned)


def test_members_of_a_consumer_group_have_the_partitions_that_they_own_now() -> None:
    assert CONSUMER_GROUP.decode() == {"g": GroupDescription(0, "Stable", 2, 1, {"t": {5}})}


@pytest.mark.parametrize("whole", [classic(ASSIGNED), CONSUMER_GROUP], ids=["classic", "consumer"])
def test_a_response_that_breaks_off_anywhere_is_an_error(whole: DescribeGroupsResponse) -> None:
    for end in range(len(whole.data)):
        with pytest.raises(ResponseUnreadable):
            replace(whole, data=whole.data[:end]).decode()


def test_a_state_that_no_field_holds_is_refused() -> None:
    with pytest.raises(ResponseUnreadable, match="malformed"):
        classic(b"", state="x" * 2_000).decode()


@pytest.mark.parametrize("whole", [classic(ASSIGNED), CONSUMER_GROUP], ids=["classic", "consumer"])
@given(data=st.data())
def test_any_bytes_are_read_or_refused(whole: DescribeGroupsResponse, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole.data) - 1))
    wrong = bytearray(whole.data)
    wrong[at : at + 1] = data.draw(st.binary(min_size=1, max_size=8))
    with suppress(ResponseUnreadable):
        replace(whole, data=bytes(wrong)).decode()


def test_a_length_that_the_response_cannot_hold_allocates_nothing() -> None:
    huge = struct.pack(">i", 2**31 - 1)
    with pytest.raises(ResponseUnreadable):
        response(huge + bytes(20), classic=True).decode()
