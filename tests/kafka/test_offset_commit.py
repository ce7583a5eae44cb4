"""OffsetCommit as bytes: as a broker takes it, and answered as a broker does."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.offset_commit import OffsetCommitAnswer, OffsetCommitRequest
from sparklag_pipeline.broker.local_kafka import LocalKafka
from sparklag_schemas.settings import ClusterAccess
from tests.second_client import SecondClient
from tests.service.groups import metadata_of

FLEXIBLE = (
    b"\0\0\0\7"
    + (b"\3" + b"\2t" + b"\3" + struct.pack(">ihbih", 0, 0, 0, 9, 25) + b"\0" + b"\0")
    + (b"\2u" + b"\2" + struct.pack(">ih", 1, 3) + b"\1\x63\3abc" + b"\0" + b"\0")
)
OLD = (
    struct.pack(">i", 2)
    + (b"\0\1t" + struct.pack(">iihih", 2, 0, 0, 9, 25))
    + (b"\0\1u" + struct.pack(">iih", 1, 1, 3))
)


@pytest.mark.parametrize(("data", "flexible"), [(FLEXIBLE, True), (OLD, False)])
def test_the_code_of_each_partition_is_read(data: bytes, flexible: bool) -> None:
    assert OffsetCommitAnswer(data, flexible).read() == {"t": {0: 0, 9: 25}, "u": {1: 3}}


@pytest.mark.parametrize(("data", "flexible"), [(FLEXIBLE[:-1], True), (OLD, False)])
def test_an_answer_that_breaks_off_anywhere_is_an_error(data: bytes, flexible: bool) -> None:
    for end in range(len(data)):
        with pytest.raises(ResponseUnreadable):
            OffsetCommitAnswer(data[:end], flexible).read()


@settings(max_examples=50)
@given(garbage=st.binary(max_size=400), flexible=st.booleans())
def test_garbage_is_read_to_an_end_or_refused(garbage: bytes, flexible: bool) -> None:
    with suppress(ResponseUnreadable):
        OffsetCommitAnswer(garbage, flexible).read()


@pytest.mark.kafka
@pytest.mark.parametrize("newest", [7, 99])
async def test_a_broker_takes_it_in_each_version(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, newest: int
) -> None:
    other = second_client.create(f"{topic_name}-other", 2)
    second_client.create(topic_name, 30)
    pool = BrokerPool(ClusterAccess(kafka.bootstrap_servers), timeout_s=30.0)
    broker = pool.connections()[0]
    offsets = {topic_name: {n: 2**40 + n for n in range(30)}, other: {1: 0}}
    group = f"{topic_name}-ů"
    # With the first commit of all the group gets a coordinator.
    second_client.commit(group, {other: {0: 1}})
    try:
        connection = await broker.connect()
        if newest != 99:
            connection._versions |= {8: (0, newest)}
        answer = await broker.send(OffsetCommitRequest(group, offsets, "beside ů"))
        assert answer.flexible is (newest >= 8)
        assert answer.read() == {t: dict.fromkeys(numbers, 0) for t, numbers in offsets.items()}
        missing = await broker.send(OffsetCommitRequest(group, {"no-such-topic": {0: 5}}, ""))
        assert missing.read() == {"no-such-topic": {0: 3}}
    finally:
        await pool.aclose()
    assert second_client.committed(group, topic_name) == offsets[topic_name]
    assert second_client.committed(group, other) == {0: 1, 1: 0}
    beside = await metadata_of(kafka.bootstrap_servers, group)
    assert beside[other] == {0: "", 1: "beside ů"}
    assert set(beside[topic_name].values()) == {"beside ů"}
