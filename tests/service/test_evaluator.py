"""Lag from positions and offsets: what is not known is null, never 0."""

from __future__ import annotations

import random

import pytest

from sparklag_schemas import LagEvent, PartitionLag
from sparklag_service.evaluator import Measurement, evaluate
from sparklag_service.tracker import QueryState
from tests.service.states import measurement, partition, source, state


def event(query: QueryState, measured: Measurement) -> LagEvent:
    return evaluate(query, measured, "id", "refresh", "service")


def only(found: LagEvent) -> PartitionLag:
    ((only_one,),) = [topic.partitions for topic in found.topics]
    return only_one


def test_lag_is_latest_minus_processed() -> None:
    found = event(state(source({"orders": {0: 5, 1: 7}})), measurement({0: 70, 1: 7}))
    assert [p.lag for p in found.topics[0].partitions] == [65, 0]
    assert (found.total_lag, found.max_lag, found.unknown_partitions) == (65, 65, 0)
    assert (found.status, found.reason) == ("OK", None)


def test_an_unknown_partition_is_left_out_of_the_sum_and_counted() -> None:
    found = event(
        state(source({"orders": {0: 5, 1: 7}})),
        measurement({0: 70}, unknown={partition(1): "the partition has no leader"}),
    )
    unknown = found.topics[0].partitions[1]
    assert (unknown.lag, unknown.latest_offset) == (None, None)
    assert (unknown.status, unknown.reason) == ("UNKNOWN", "the partition has no leader")
    assert (found.total_lag, found.unknown_partitions) == (65, 1)
    assert found.reason == "1 of 2 partitions: the partition has no leader"


def test_when_nothing_is_known_the_total_is_null_and_not_zero() -> None:
    found = event(state(), measurement({}, unknown={partition(0): "no broker answers"}))
    assert (found.total_lag, found.max_lag, found.status) == (None, None, "UNKNOWN")


def test_a_query_without_a_position_shows_its_partitions_with_unknown_lag() -> None:
    query = state(source(None, topics=("orders",)))
    found = event(query, measurement({0: 70}, partitions={"orders": frozenset({0})}))
    assert only(found).latest_offset == 70
    assert (only(found).lag, only(found).reason) == (None, "no batch has completed yet")
    assert (found.status, found.reason) == ("UNKNOWN", "no batch has completed yet")


def test_a_log_that_ends_before_the_position_was_created_anew_and_is_not_lag_zero() -> None:
    found = event(state(), measurement({0: 3}))
    assert (only(found).lag, only(found).status, found.status) == (None, "RECREATED", "RECREATED")


def test_records_deleted_unread_are_told() -> None:
    found = event(state(), measurement({0: 70}, earliest={0: 30}))
    assert only(found).status == "DATA_LOSS"
    assert only(found).reason == "25 records were deleted before they were read"


def test_a_query_that_failed_says_with_what_on_one_line() -> None:
    query = state(ended=True, exception="boom\n\tat org.apache.spark")
    found = event(query, measurement({0: 70}))
    assert (found.status, found.reason) == ("FAILED", "the query failed: boom")
    assert found.total_lag == 65


@pytest.mark.parametrize("text", ["", "\n"])
def test_a_failure_without_a_text_is_still_one(text: str) -> None:
    assert event(state(ended=True, exception=text), measurement({0: 70})).status == "FAILED"


def test_a_stopped_query_is_finished_and_its_lag_goes_on() -> None:
    found = event(state(ended=True), measurement({0: 70}))
    assert (found.status, found.total_lag) == ("FINISHED", 65)


def test_a_topic_read_by_two_sources_is_counted_for_each() -> None:
    query = state(
        source({"orders": {0: 5}}),
        source({"orders": {0: 60}}, source=1),
    )
    found = event(query, measurement({0: 70}))
    assert [(t.source, t.total_lag) for t in found.topics] == [(0, 65), (1, 10)]
    assert (found.total_lag, found.max_lag) == (75, 65)


def test_read_committed_is_measured_to_the_last_stable_offset() -> None:
    query = state(source({"orders": {0: 5}}, isolation_level="read_committed"))
    measured = Measurement(
        measured_at_ms=1,
        latest={"read_uncommitted": {partition(0): 70}, "read_committed": {partition(0): 6}},
    )
    assert event(query, measured).total_lag == 1


def test_no_input_makes_a_negative_lag_or_a_sum_of_unknowns() -> None:
    dice = random.Random(3)
    for _ in range(2_000):
        numbers = range(dice.randint(1, 5))
        processed = {n: dice.randint(0, 9) for n in numbers}
        latest = {n: dice.randint(0, 9) for n in numbers if dice.random() < 0.8}
        earliest = {n: dice.randint(0, 9) for n in numbers if dice.random() < 0.8}
        found = event(state(source({"orders": processed})), measurement(latest, earliest))
        lags = [p.lag for p in found.topics[0].partitions]
        known = [lag for lag in lags if lag is not None]
        assert all(lag >= 0 for lag in known)
        assert found.total_lag == (sum(known) if known else None)
        assert found.unknown_partitions == lags.count(None)
        assert (found.status == "OK") == all(p.status == "OK" for p in found.topics[0].partitions)
