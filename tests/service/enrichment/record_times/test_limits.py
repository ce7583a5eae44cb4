"""How much is asked, how often, and of whom no more."""

from __future__ import annotations

import logging

import pytest
from aiokafka.structs import TopicPartition

from sparklag_service.enrichment.record_times.limits import (
    FIRST_BYTES,
    FORBIDDEN_S,
    MAX_BYTES,
    BatchSizes,
    ByteBudget,
    ForbiddenTopics,
    Position,
    SampleSchedule,
)
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


def test_a_position_that_was_sampled_is_not_due_until_its_time() -> None:
    schedule = SampleSchedule()
    assert schedule.is_due(ORDERS, HERE, 10.0)
    schedule.postpone(ORDERS, HERE, 70.0)
    schedule.tidy(60.0)
    assert not schedule.is_due(ORDERS, HERE, 69.0)
    assert schedule.is_due(ORDERS, HERE, 70.0)
    schedule.tidy(70.0)
    assert schedule.is_due(ORDERS, HERE, 10.0)


@pytest.mark.parametrize(
    "other",
    [("new", "read_uncommitted", 5), ("id", "read_committed", 5), ("id", "read_uncommitted", 6)],
)
def test_another_offset_another_level_and_another_topic_of_that_name_are_due(
    other: Position,
) -> None:
    schedule = SampleSchedule()
    schedule.postpone(ORDERS, HERE, 70.0)
    assert schedule.is_due(ORDERS, other, 20.0)


def test_a_timestamp_stays_to_be_seen_before_another_position_is_sampled() -> None:
    schedule = SampleSchedule()
    other: Position = ("id", "read_uncommitted", 9)
    schedule.show(ORDERS, 11.0)
    assert not schedule.is_due(ORDERS, other, 13.0)
    assert schedule.is_due(TopicPartition("orders", 1), other, 13.0)
    schedule.tidy(13.0)
    assert not schedule.is_due(ORDERS, other, 13.0)
    schedule.tidy(14.0)
    assert schedule.is_due(ORDERS, other, 14.0)


def test_what_was_postponed_does_not_keep_another_position_waiting() -> None:
    schedule = SampleSchedule()
    schedule.postpone(ORDERS, HERE, 70.0)
    assert schedule.is_due(ORDERS, ("id", "read_uncommitted", 9), 10.0)


def test_what_failed_is_due_again_when_that_is_said() -> None:
    schedule = SampleSchedule()
    schedule.postpone(ORDERS, HERE, 3_600.0)
    schedule.postpone(ORDERS, HERE, 70.0)
    assert not schedule.is_due(ORDERS, HERE, 69.0)
    assert schedule.is_due(ORDERS, HERE, 70.0)


def test_of_a_partition_only_so_many_positions_are_remembered() -> None:
    schedule = SampleSchedule()
    for offset in range(100):
        schedule.postpone(ORDERS, ("id", "read_uncommitted", offset), 70.0)
    due = [schedule.is_due(ORDERS, ("id", "read_uncommitted", at), 20.0) for at in range(100)]
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
    sizes.learn("orders", 10 * MAX_BYTES)
    assert sizes.usual("orders") == MAX_BYTES
    assert sizes.usual("other") == FIRST_BYTES
    sizes.retain(set())
    assert sizes.usual("orders") == FIRST_BYTES


def test_a_topic_that_may_not_be_read_is_left_alone_for_a_while_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forbidden = ForbiddenTopics("east")
    assert not forbidden.contains("orders", 0.0)
    with caplog.at_level(logging.WARNING):
        assert forbidden.add("orders", 0.0)
        assert not forbidden.add("orders", 1.0), "another of its partitions"
        assert forbidden.contains("orders", FORBIDDEN_S)
        assert not forbidden.contains("orders", FORBIDDEN_S + 1)
        assert forbidden.add("orders", FORBIDDEN_S + 1)
    (told,) = logged(caplog)
    assert told.startswith("Kafka cluster east: no right to read topic orders")
    assert not forbidden.contains("other", 0.0)
    forbidden.remove("orders")
    assert not forbidden.contains("orders", FORBIDDEN_S + 2)
