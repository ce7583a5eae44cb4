"""Where a query was, of one of its sources."""

from __future__ import annotations

import pytest

from sparklag_offsets.checkpoints.position import CheckpointPosition, SourceOffsets
from sparklag_offsets.errors import BeforeFirstBatch, SourceNotNamed
from sparklag_offsets.restore.restore_position import (
    RestorePosition,
    position_of_checkpoint,
    position_of_record,
)
from sparklag_offsets.store.batch_record import TopicRanges, encode_ranges
from tests.messages import QUERY_ID
from tests.offsets.store.batches import at_ms, record

ORDERS = TopicRanges(0, "orders", None, None, [(0, None, 5)])
CLICKS = TopicRanges(0, "clicks", None, None, [(0, None, 6)])
USERS = TopicRanges(2, "users", None, None, [(0, None, 7)])
AGAIN = TopicRanges(2, "orders", None, None, [(0, None, 3)])


def at(*topics: TopicRanges) -> RestorePosition:
    return RestorePosition(QUERY_ID, "orders", 4, at_ms(4), topics)


def test_a_record_says_where_it_ends() -> None:
    topics = (
        TopicRanges(0, "orders", "an-id", "b:9092", [(0, 1, 5), (1, None, 6)]),
        TopicRanges(1, "users", None, None, [(0, 2, 2)], assigned=True),
    )
    assert position_of_record(record(4, ranges=encode_ranges(topics))) == at(*topics)


def test_a_checkpoint_says_where_its_newest_committed_batch_ends() -> None:
    sources = (
        SourceOffsets(0, {"orders": {0: 5}}, {"orders": {0: 9}}, True),
        SourceOffsets(1, None, None, False),
    )
    found = position_of_checkpoint(
        CheckpointPosition(QUERY_ID, 4, 5, at_ms(4), None, sources), "/here"
    )
    assert found == RestorePosition(QUERY_ID, None, 4, at_ms(4), (ORDERS,))
    assert found.shown == f"query {QUERY_ID}"


@pytest.mark.parametrize("batch_id", [None, 0])
def test_a_checkpoint_without_a_batch_of_kafka_is_told(batch_id: int | None) -> None:
    sources = (SourceOffsets(0, None, {"orders": {0: 5}}, True),)
    nothing = CheckpointPosition(QUERY_ID, batch_id, 0, None, None, sources)
    with pytest.raises(BeforeFirstBatch, match=r"/here: no batch with a Kafka source"):
        position_of_checkpoint(nothing, "/here")


def test_the_only_source_is_meant() -> None:
    position = at(ORDERS, CLICKS)
    assert position.of_source(None, None) == position
    assert position.of_source(0, None) == position
    # What the new query is to read may be new altogether.
    assert position.of_source(None, ["new"]) == position


def test_of_several_it_is_named_by_its_number_or_by_a_topic() -> None:
    position = at(ORDERS, CLICKS, USERS)
    assert position.of_source(2, None) == at(USERS)
    assert position.of_source(None, ["users"]) == at(USERS)
    assert position.of_source(None, ["clicks", "new"]) == at(ORDERS, CLICKS)


@pytest.mark.parametrize(
    ("topics", "source", "named", "asked"),
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
    topics: tuple[TopicRanges, ...], source: int | None, named: list[str] | None, asked: str
) -> None:
    with pytest.raises(SourceNotNamed) as raised:
        at(*topics).of_source(source, named)
    text = str(raised.value)
    assert text.startswith(f"query orders has {asked}: name one of them (0: orders")
    assert "\n" not in text
