"""How much is asked, how often, and of whom no more."""

from __future__ import annotations

import logging

import pytest
from aiokafka.structs import TopicPartition

from sparklag_service.enrichment.record_times.asked import AGAIN_S, Asked, Position
from sparklag_service.enrichment.record_times.batch_sizes import BatchSizes
from sparklag_service.enrichment.record_times.byte_budget import ByteBudget
from sparklag_service.enrichment.record_times.refusals import LEFT_ALONE_S, Refusals
from sparklag_service.enrichment.record_times.search import FIRST_BYTES, MOST_BYTES
from tests.logged import logged

ORDERS = TopicPartition("orders", 0)
HERE: Position = ("id", "read_uncommitted", 5)


def test_a_budget_that_is_spent_is_there_again_at_its_rate() -> None:
    budget = ByteBudget(0.0, bytes_per_s=100, burst_bytes=300)
    assert budget.wait_s(0.0) == 0
    budget.spend(300, 0.0)
    assert budget.wait_s(0.0) == 0
    budget.spend(500, 0.0)
    assert budget.wait_s(0.0) == 5.0
    assert budget.wait_s(4.0) == 1.0
    assert budget.wait_s(5.0) == 0
    budget.spend(200, 1_000.0)
    assert budget.wait_s(1_000.0) == 0, "it saves, and no more than its burst"
    budget.spend(200, 1_000.0)
    assert budget.wait_s(1_000.0) == 1.0


def test_a_position_is_asked_for_once() -> None:
    asked = Asked()
    assert asked.is_due(ORDERS, HERE, 10.0)
    asked.begin(ORDERS, HERE, 10.0)
    assert not asked.is_due(ORDERS, HERE, 10.0)
    asked.tidy(100.0)
    assert not asked.is_due(ORDERS, HERE, 10.0 + AGAIN_S - 1)
    assert asked.is_due(ORDERS, HERE, 10.0 + AGAIN_S)
    asked.tidy(10.0 + AGAIN_S)
    assert asked.is_due(ORDERS, HERE, 10.0)


@pytest.mark.parametrize(
    "other",
    [("new", "read_uncommitted", 5), ("id", "read_committed", 5), ("id", "read_uncommitted", 6)],
)
def test_another_offset_another_level_and_another_topic_of_that_name_are_asked_for(
    other: Position,
) -> None:
    asked = Asked()
    asked.begin(ORDERS, HERE, 10.0)
    assert asked.is_due(ORDERS, other, 20.0)


def test_what_was_found_stays_to_be_seen_before_another_position_is_asked_for() -> None:
    asked = Asked(seen_s=3.0)
    other: Position = ("id", "read_uncommitted", 9)
    asked.begin(ORDERS, HERE, 10.0)
    assert not asked.is_due(ORDERS, other, 12.0), "its answer is on its way"
    asked.found(ORDERS, HERE, 11.0)
    assert not asked.is_due(ORDERS, other, 13.0)
    assert asked.is_due(TopicPartition("orders", 1), other, 13.0)
    asked.tidy(14.0)
    assert asked.is_due(ORDERS, other, 14.0)


def test_what_came_to_nothing_does_not_keep_another_position_waiting() -> None:
    asked = Asked(seen_s=3.0)
    asked.begin(ORDERS, HERE, 10.0)
    asked.again(ORDERS, HERE, 70.0)
    assert asked.is_due(ORDERS, ("id", "read_uncommitted", 9), 10.0)


def test_one_that_gave_way_does_not_free_the_partition_for_a_third() -> None:
    asked = Asked(seen_s=3.0)
    there: Position = ("id", "read_uncommitted", 9)
    asked.begin(ORDERS, HERE, 10.0)
    asked.begin(ORDERS, there, 13.0)
    asked.again(ORDERS, HERE, 13.0)
    assert not asked.is_due(ORDERS, HERE, 15.0), "the answer of the other is on its way"
    assert asked.is_due(ORDERS, HERE, 16.0)


def test_what_failed_is_asked_for_again_when_that_is_said() -> None:
    asked = Asked()
    asked.begin(ORDERS, HERE, 10.0)
    asked.again(ORDERS, HERE, 70.0)
    assert not asked.is_due(ORDERS, HERE, 69.0)
    assert asked.is_due(ORDERS, HERE, 70.0)
    asked.again(ORDERS, ("gone", "read_committed", 1), 0.0)
    assert asked.is_due(ORDERS, HERE, 70.0)


def test_of_a_partition_only_so_many_positions_are_remembered() -> None:
    asked = Asked()
    for offset in range(100):
        asked.begin(ORDERS, ("id", "read_uncommitted", offset), 10.0)
    due = [asked.is_due(ORDERS, ("id", "read_uncommitted", at), 20.0) for at in range(100)]
    assert due == [True] * 92 + [False] * 8


def test_a_fetch_asks_for_as_much_as_the_topics_batches_take() -> None:
    sizes = BatchSizes()
    assert sizes.usual("orders") == FIRST_BYTES
    sizes.learn("orders", 16_000)
    assert sizes.usual("orders") == 16_000
    sizes.learn("orders", 100)
    assert 15_000 < sizes.usual("orders") < 16_000
    for _ in range(500):
        sizes.learn("orders", 100)
    assert sizes.usual("orders") == 256, "it follows when they get smaller"
    sizes.learn("orders", 10 * MOST_BYTES)
    assert sizes.usual("orders") == MOST_BYTES
    assert sizes.usual("other") == FIRST_BYTES
    sizes.keep_only(set())
    assert sizes.usual("orders") == FIRST_BYTES


def test_a_topic_that_may_not_be_read_is_left_alone_for_a_while_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals("east")
    assert not refusals.is_left_alone("orders", 0.0)
    with caplog.at_level(logging.WARNING):
        assert refusals.begin("orders", 0.0)
        assert not refusals.begin("orders", 1.0), "another of its partitions"
        assert refusals.is_left_alone("orders", LEFT_ALONE_S)
        assert not refusals.is_left_alone("orders", LEFT_ALONE_S + 1)
        assert refusals.begin("orders", LEFT_ALONE_S + 1)
    (told,) = logged(caplog)
    assert told.startswith("Kafka cluster east: no right to read topic orders")
    assert not refusals.is_left_alone("other", 0.0)
    refusals.end("orders")
    assert not refusals.is_left_alone("orders", LEFT_ALONE_S + 2)
