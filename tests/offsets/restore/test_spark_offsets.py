"""Spark's `startingOffsets` and `endingOffsets` from positions."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_kafka.brokers.logs import TopicBounds
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.errors import BeforeFirstBatch, PositionDeleted, SourceNotNamed, TopicChanged
from sparklag_offsets.restore.positions import (
    Edge,
    RestorePosition,
    checked_offsets,
    position_of_checkpoint,
    position_of_record,
    unchecked_offsets,
)
from sparklag_offsets.store.batch_record import Range, TopicRanges, encode_ranges
from sparklag_schemas import SourcePosition
from tests.messages import QUERY_ID
from tests.offsets.store.batches import at_ms, record

ORDERS = TopicRanges(0, "orders", None, None, [(0, None, 5)])
CLICKS = TopicRanges(0, "clicks", None, None, [(0, None, 6)])
USERS = TopicRanges(2, "users", None, None, [(0, None, 7)])
AGAIN = TopicRanges(2, "orders", None, None, [(0, None, 3)])


def at(*topics: TopicRanges) -> RestorePosition:
    return RestorePosition(QUERY_ID, "orders", 4, at_ms(4), topics)


def test_a_record_reports_where_it_ends() -> None:
    topics = (
        TopicRanges(0, "orders", "an-id", "b:9092", [(0, 1, 5), (1, None, 6)]),
        TopicRanges(1, "users", None, None, [(0, 2, 2)], assigned=True),
    )
    assert position_of_record(record(4, ranges=encode_ranges(topics))) == at(*topics)


def test_a_checkpoint_reports_where_its_newest_committed_batch_ends() -> None:
    sources = (
        SourcePosition(source=0, processed={"orders": {0: 5}}, planned={"orders": {0: 9}}),
        SourcePosition(source=1),
    )
    result = position_of_checkpoint(
        CheckpointPosition(QUERY_ID, 4, 5, at_ms(4), None, sources, frozenset({0})), "/here"
    )
    assert result == RestorePosition(QUERY_ID, None, 4, at_ms(4), (ORDERS,))
    assert result.shown == f"query {QUERY_ID}"


@pytest.mark.parametrize("batch_id", [None, 0])
def test_a_checkpoint_without_a_batch_of_kafka_is_reported(batch_id: int | None) -> None:
    sources = (SourcePosition(source=0, planned={"orders": {0: 5}}),)
    nothing = CheckpointPosition(QUERY_ID, batch_id, 0, None, None, sources, frozenset({0}))
    with pytest.raises(BeforeFirstBatch, match=r"/here: no batch with a Kafka source"):
        position_of_checkpoint(nothing, "/here")


def test_the_only_source_is_the_default() -> None:
    position = at(ORDERS, CLICKS)
    assert position.of_source(None, None) == position
    assert position.of_source(0, None) == position
    # What the new query is to read may be new altogether.
    assert position.of_source(None, ["new"]) == position


def test_a_source_is_selected_by_its_number_or_by_a_topic() -> None:
    position = at(ORDERS, CLICKS, USERS)
    assert position.of_source(2, None) == at(USERS)
    assert position.of_source(None, ["users"]) == at(USERS)
    assert position.of_source(None, ["clicks", "new"]) == at(ORDERS, CLICKS)


@pytest.mark.parametrize(
    ("topics", "source", "named", "requested"),
    [
        ((ORDERS, USERS), None, None, "several Kafka sources"),
        ((ORDERS, USERS), None, ["new"], "several Kafka sources"),
        ((ORDERS, USERS), None, ["orders", "users"], "several Kafka sources"),
        ((ORDERS, USERS, AGAIN), None, ["orders"], "several Kafka sources"),
        ((ORDERS, USERS), 1, None, "no Kafka source 1"),
        ((ORDERS,), 2, ["orders"], "no Kafka source 2"),
    ],
)
def test_else_they_are_listed(
    topics: tuple[TopicRanges, ...], source: int | None, named: list[str] | None, requested: str
) -> None:
    with pytest.raises(SourceNotNamed) as raised:
        at(*topics).of_source(source, named)
    text = str(raised.value)
    assert text.startswith(f"query orders has {requested}: name one of them (0: orders")
    assert "\n" not in text


def of(
    offsets: dict[int, int],
    topic: str = "orders",
    topic_id: str | None = None,
    assigned: bool = False,
) -> TopicRanges:
    ranges: list[Range] = [(partition, None, end) for partition, end in offsets.items()]
    return TopicRanges(0, topic, topic_id, None, ranges, assigned)


def log(*bounds: tuple[int, int], **fields: Any) -> TopicBounds:
    return TopicBounds(
        **{
            "partitions": list(range(len(bounds))),
            "earliest": {n: earliest for n, (earliest, _) in enumerate(bounds)},
            "latest": {n: latest for n, (_, latest) in enumerate(bounds)},
            **fields,
        }
    )


@pytest.mark.parametrize("offset", [0, 5, 9])
def test_a_position_that_is_there_is_given_as_it_is(offset: int) -> None:
    bounds = {"orders": log((0, 9))}
    assert checked_offsets(at(of({0: offset})), bounds, "starting", "error", None) == (
        {"orders": {0: offset}},
        [],
    )


def test_partitions_come_in_order_and_added_ones_begin_at_earliest() -> None:
    bounds = {"orders": log((0, 9), (0, 9), (2, 9))}
    position = at(of({1: 6, 0: 5}))
    offsets, _ = checked_offsets(position, bounds, "starting", "error", None)
    assert list(offsets["orders"].items()) == [(0, 5), (1, 6), (2, -2)]
    # Nothing of it was in the window.
    offsets, _ = checked_offsets(position, bounds, "ending", "error", None)
    assert offsets == {"orders": {0: 5, 1: 6, 2: 2}}


def test_a_query_that_names_its_partitions_does_not_get_others() -> None:
    bounds = {"orders": log((0, 9), (0, 9))}
    offsets, _ = checked_offsets(at(of({0: 5}, assigned=True)), bounds, "starting", "error", None)
    assert offsets == {"orders": {0: 5}}


def test_a_topic_that_is_new_to_the_query_begins_at_earliest() -> None:
    bounds = {"orders": log((0, 9)), "new": log((3, 9), (0, 0))}
    cases: dict[Edge, dict[int, int]] = {"starting": {0: -2, 1: -2}, "ending": {0: 3, 1: 0}}
    for edge, new in cases.items():
        offsets, _ = checked_offsets(at(of({0: 5})), bounds, edge, "error", ["orders", "new"])
        assert offsets == {"orders": {0: 5}, "new": new}


def test_what_retention_deleted_is_refused_with_where_and_how_much() -> None:
    bounds = {"orders": log((1_305, 9_000), (0, 9))}
    with pytest.raises(PositionDeleted) as raised:
        checked_offsets(at(of({0: 5, 1: 5})), bounds, "starting", "error", None)
    assert str(raised.value) == (
        "query orders: retention has deleted records after the recorded position: orders[0] 1,300"
        " records; on_deleted='earliest' starts at the earliest offset, and loses them"
    )


@pytest.mark.parametrize(("edge", "given"), [("starting", -2), ("ending", 7)])
def test_deleted_records_may_be_skipped_with_a_warning(edge: Any, given: int) -> None:
    bounds = {"orders": log((7, 9), (0, 9))}
    assert checked_offsets(at(of({0: 5, 1: 5})), bounds, edge, "earliest", None) == (
        {"orders": {0: given, 1: 5}},
        [
            "query orders: retention has deleted records after the recorded position: orders[0] 2"
            " records; they are lost"
        ],
    )


def test_three_of_many_partitions_are_named() -> None:
    bounds = {"orders": log(*[(7, 9)] * 8)}
    with pytest.raises(PositionDeleted, match=r"orders\[2\] 2 records and 5 more partitions;"):
        checked_offsets(at(of(dict.fromkeys(range(8), 5))), bounds, "starting", "error", None)


@pytest.mark.parametrize(
    ("position", "bounds", "text"),
    [
        (of({0: 5}), log((0, 4)), "its log ends at 4, before the recorded position, 5"),
        (of({0: 5, 1: 5}), log((0, 9)), "partition 1: the topic has no such partition"),
    ],
    ids=["shorter", "fewer partitions"],
)
def test_a_changed_topic_is_refused(position: TopicRanges, bounds: TopicBounds, text: str) -> None:
    with pytest.raises(TopicChanged) as raised:
        checked_offsets(at(position), {"orders": bounds}, "starting", "earliest", None)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("kept", "now"), [(None, "new"), ("old", None), ("old", "old")])
def test_a_missing_topic_id_is_not_compared(kept: str | None, now: str | None) -> None:
    position, bounds = at(of({0: 5}, topic_id=kept)), {"orders": log((0, 9), topic_id=now)}
    assert checked_offsets(position, bounds, "starting", "error", None)[0] == {"orders": {0: 5}}


def test_a_partition_without_a_response_has_no_offset() -> None:
    bounds = log((0, 9), (0, 9), unknown={1: "its leader does not answer"})
    del bounds.earliest[1], bounds.latest[1]
    with pytest.raises(
        KafkaUnavailable, match=r"partition 1: cannot check .*: its leader does not"
    ):
        checked_offsets(at(of({0: 5, 1: 5})), {"orders": bounds}, "starting", "error", None)
    with pytest.raises(KafkaUnavailable, match=r"partition 1: its leader does not answer"):
        checked_offsets(at(of({0: 5})), {"orders": bounds}, "ending", "error", None)
    # To begin with all of it, nothing has to be known.
    offsets, _ = checked_offsets(at(of({0: 5})), {"orders": bounds}, "starting", "error", None)
    assert offsets == {"orders": {0: 5, 1: -2}}


def test_unchecked_gives_what_was_kept_in_order() -> None:
    position = at(of({1: 6, 0: 5}), of({0: 1}, "clicks"))
    assert list(unchecked_offsets(position, None)) == ["clicks", "orders"]
    assert list(unchecked_offsets(position, ["orders"])["orders"].items()) == [(0, 5), (1, 6)]
