"""What is kept of a cluster's answers, and what is not, without Kafka."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.offset import OffsetResponse_v3
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.leader_channel import AdaptiveTimeout
from sparklag_kafka.protocol.list_offsets import LATEST, OffsetsRequest
from sparklag_kafka.protocol.metadata import MetadataResponse, PartitionReplicas, TopicMetadata
from sparklag_schemas import PartitionLag, TopicLag
from sparklag_service.enrichment.cluster_offsets import NoRecords
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.offset_table import OffsetTable
from tests.service.asking import query
from tests.service.states import latest_of, unknown_of

_ORDERS = TopicPartition("orders", 0)
_NOT_LEADER = 6


def table(topic_id: str | None = "first", partitions: int = 1) -> OffsetTable:
    made = OffsetTable("default")
    made.update_brokers({1: ("broker1", 9092)})
    made.update_topic(result(topic_id, partitions), 0.0, 0.0)
    return made


def result(topic_id: str | None, partitions: int = 1, leader: int = 1) -> TopicMetadata:
    return TopicMetadata("orders", 0, topic_id, dict.fromkeys(range(partitions), leader), {})


def deny(made: OffsetTable, *answers: tuple[float, int]) -> bool:
    """At these times these brokers say that there is no topic; whether it is gone."""
    for at_s, node in answers:
        made.update_brokers(made.brokers, (f"broker{node}", 9092))
        made.update_topic(TopicMetadata("orders", 3, None, {}, {}), at_s, at_s)
    return made.topics["orders"].description.gone


def offsets_at(*offsets: int, error: int = 0) -> bytes:
    partitions = [(number, error, -1, offset) for number, offset in enumerate(offsets)]
    encoded: bytes = OffsetResponse_v3(0, [("orders", partitions)]).encode()
    return encoded


def take(made: OffsetTable, answer: bytes, requested_s: float) -> set[str]:
    stale, doubtful = made.take_latest("read_uncommitted", answer, requested_s, requested_s + 0.1)
    if doubtful:
        # It is the same topic still.
        made.take_latest("read_uncommitted", answer, requested_s, requested_s + 0.1, doubtful)
    return stale


def latest(made: OffsetTable) -> dict[TopicPartition, int]:
    return latest_of(made.topics)


def test_a_failure_keeps_the_last_value_and_reports_why_until_the_next_success() -> None:
    made = table()
    take(made, offsets_at(5), 1.0)
    assert take(made, offsets_at(-1, error=_NOT_LEADER), 2.0) == {"orders"}
    assert made.topics["orders"].latest["read_uncommitted"][0] == LatestOffset(5, 1.0)
    assert unknown_of(made.topics) == {_ORDERS: "the leader answers NOT_LEADER_OR_FOLLOWER"}
    made.fail("orders", [0], "broker 1 did not answer within 5 s", 2.5)
    assert unknown_of(made.topics) == {_ORDERS: "broker 1 did not answer within 5 s"}
    assert take(made, offsets_at(6), 3.0) == set()
    assert latest(made) == {_ORDERS: 6}
    assert unknown_of(made.topics) == {}


def test_a_leader_that_was_slow_changes_nothing_that_a_newer_one_has_reported() -> None:
    made = table()
    take(made, offsets_at(7), 3.0)
    take(made, offsets_at(5), 2.0)
    take(made, offsets_at(-1, error=_NOT_LEADER), 2.0)
    made.fail("orders", [0], "broker 1 did not answer within 5 s", 2.0)
    assert made.topics["orders"].latest["read_uncommitted"] == {0: LatestOffset(7, 3.0)}
    assert unknown_of(made.topics) == {}


def test_a_log_that_may_have_begun_anew_is_not_believed_before_its_topic_is_confirmed() -> None:
    made = table()
    take(made, offsets_at(500_000), 1.0)
    # A second is enough to write 500,001 records, and not 2,000,001.
    stale, doubtful = made.take_latest("read_uncommitted", offsets_at(500_001), 2.0, 2.0)
    assert (stale, doubtful) == (set(), {"orders"})
    assert latest(made) == {TopicPartition("orders", 0): 500_000}
    assert not made.is_recreated(result("first"))
    assert made.is_recreated(result("second"))
    made.take_latest("read_uncommitted", offsets_at(500_001), 2.0, 2.0, {"orders"})
    take(made, offsets_at(2_000_000), 2.5)
    stale, doubtful = made.take_latest("read_uncommitted", offsets_at(2_000_001), 3.0, 3.0)
    assert (stale, doubtful) == (set(), set())
    assert latest(made) == {TopicPartition("orders", 0): 2_000_001}


def test_a_log_that_ends_earlier_is_believed_once_the_topic_was_looked_at_again() -> None:
    made = table()
    take(made, offsets_at(9), 1.0)
    assert take(made, offsets_at(2), 2.0) == {"orders"}
    assert take(made, offsets_at(2), 3.0) == {"orders"}
    assert latest(made) == {_ORDERS: 9}
    assert _ORDERS in unknown_of(made.topics)
    made.update_topic(result("first"), 4.0, 4.1)
    take(made, offsets_at(2), 5.0)
    assert latest(made) == {_ORDERS: 2}
    assert unknown_of(made.topics) == {}
    # The next time it has to be looked at anew.
    take(made, offsets_at(1), 6.0)
    assert latest(made) == {_ORDERS: 2}


@pytest.mark.parametrize(("old_id", "new_id"), [("first", "second"), (None, None)])
def test_nothing_of_a_recreated_topic_stays(old_id: str | None, new_id: str | None) -> None:
    made = table(old_id, partitions=2)
    take(made, offsets_at(9, 9), 1.0)
    made.take_earliest(offsets_at(4, 4), 1.0)
    epoch = made.epoch
    # A broker without ids shows it by a partition that is gone.
    made.update_topic(result(new_id, partitions=1), 2.0, 2.5)
    assert latest(made) == {}
    assert made.topics["orders"].earliest == {}
    assert made.epoch > epoch
    # Requested before it was known: this may be of the old one.
    take(made, offsets_at(9, 9), 2.4)
    made.take_earliest(offsets_at(4, 4), 2.4)
    assert latest(made) == {}
    assert made.topics["orders"].earliest == {}
    take(made, offsets_at(1), 2.6)
    assert latest(made) == {_ORDERS: 1}


def test_a_topic_one_may_not_see_for_a_while_keeps_its_values() -> None:
    made = table()
    take(made, offsets_at(9), 1.0)
    assert not made.update_topic(TopicMetadata("orders", 29, None, {}, {}), 2.0, 2.1)
    topic = made.topics["orders"].description
    assert (topic.missing, topic.gone) == ("no right to describe topic orders", False)
    assert latest(made) == {_ORDERS: 9}
    made.update_topic(result("second"), 3.0, 3.1)
    assert latest(made) == {}


def test_a_topic_that_was_gone_comes_back_without_anything_of_before() -> None:
    made = table()
    take(made, offsets_at(9), 1.0)
    assert deny(made, (2.0, 1), (8.0, 1), (12.0, 1))
    assert latest(made) == {}
    epoch = made.epoch
    assert deny(made, (13.0, 1))
    assert made.epoch == epoch, "nothing is to be planned anew"
    made.topic("orders").log_ends["read_uncommitted"].insert(1.0, {0: 9})
    made.update_topic(result("second"), 14.0, 14.1)
    assert made.topics["orders"].log_ends == {}
    take(made, offsets_at(9), 14.05)
    assert latest(made) == {}


@pytest.mark.parametrize(
    ("brokers", "answers", "gone"),
    [
        (1, [(2.0, 1)], False),
        (1, [(2.0, 1), (12.0, 1)], False),
        (1, [(2.0, 1), (3.0, 1), (4.0, 1), (11.9, 1)], False),
        (1, [(2.0, 1), (7.0, 1), (12.0, 1)], True),
        (1, [(2.0 + number / 20, 1) for number in range(210)], True),
        (2, [(2.0, 1), (7.0, 1), (12.0, 1), (30.0, 1)], False),
        (2, [(2.0, 1), (7.0, 2), (12.0, 1)], True),
        # From an address of the bootstrap servers: of a broker, and nobody knows of which.
        (2, [(2.0, 1), (7.0, 9), (12.0, 9)], False),
    ],
)
def test_a_topic_is_gone_when_several_answers_of_two_brokers_agree(
    brokers: int, answers: list[tuple[float, int]], gone: bool
) -> None:
    made = table()
    made.update_brokers({node: (f"broker{node}", 9092) for node in range(1, 1 + brokers)})
    take(made, offsets_at(9), 1.0)
    made.topics["orders"].log_ends["read_uncommitted"].insert(1.0, {0: 9})
    assert deny(made, *answers) == gone
    assert latest(made) == ({} if gone else {_ORDERS: 9})
    assert bool(made.topics["orders"].log_ends) != gone
    parts = made.plan(query({"orders": [0]})).parts
    assert bool(parts) != gone, "its leader is asked on"


def test_a_leader_or_a_broker_that_has_the_topic_refutes_those_that_have_not() -> None:
    made = table()
    assert not deny(made, (2.0, 1), (7.0, 1))
    take(made, offsets_at(9), 8.0)
    assert not deny(made, (12.0, 1), (17.0, 1))
    made.update_topic(result("first"), 18.0, 18.0)
    assert not deny(made, (22.0, 1), (30.0, 1))
    take(made, offsets_at(-1, error=3), 31.0)
    assert deny(made, (32.0, 1))


def test_a_topic_that_was_never_seen_on_the_cluster_is_not_gone() -> None:
    made = OffsetTable("default")
    made.update_brokers({1: ("broker1", 9092)})
    assert not deny(made, (2.0, 1), (7.0, 1), (12.0, 1), (60.0, 1))
    topic = made.topics["orders"].description
    assert str(topic.missing).startswith("no topic orders was ever seen on this cluster: ")


@pytest.mark.parametrize(
    ("fields", "partition", "after"),
    [
        ({"topic_id": "first"}, {}, 4),
        ({}, {"latest_offset": 9}, 4),
        ({}, {"status": "GONE"}, 1),
        ({}, {}, None),
    ],
)
def test_what_another_instance_has_seen_is_gone_later_or_at_once_if_it_was(
    fields: dict[str, Any], partition: dict[str, Any], after: int | None
) -> None:
    made = OffsetTable("default")
    made.update_brokers({1: ("broker1", 9092)})
    lag = PartitionLag(partition=0, processed_offset=5, **partition)
    made.adopt(TopicLag(topic="orders", source=0, partitions=[lag], **fields))
    gone = [deny(made, (2.0 + 5 * number, 1)) for number in range(5)]
    assert gone == [after is not None and number >= after for number in range(1, 6)]


def test_an_answer_older_than_what_was_seen_discards_nothing() -> None:
    made = table("first", partitions=2)
    take(made, offsets_at(9, 9), 1.0)
    made.update_topic(result("first", partitions=1), 2.0, 2.0)
    assert made.topics["orders"].description.partitions == (0, 1)
    made.update_topic(result("second"), 3.0, 3.0)
    take(made, offsets_at(4), 4.0)
    made.update_topic(result("first", partitions=2), 5.0, 5.0)
    assert (made.topics["orders"].description.topic_id, latest(made)) == ("second", {_ORDERS: 4})
    # Had the first answer been the old one: it is put right in the end.
    made.update_topic(result("first", partitions=2), 40.0, 40.0)
    assert made.topics["orders"].description.topic_id == "first"


def test_what_no_plan_needs_is_forgotten_and_an_answer_under_way_does_not_bring_it_back() -> None:
    made = table(partitions=2)
    take(made, offsets_at(5, 5), 1.0)
    made.take_earliest(offsets_at(0, 0), 1.0)
    list(made.retain([made.plan(query({"orders": [0]}, assigned={"orders": [0]}))]))
    assert latest(made) == {_ORDERS: 5}
    assert made.topics["orders"].earliest == {0: 0}
    list(made.retain([]))
    take(made, offsets_at(5, 5), 2.5)
    assert made.topics == {}


def test_a_topic_that_is_planned_while_others_are_forgotten_stays() -> None:
    made = table(partitions=2)
    take(made, offsets_at(5, 5), 1.0)
    steps = made.retain([made.plan(query({"other": [0]}))])
    next(steps)
    made.plan(query({"orders": [0]}))
    list(steps)
    assert latest(made) == {_ORDERS: 5, TopicPartition("orders", 1): 5}


def test_a_request_that_a_broker_is_too_old_for_is_named() -> None:
    with pytest.raises(IncompatibleBrokerVersion, match="the broker takes no ListOffsets 2 to 3"):
        OffsetsRequest("read_uncommitted", [], LATEST).prepare({2: (0, 1)})


def test_tags_of_newer_brokers_are_passed_over() -> None:
    tags = bytes([2, 0, 1, 9, 1, 2, 8, 8])  # tag 0: a byte; tag 1: two
    broker = struct.pack(">i", 1) + b"\x02b" + struct.pack(">i", 9092) + b"\0" + tags
    partition = struct.pack(">hiii", 0, 0, 1, 7) + 2 * (b"\x02" + struct.pack(">i", 1)) + b"\x01"
    name = "t" * 200  # its length takes two bytes
    topic = b"".join((struct.pack(">h", 0), b"\xc9\x01", name.encode(), b"\xff" * 16, b"\0"))
    topic += b"\x02" + partition + tags + bytes(4) + tags
    data = b"".join((bytes(4), b"\x02", broker, b"\x02c", bytes(4), b"\x02", topic, tags))
    brokers, topics = MetadataResponse(data, flexible=True).read()
    assert brokers == {1: ("b", 9092)}
    one = PartitionReplicas(1, 1, 1, 1)
    assert list(topics) == [TopicMetadata(name, 0, "_" * 21 + "w", {0: 1}, {0: one})]


def test_patience_follows_a_far_leader_and_has_bounds() -> None:
    timeout = AdaptiveTimeout(5.0)
    assert timeout.seconds == 1.0
    assert timeout.record(0.7)
    assert timeout.seconds == pytest.approx(2.1)
    assert timeout.record(0.7)
    slow = AdaptiveTimeout(5.0)
    for _ in range(10):
        slow.record(0.005)
    kept = [slow.record(1.5) for _ in range(5)]
    assert kept[0] is False
    assert kept[-1] is True
    slow.record(60.0)
    assert slow.seconds == 5.0
    assert AdaptiveTimeout(0.2).seconds == 0.2


@pytest.mark.parametrize(("end", "is_kept"), [(20, True), (21, True), (19, False)])
def test_where_another_instance_saw_no_records_and_the_log_is_shorter_there_may_be_some(
    end: int, is_kept: bool
) -> None:
    made = table()
    ranges = made.topics["orders"].without_records["read_uncommitted"]
    ranges[0] = NoRecords(5, 20, 0.0)
    take(made, offsets_at(end), 10.0)
    assert bool(ranges) == is_kept
