"""The statuses of a query, second by second: each state, and what only looks like it."""

from __future__ import annotations

import random

import pytest

from sparklag_jobs.demo.streams import ORDERS, orders_per_second
from sparklag_schemas import Batch, Thresholds
from tests.service.evaluation.trace import Trace


@pytest.fixture
def trace() -> Trace:
    """A query that has kept up for a while, a batch of 2 s each 10 s."""
    trace = Trace(produce=lambda _: [50])
    trace.steady(12)
    return trace


def statuses(trace: Trace) -> set[str]:
    return {event.status for event in trace.events if event.batch_id is not None}


def test_a_query_that_keeps_up_is_ok_all_the_time(trace: Trace) -> None:
    trace.steady(60)
    assert statuses(trace) == {"OK"}
    assert {event.reason for event in trace.events[20:]} == {None}


def test_a_slow_batch_is_no_alarm(trace: Trace) -> None:
    trace.batch(duration_s=250)
    trace.steady(20)
    assert statuses(trace) == {"OK"}


@pytest.mark.parametrize("durations_s", [[3_600] * 4, [7_200, 3_600]])
def test_batches_that_take_hours_are_no_alarm(durations_s: list[int]) -> None:
    """The usual duration is not known before two batches."""
    trace = Trace(produce=lambda _: [500], refresh_s=10)
    for duration_s in durations_s:
        trace.batch(duration_s)
    trace.pass_time(10_000)
    assert statuses(trace) == {"OK"}


def test_a_quiet_topic_is_no_alarm_nor_is_its_first_record_after_hours(trace: Trace) -> None:
    trace.produce = lambda _: [0]
    trace.steady(1)
    for _ in range(600):
        trace.idle()
        trace.pass_time(10)
    trace.ends[0] += 1
    trace.pass_time(100)
    assert statuses(trace) == {"OK"}
    trace.batch()
    assert (trace.status, trace.event.total_lag) == ("OK", 0)


def test_a_batch_that_is_held_back_until_there_is_enough_is_no_alarm(trace: Trace) -> None:
    """The query reports that it is idle while records wait, with `minOffsetsPerTrigger`."""
    trace.produce = lambda now_s: [1 if now_s % 600 < 1 else 0]
    trace.batch()
    for _ in range(300):
        trace.idle()
        trace.pass_time(10)
    assert trace.event.total_lag == 5
    assert statuses(trace) == {"OK"}


def test_a_long_trigger_interval_is_no_alarm() -> None:
    trace = Trace(produce=lambda _: [500], refresh_s=10)
    for _ in range(5):
        trace.pass_time(3_540)
        trace.batch(duration_s=60)
    trace.pass_time(3_600)
    assert statuses(trace) == {"OK"}


def test_available_now_ends_and_its_lag_grows_until_the_next_run(trace: Trace) -> None:
    trace.say("terminated")
    trace.pass_time(7_200)
    assert (trace.status, trace.event.total_lag) == ("FINISHED", 7_202 * 50)
    assert trace.event.catch_up_reason == "the query is not running"
    trace.run_id = "79f1bf68-0000-4000-8000-000000000002"
    trace.say("started")
    for _ in range(40):
        trace.batch(duration_s=10, most=20_000)
    assert {event.status for event in trace.events[-400:]} == {"OK"}
    trace.say("terminated")
    assert trace.status == "FINISHED"


def test_a_backlog_that_shrinks_is_no_alarm() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.ends[0] = 1_000_000
    for _ in range(30):
        trace.batch(duration_s=10, most=10_000)
    assert statuses(trace) == {"OK"}


def test_a_query_whose_driver_lives_and_completes_nothing_stalls(trace: Trace) -> None:
    trace.pass_time(300)
    assert trace.status == "OK"
    since = trace.event.measured_at
    trace.pass_time(20)
    assert trace.status == "STALL"
    assert trace.event.reason == (
        "no completed batch for 301 s (usually up to 2.0 s, one every 10 s); lag is 15,150 records"
    ).replace("301 s", "5 min").replace("15,150", f"{trace.event.total_lag:,}")
    assert trace.event.status_since is not None
    assert since < trace.event.status_since < since + 10_000
    assert trace.event.processed_rate == 0.0
    trace.batch()
    assert trace.status == "OK"
    assert trace.event.status_since == trace.event.measured_at


def test_the_limit_follows_what_is_usual() -> None:
    """Batches of 200 s each: three times that is what may pass."""
    trace = Trace(produce=lambda _: [50])
    for _ in range(5):
        trace.batch(duration_s=200)
    trace.pass_time(600)
    assert trace.status == "OK"
    trace.pass_time(5)
    assert trace.status == "STALL"


def test_the_limit_can_be_set() -> None:
    trace = Trace(produce=lambda _: [50], thresholds=Thresholds(stall_after_s=20, stall_factor=1.5))
    trace.steady(12)
    trace.pass_time(20)
    assert trace.status == "OK"
    trace.pass_time(2)
    assert trace.status == "STALL"


def test_lag_that_is_allowed_is_neither_stalled_nor_growing() -> None:
    trace = Trace(produce=lambda _: [1], thresholds=Thresholds(allowed_lag=1_000))
    trace.steady(12)
    trace.pass_time(900)
    assert statuses(trace) == {"OK"}
    trace.pass_time(500)
    assert trace.status == "STALL"


def test_a_checkpoint_that_does_not_move_is_of_a_query_that_stopped() -> None:
    """The end of a query without a driver looks like a stall."""
    trace = Trace(produce=lambda _: [50], origin="checkpoint", run_id=None)
    trace.steady(12)
    trace.pass_time(301)
    assert trace.status == "STOP"


def test_a_query_that_gets_slower_than_its_input_is_warned_of(trace: Trace) -> None:
    for _ in range(14):
        trace.pass_time(8)
        trace.batch(2, most=400)
        assert trace.status == "OK"
    # Now the oldest record is older than 30 s: by a fifth of the time that passed.
    trace.pass_time(8)
    trace.batch(2, most=400)
    reason = "lag has grown in 15 batches and not fallen: from 100 to 1,600 records"
    assert (trace.status, trace.event.reason) == ("WARN", reason)
    assert (trace.one().status, trace.one().reason) == ("WARN", reason)
    trace.steady(1)
    assert trace.status == "OK"


def test_a_rising_lag_is_warned_of_between_batches_once_its_records_are_old(trace: Trace) -> None:
    trace.steady(12, most=400)
    assert trace.status == "OK"
    batch_id = trace.event.batch_id
    while trace.status == "OK":
        trace.pass_time(1)
    assert (trace.status, trace.event.batch_id) == ("WARN", batch_id)
    assert 30 < (trace.event.max_time_lag_s or 0) <= 31


def test_a_rising_lag_that_will_soon_be_gone_is_no_alarm(trace: Trace) -> None:
    """Half a second of work each ten: it could do far more than arrives."""
    for _ in range(20):
        trace.pass_time(10)
        trace.at[0] += 400
        trace.batch_id += 1
        trace.say("progress", batch=Batch(started_at=trace.now_ms - 500, rows=400, duration_ms=500))
    assert (trace.event.max_time_lag_s or 0) > 30
    assert (trace.event.catch_up_s or 99) < 30
    assert statuses(trace) == {"OK"}


@pytest.mark.parametrize("end", ["STOP", "FINISHED", "FAILED"])
def test_a_dead_query_processes_nothing(trace: Trace, end: str) -> None:
    assert trace.event.processed_rate == pytest.approx(50, rel=0.1)
    if end != "STOP":
        trace.say("terminated", exception="no space" if end == "FAILED" else None)
    trace.pass_time(1, silent=end == "STOP")
    event = trace.event
    assert (event.status, event.processed_rate, event.batch_rate) == (end, 0.0, None)
    assert event.lag_trend == event.input_rate
    assert (event.catch_up_s, event.catch_up_reason) == (None, "the query is not running")


def test_an_hour_of_the_demo_is_no_alarm() -> None:
    """Its wave of orders, one batch each two seconds and now and then a slow one."""
    chance = random.Random(7)
    carried = 0.0

    def produce(now_s: float) -> list[int]:
        nonlocal carried
        carried += orders_per_second(now_s)
        count, carried = int(carried), carried % 1
        busiest = int(count * ORDERS.busiest_share)
        others = count - busiest
        return [busiest, others // 3, others // 3, others - 2 * (others // 3)]

    trace = Trace(ORDERS.partitions, produce=produce)
    while trace.now_s < 3_700:
        duration_s = chance.choice([0.4, 0.6, 1.0, 2.5, 6.0])
        trace.batch(duration_s)
        trace.pass_time(max(0.0, 2 - duration_s))
    assert statuses(trace) == {"OK"}


def test_lag_that_stays_the_same_is_no_alarm() -> None:
    trace = Trace(produce=lambda _: [50])
    trace.ends[0] = 5_000
    trace.steady(30, most=500)
    assert trace.one().lag == 5_000
    assert statuses(trace) == {"OK"}


def test_one_partition_that_falls_behind_is_reported_with_the_others_well() -> None:
    trace = Trace(2, produce=lambda _: [50, 50])
    for _ in range(20):
        trace.pass_time(9)
        ends = list(trace.ends)
        trace.pass_time(1)
        trace.at[0] = ends[0]
        trace.at[1] += 400
        trace.batch_id += 1
        trace.say("progress")
    assert (trace.one(0).status, trace.one(1).status) == ("OK", "WARN")
    assert trace.status == "WARN"


def test_a_partition_that_its_query_passes_by_stalls() -> None:
    trace = Trace(2, produce=lambda _: [50, 1])
    trace.steady(2)
    for _ in range(12):
        trace.pass_time(10)
        trace.at[0] = trace.ends[0]
        trace.batch_id += 1
        trace.say("progress")
    assert (trace.one(0).status, trace.one(1).status, trace.status) == ("OK", "STALL", "STALL")


@pytest.mark.parametrize(
    ("thresholds", "reason"),
    [
        (Thresholds(max_lag=1_000), "lag is 1,050 records, 1,000 are allowed"),
        (Thresholds(max_time_lag_s=20), "the oldest unread record is 21 s old, 20 s is allowed"),
    ],
)
def test_what_is_allowed_can_be_reported(thresholds: Thresholds, reason: str) -> None:
    trace = Trace(produce=lambda _: [50], thresholds=thresholds)
    trace.steady(12, every_s=10)
    assert statuses(trace) == {"OK"}
    while trace.status == "OK":
        trace.pass_time(1)
    assert (trace.status, trace.event.reason) == ("WARN", reason)


def test_a_warning_stays_until_something_moves(trace: Trace) -> None:
    trace.steady(20, most=400)
    assert trace.status == "WARN"
    reason = trace.event.reason
    trace.change_hands()
    trace.pass_time(5)
    assert (trace.status, trace.event.reason) == ("WARN", reason)
    trace.steady(1)
    assert trace.status == "OK"


def test_a_held_query_does_not_stall_by_a_change_of_hands(trace: Trace) -> None:
    trace.idle()
    trace.produce = lambda _: [0]
    trace.ends[0] += 5
    for _ in range(100):
        trace.idle()
        trace.pass_time(10)
    trace.change_hands()
    trace.pass_time(9)
    trace.idle()
    assert statuses(trace) == {"OK"}
