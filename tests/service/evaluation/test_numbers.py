"""Ages, rates, when the lag is gone, and how far it is from being deleted: against the truth."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import pytest

from tests.service.evaluation.trace import Trace

DAY_S = 86_400


def near(wanted: float, within: float) -> object:
    return pytest.approx(wanted, abs=within)


def test_without_lag_nothing_is_old() -> None:
    trace = Trace(produce=lambda _: [10])
    trace.steady(3)
    trace.produce = lambda _: [0]
    trace.batch()
    assert (trace.one().time_lag_s, trace.one().time_lag_method) == (0.0, None)
    assert trace.event.max_time_lag_s == 0.0


def test_a_record_on_a_quiet_topic_is_as_old_as_it_is() -> None:
    trace = Trace(produce=lambda _: [1])
    trace.steady(2)
    trace.produce = lambda _: [0]
    trace.batch()
    trace.pass_time(5_000)
    trace.ends[0] += 1
    trace.pass_time(1)
    assert trace.one().time_lag_s == 0.5
    trace.pass_time(5_000)
    assert (trace.one().time_lag_s, trace.one().time_lag_method) == (5_000.5, "interpolated")


def test_an_earlier_record_is_at_least_as_old_as_the_first_measurement() -> None:
    trace = Trace(produce=lambda _: [10], ends=[1_000])
    trace.at[0] = 500
    trace.say("progress", batch_id=3)
    trace.pass_time(100)
    assert (trace.one().time_lag_s, trace.one().time_lag_method) == (100.0, "floor")
    trace.at[0] = 1_105
    trace.say("progress", batch_id=4)
    assert (trace.one().time_lag_s, trace.one().time_lag_method) == (89.45, "interpolated")


@pytest.mark.parametrize(
    ("lag_s", "refresh_s"), [(2, 1), (30, 1), (600, 1), (4 * 3_600, 10), (20 * 3_600, 60)]
)
def test_interpolated_is_within_a_refresh_and_5_percent(lag_s: int, refresh_s: int) -> None:
    """Records come in bursts and pauses; the query is `lag_s` behind and moves on each minute."""
    dice = random.Random(lag_s)
    came: list[float] = []

    def produce(now_s: float) -> list[int]:
        burst = dice.choice([0, 0, 1, 5, 40]) if now_s % 600 < 500 else 0
        came.extend(sorted(now_s - refresh_s * dice.random() for _ in range(burst)))
        return [burst]

    trace = Trace(produce=produce, refresh_s=refresh_s)
    errors = []
    for step in range(lag_s // 600 + 40):
        trace.pass_time(600 if step < lag_s // 600 else 60)
        trace.at[0] = bisect_right(came, trace.now_s - lag_s)
        trace.batch_id = step
        trace.say("progress")
        one = trace.one()
        if one.lag and one.time_lag_method == "interpolated":
            truth_s = trace.now_s - came[one.processed_offset or 0]
            assert one.time_lag_s is not None
            errors.append(abs(one.time_lag_s - truth_s) / (refresh_s + 0.05 * truth_s))
    assert len(errors) > 15
    assert max(errors) <= 1.0


def test_a_record_that_was_read_reports_itself_how_old_it_is() -> None:
    trace = Trace(produce=lambda _: [10], ends=[1_000])
    trace.at[0] = 500
    trace.say("progress", batch_id=3)
    trace.sampled(0, trace.now_ms - 7_200_000)
    trace.pass_time(10)
    assert (trace.one().time_lag_s, trace.one().time_lag_method) == (7_210.0, "sampled")
    trace.at[0] = 501
    trace.say("progress", batch_id=4)
    assert trace.one().time_lag_method == "floor"


@pytest.mark.parametrize("off_s", [DAY_S + 60, 50 * 365 * DAY_S, -5, -(10**9)])
def test_a_timestamp_that_cannot_be_when_the_record_came_is_not_believed(off_s: float) -> None:
    """Old data that somebody fills in today, the year 1970, a clock that is ahead."""
    trace = Trace(produce=lambda _: [10])
    trace.steady(2)
    trace.pass_time(5)
    known = trace.one()
    trace.sampled(0, trace.now_ms - round(off_s * 1000))
    trace.pass_time(1)
    assert trace.one().time_lag_method == "interpolated"
    assert trace.one().time_lag_s == (known.time_lag_s or 0.0) + 1


@pytest.mark.parametrize(("days", "method"), [(300, "sampled"), (400, "floor")])
def test_an_earlier_record_is_dated_back_a_year_at_most(days: int, method: str) -> None:
    trace = Trace(ends=[1_000])
    trace.at[0] = 500
    trace.say("progress", batch_id=3)
    trace.sampled(0, trace.now_ms - round(days * DAY_S * 1000))
    trace.pass_time(10)
    assert trace.one().time_lag_method == method
    assert (trace.one().time_lag_s or 0) < 366 * DAY_S


def test_a_leader_that_is_away_widens_what_is_known_and_invents_nothing() -> None:
    trace = Trace(produce=lambda _: [1])
    trace.steady(2)
    trace.unread.add(0)
    trace.pass_time(20)
    trace.unread.clear()
    trace.pass_time(1)
    trace.at[0] = trace.ends[0] - 1
    trace.batch_id += 1
    trace.say("progress")
    # It came at any time of those 21 s.
    assert 0 < (trace.one().time_lag_s or 0) < 21


def test_ages_survive_a_change_of_hands() -> None:
    trace = Trace(produce=lambda _: [10])
    trace.steady(3)
    trace.pass_time(100)
    before = trace.one().time_lag_s
    trace.change_hands()
    trace.now_s += 30
    trace.ends[0] += 300
    trace.measure()
    assert trace.one().time_lag_s == near((before or 0) + 30, 0.01)
    trace.at[0] = trace.ends[0] - 150
    trace.batch_id += 1
    trace.say("progress")
    assert (trace.one().time_lag_s, trace.one().time_lag_method) == (near(15, 1), "interpolated")


def test_rates_of_a_query_that_keeps_up() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.steady(20)
    result = trace.event
    assert (result.input_rate, result.processed_rate) == (near(50, 1), near(50, 1))
    assert (result.batch_rate, result.lag_trend) == (near(250, 5), near(0, 1))
    assert (result.usual_batch_s, result.usual_interval_s) == (2.0, 10.0)
    assert result.catch_up_s == near(100 / 200, 0.05)


def test_rates_are_unknown_before_two_batches() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.pass_time(5)
    trace.batch()
    result = trace.event
    assert (result.processed_rate, result.batch_rate, result.lag_trend) == (None, None, None)
    assert (result.catch_up_s, result.catch_up_reason) == (None, "its pace is not known yet")


def test_commits_of_a_group_are_counted_and_those_of_a_query_are_not() -> None:
    fields: dict[str, Any] = {"batch_id": None, "origin": "group"}
    trace = Trace(produce=lambda _: [50], run_id=None, **fields)
    for _ in range(9):
        trace.batch(5)
    rates = [event.commit_rate for event in trace.events]
    assert (rates[0], rates[-1]) == (None, near(0.2, 0.01))
    trace.pass_time(60)
    assert 0 < (trace.event.commit_rate or 0) < 0.1
    query = Trace(produce=lambda _: [50])
    query.steady(5)
    assert query.event.commit_rate is None


def test_a_backlog_reports_when_it_is_gone() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.ends[0] = 100_000
    for _ in range(10):
        trace.batch(10, most=2_000)
    result = trace.event
    assert (result.input_rate, result.processed_rate) == (near(50, 1), near(200, 1))
    assert result.lag_trend == near(-150, 2)
    assert {event.status for event in trace.events if event.batch_id is not None} == {"OK"}
    reported_s = result.catch_up_s or 0
    batches = 0
    while trace.event.total_lag:
        trace.produce = lambda _: [50]
        trace.batch(10, most=2_000)
        batches += 1
        if (trace.event.total_lag or 0) <= 500:
            break
    assert reported_s == near(batches * 10, 0.05 * reported_s + 10)


@pytest.mark.parametrize(
    ("behind", "most", "trend", "reason"),
    [
        (0, 400, 10, "never at these rates: input 50.0 records/s, processed 40.0 records/s"),
        (
            *(5_000, 500, 0),
            "it keeps pace but does not catch up: input 50.0 records/s, processed 50.0 records/s",
        ),
    ],
)
def test_a_query_may_never_catch_up(behind: int, most: int, trend: float, reason: str) -> None:
    trace = Trace(produce=lambda _: [50])
    trace.ends[0] = behind
    for _ in range(20):
        trace.batch(10, most=most)
    result = trace.event
    assert (result.catch_up_s, result.catch_up_reason) == (None, reason)
    assert result.lag_trend == near(trend, 0.5)


def test_unobserved_batches_are_counted() -> None:
    trace = Trace(produce=lambda _: [50])
    for _ in range(8):
        trace.pass_time(30)
        trace.at = list(trace.ends)
        trace.batch_id += 2
        trace.batch(0)
    assert trace.event.usual_interval_s == near(10, 0.1)
    assert trace.event.processed_rate == near(50, 1)


def test_going_back_is_no_work_undone() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.steady(10)
    trace.at = [0]
    trace.batch_id += 1
    trace.say("progress")
    assert trace.status == "REWIND"
    assert (trace.event.processed_rate or 0) > 0


def test_skew_is_the_share_of_the_worst_partition() -> None:
    trace = Trace(3, produce=lambda _: [30, 10, 0])
    trace.say("progress", batch_id=0)
    trace.pass_time(10)
    assert trace.event.skew == 0.75
    alone = Trace(produce=lambda _: [30])
    alone.steady(2)
    assert alone.event.skew is None


def retained(produce: Callable[[float], list[int]], most: int | None) -> Trace:
    """Each 100 s retention deletes 5,000 records; a batch each 10 s."""
    trace = Trace(produce=produce)
    trace.ends[0] = 50_000
    for step in range(60):
        if step % 10 == 9:
            trace.starts[0] += 5_000
        trace.batch(10, most=most)
    return trace


def test_a_query_that_reads_faster_than_is_deleted_loses_nothing() -> None:
    trace = retained(lambda _: [50], most=1_000)
    assert trace.event.loss_expected_at is None
    assert trace.event.min_headroom_records == trace.at[0] - trace.starts[0]
    assert trace.status == "OK"


def test_a_query_that_reads_slower_than_is_deleted_is_reported_when_it_loses() -> None:
    trace = retained(lambda _: [50], most=300)
    trace.starts[0] = 15_000
    trace.measure()
    left = trace.at[0] - trace.starts[0]
    assert trace.event.min_headroom_records == left == 3_000
    # 50 are deleted a second, and 30 read.
    assert trace.event.min_headroom_s == near(60, 15)
    assert trace.event.loss_expected_at is not None
    expected_s = (trace.event.loss_expected_at - trace.now_ms) / 1000
    assert expected_s == near(150, 60)
    assert trace.status == "WARN"
    assert (trace.event.reason or "").startswith("retention deletes unread records in ")


def test_what_is_lost_already_is_reported_as_such() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.steady(3)
    trace.pass_time(60)
    trace.starts[0] = trace.at[0] + 10
    trace.measure()
    assert (trace.status, trace.event.lost_records) == ("DATA_LOSS", 10)
    assert trace.event.min_headroom_records is None
    assert (trace.one().time_lag_s or 0) > 55
