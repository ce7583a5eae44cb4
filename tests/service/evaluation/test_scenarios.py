"""The statuses of a query, second by second: each state, and what only looks like it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from sparklag_jobs.demo.streams import ORDERS, orders_per_second
from sparklag_schemas import Batch, RunningBatch, SourcePosition, Thresholds
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
    trace = Trace(produce=lambda _: [500], refresh_s=10, trigger_interval_s=3_600.0)
    for _ in range(5):
        trace.pass_time(3_540)
        trace.batch(duration_s=60)
    trace.pass_time(3_600)
    assert statuses(trace) == {"OK"}


def test_without_a_known_interval_a_query_is_ok_only_for_a_while_after_its_first_batch() -> None:
    """Its driver does not report the trigger. From the second batch on its interval is known."""
    trace = Trace(produce=lambda _: [500], refresh_s=10)
    for statuses_between in [{"UNKNOWN", "OK"}, {"OK"}, {"OK"}]:
        trace.batch(duration_s=60)
        at = len(trace.events)
        trace.pass_time(3_540)
        assert {event.status for event in trace.events[at:]} == statuses_between


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
    assert trace.event.processed_rate is None
    trace.batch()
    assert trace.status == "OK"
    assert trace.event.status_since == trace.event.measured_at


@pytest.mark.parametrize(("every_s", "duration_s"), [(10, 2), (200, 200)])
def test_the_limit_follows_what_is_usual_as_the_picture_shows(
    every_s: int, duration_s: int
) -> None:
    trace = Trace(produce=lambda _: [50])
    trace.steady(12, every_s, duration_s)
    at = len(trace.events)
    trace.pass_time(700)
    begins_s: dict[str, int] = {}
    for after_s, event in enumerate(trace.events[at:]):
        is_overdue = event.status == "OK" and (event.catch_up_reason or "").startswith("overdue")
        begins_s.setdefault("overdue" if is_overdue else event.status, after_s)
    picture = (Path(__file__).parents[3] / "docs" / "pictures" / "stall.svg").read_text()
    row = picture.partition(f'id="batches-of-{duration_s}-s"')[2].partition("</g>")[0]
    shown_s = dict(re.findall(r">(\w+) after (\d+) s<", row))
    assert {"OK": 0} | {name: int(after_s) for name, after_s in shown_s.items()} == begins_s


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


@pytest.mark.parametrize(("committed_ago_s", "at_first"), [(2_400, "UNKNOWN"), (3, "OK")])
def test_a_checkpoint_that_was_dead_when_first_seen_is_of_a_query_that_stopped(
    committed_ago_s: int, at_first: str
) -> None:
    trace = Trace(origin="checkpoint", run_id=None, ends=[3_200_000])
    trace.batch_id, trace.processed_at = 7, trace.now_ms - committed_ago_s * 1000
    trace.say("checkpoint")
    trace.pass_time(290)
    assert trace.status == at_first
    if at_first == "UNKNOWN":
        assert trace.event.reason == (
            "no completed batch observed for 45 min, and its usual interval is not known yet;"
            " lag is 3,200,000 records"
        )
    trace.change_hands()
    trace.pass_time(13)
    assert trace.status == "STOP"
    trace.change_hands()
    trace.pass_time(3)
    assert trace.status == "STOP"
    trace.steady(1)
    assert trace.status == "OK"


@pytest.mark.parametrize(
    ("max_lag", "changes_hands"), [(None, False), (5_500, False), (5_500, True)]
)
def test_a_batch_that_is_late_once_is_no_alarm_for_longer(
    max_lag: int | None, changes_hands: bool
) -> None:
    """The load of a query that keeps up has grown for ten batches, and stays as it is."""
    rate = 40.0
    trace = Trace(
        produce=lambda now_s: [int(rate * now_s) - int(rate * (now_s - 1))],
        thresholds=Thresholds(max_lag=max_lag),
    )
    trace.steady(12, every_s=60, duration_s=40)
    for _ in range(15):
        rate += 0.8
        trace.steady(1, every_s=60, duration_s=40)
    assert statuses(trace) == {"OK"}
    trace.pass_time(35 if max_lag else 60)
    trace.batch(40)
    assert "WARN" in statuses(trace)
    assert trace.event.rising_since is not None
    if changes_hands:
        trace.change_hands()
    at = len(trace.events)
    trace.steady(10, every_s=60, duration_s=40)
    assert {event.status for event in trace.events[at:]} == {"OK"}


def test_a_query_that_goes_on_at_another_location_has_the_rates_of_its_batches() -> None:
    trace = Trace(origin="checkpoint", run_id=None, produce=lambda _: [100])
    for location in ("/a/orders", "/b/orders"):
        trace.say("checkpoint", checkpoint_location=location)
        for _ in range(20):
            trace.pass_time(10)
            trace.at[0], trace.processed_at = trace.ends[0] - 500, trace.now_ms
            trace.batch_id += 1
            trace.say("checkpoint", checkpoint_location=location)
    rates = [event.processed_rate or 0.0 for event in trace.events[20:]]
    assert max(rates) < 200


def test_a_partition_that_stalls_is_known_after_a_hand_over_whatever_a_clock_is() -> None:
    trace = Trace(2, produce=lambda _: [50, 50])

    def reads_one(off_ms: int) -> None:
        trace.pass_time(10)
        trace.at[0], trace.processed_at = trace.ends[0], trace.now_ms - off_ms
        trace.batch_id += 1
        trace.say("progress")

    trace.steady(2)
    for _ in range(20):
        reads_one(0)
    reads_one(600_000)
    assert trace.one(1).status == "STALL"
    trace.change_hands()
    at = len(trace.events)
    for _ in range(3):
        reads_one(600_000)
    assert {event.status for event in trace.events[at:]} == {"STALL"}
    assert {event.topics[0].partitions[1].status for event in trace.events[at:]} == {"STALL"}
    assert (trace.one(1).reason or "").startswith("no progress for")


def test_batches_that_are_read_at_once_after_a_hand_over_end_no_trend() -> None:
    trace = Trace(produce=lambda _: [10])
    trace.steady(60, most=70)
    assert trace.status == "WARN"
    last_ms = trace.now_ms
    trace.change_hands()
    trace.now_s += 120
    trace.ends[0] += 1_200
    for late in range(12):
        trace.at[0] += 70
        trace.batch_id += 1
        trace.processed_at = at_ms = last_ms + 10_000 * (late + 1)
        batch = Batch(started_at=at_ms - 2_000, rows=70, duration_ms=2_000, rate_limited=True)
        trace.say("progress", observed_at=at_ms, batch=batch)
        trace.now_s += 0.05
    for _ in range(12):
        trace.steady(1, most=70)
        assert trace.status == "WARN"
        assert (trace.event.processed_rate or 0) < 8
    # The query is faster now.
    trace.steady(12, every_s=2, duration_s=1, most=70)
    assert (trace.status, trace.event.usual_interval_s) == ("OK", 2.0)


def test_a_rise_that_was_no_alarm_is_none_after_a_hand_over() -> None:
    trace = Trace(produce=lambda _: [10])
    for number in range(20):
        trace.pass_time(10)
        trace.at[0], trace.batch_id, trace.processed_at = 70 * number, number, trace.now_ms
        trace.say("progress", batch=Batch(started_at=trace.now_ms, rows=70, duration_ms=2_000))
        assert trace.status == "OK"
        if number == 15:
            assert (trace.event.max_time_lag_s or 0) > 30, "the trend of ten batches"
            trace.change_hands()


def test_a_query_that_is_faster_after_a_hand_over_has_another_usual_interval() -> None:
    trace = Trace(produce=lambda _: [10])
    trace.steady(20, every_s=60)
    trace.change_hands()
    trace.steady(6, every_s=5)
    assert trace.event.usual_interval_s == 5.0


def test_a_dead_checkpoint_beside_an_older_copy_of_it_stops_all_the_same() -> None:
    trace = Trace(origin="checkpoint", run_id=None, ends=[500])
    trace.batch_id, trace.processed_at = 4, trace.now_ms - 4_800_000
    trace.say("checkpoint", checkpoint_location="/live.bak")
    trace.pass_time(1)
    trace.batch_id, trace.processed_at = 5, trace.now_ms - 3_600_000
    trace.say("checkpoint", checkpoint_location="/live")
    assert (trace.status, trace.event.usual_interval_s) == ("UNKNOWN", None)
    trace.pass_time(302)
    assert trace.status == "STOP"
    trace.processed_at = trace.now_ms
    trace.say("checkpoint", checkpoint_location="/restored", batch_id=6)
    assert trace.status != "STOP", "the copy goes on"


def test_an_old_checkpoint_without_lag_is_ok() -> None:
    trace = Trace(origin="checkpoint", run_id=None)
    trace.batch_id, trace.processed_at = 7, trace.now_ms - 2_400_000
    trace.say("checkpoint")
    trace.pass_time(600)
    assert trace.status == "OK"


def test_a_driver_with_an_old_batch_is_unknown_until_it_completes_another() -> None:
    """Its trigger may be hourly: it is no alarm."""
    trace = Trace(ends=[500], refresh_s=10)
    trace.batch_id, trace.processed_at = 7, trace.now_ms - 2_400_000
    trace.say("refresh")
    trace.pass_time(1_200)
    assert trace.status == "UNKNOWN"
    trace.idle()
    assert trace.status == "OK", "it waits for more records"
    trace.batch()
    assert trace.status == "OK"


def test_a_source_that_the_batches_have_not_read_yet_is_told_so_and_no_alarm() -> None:
    trace = Trace(ends=[500])
    trace.batch_id, trace.processed_at = 711, trace.now_ms
    for _ in range(5):
        trace.say("progress", sources=[SourcePosition(source=1, topics=["orders"])])
        trace.pass_time(100)
    assert trace.status == "UNKNOWN"
    assert trace.event.reason == "not read yet: the completed batches read other sources"


def test_an_overdue_batch_has_no_pace_and_no_end(trace: Trace) -> None:
    """Long before it is an alarm: nothing tells that it ends."""
    usual = trace.event.processed_rate or 0.0
    trace.pass_time(10)
    assert trace.event.processed_rate == pytest.approx(usual, abs=0.01)
    trace.pass_time(19)
    assert (trace.event.processed_rate or 0) < usual / 1.2
    assert trace.event.catch_up_reason is None
    trace.pass_time(3)
    event = trace.event
    assert (trace.status, event.processed_rate, event.catch_up_s) == ("OK", None, None)
    assert event.catch_up_reason == "overdue: no completed batch for 32 s, usually 10 s"
    assert event.lag_trend == event.input_rate
    trace.batch()
    assert trace.event.catch_up_reason is None


def test_a_running_batch_is_overdue_by_its_own_usual_time() -> None:
    """A batch of 2 s once in a minute: its trigger says nothing of how long it may run."""
    trace = Trace(produce=lambda _: [50])
    trace.steady(5, every_s=60)
    trace.pass_time(58)
    started_ms = trace.now_ms
    trace.pass_time(20)

    def say(seconds: float) -> None:
        trace.pass_time(seconds)
        at_ms = trace.now_ms
        trace.say(
            "refresh",
            running_batch=RunningBatch(
                started_at=started_ms, observed_at=at_ms, progressed_at=at_ms, batch_id=5
            ),
        )

    say(5)
    assert trace.event.catch_up_s is not None
    say(10)
    assert trace.status == "OK"
    assert trace.event.catch_up_reason == "overdue: the running batch has taken 35 s, usually 2.0 s"


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
    reason = "lag has grown for 2 min and not fallen: 1,600 records"
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
        trace.batch_id, trace.processed_at = trace.batch_id + 1, trace.now_ms
        trace.say("progress", batch=Batch(started_at=trace.now_ms - 500, rows=400, duration_ms=500))
    assert (trace.event.max_time_lag_s or 0) > 30
    assert (trace.event.catch_up_s or 99) < 30
    assert statuses(trace) == {"OK"}


@pytest.mark.parametrize("end", ["STOP", "FINISHED", "FAILED"])
def test_a_dead_query_processes_nothing(trace: Trace, end: str) -> None:
    assert trace.event.processed_rate == pytest.approx(50, rel=0.1)
    running = RunningBatch(started_at=1, observed_at=2, progressed_at=1, batch_id=13)
    trace.say("refresh", running_batch=running, activity="running")
    assert trace.event.running_batch == running
    if end != "STOP":
        trace.say("terminated", exception="no space" if end == "FAILED" else None)
    trace.pass_time(1, silent=end == "STOP")
    event = trace.event
    assert (event.running_batch, event.activity, event.in_flight) == (None, None, None)
    assert (event.status, event.processed_rate, event.batch_rate) == (end, 0.0, None)
    assert event.lag_trend == event.input_rate
    why = "nothing shows that the query runs" if end == "STOP" else "the query is not running"
    assert (event.catch_up_s, event.catch_up_reason) == (None, why)


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


@pytest.mark.parametrize(
    ("thresholds", "reason"),
    [
        (Thresholds(max_lag=1_000), "lag is 1,050 records, 1,000 are allowed"),
        (Thresholds(max_time_lag_s=20), "time lag is 21 s, 20 s is allowed"),
    ],
)
def test_what_is_allowed_can_be_reported(thresholds: Thresholds, reason: str) -> None:
    trace = Trace(produce=lambda _: [50], thresholds=thresholds)
    trace.steady(12, every_s=10)
    assert statuses(trace) == {"OK"}
    while trace.status == "OK":
        trace.pass_time(1)
    assert (trace.status, trace.event.reason) == ("WARN", reason)


def test_a_warning_stays_through_changes_of_hands_until_the_lag_falls(trace: Trace) -> None:
    trace.steady(20, most=400)
    assert trace.status == "WARN"
    rising_since, at = trace.event.rising_since, len(trace.events)
    for _ in range(5):
        trace.change_hands()
        trace.steady(2, most=400)
    assert {(event.status, event.rising_since) for event in trace.events[at:]} == {
        ("WARN", rising_since)
    }
    assert {event.topics[0].partitions[0].status for event in trace.events[at:]} == {"WARN"}
    trace.change_hands()
    trace.steady(3)
    assert trace.status == "OK"
    trace.produce = lambda _: [25]
    trace.steady(2)
    assert trace.event.rising_since is None


def test_a_warning_about_batches_of_a_minute_survives_a_change_within_its_window() -> None:
    """The window of ten batches is longer than the time between two changes of hands."""
    trace = Trace(produce=lambda _: [50], refresh_s=5)
    trace.steady(3, every_s=60, duration_s=50)
    for _ in range(4):
        trace.steady(3, every_s=60, duration_s=50, most=400)
        trace.change_hands()
    at = len(trace.events) - 1
    trace.steady(4, every_s=60, duration_s=50, most=400)
    assert {event.status for event in trace.events[at:]} == {"WARN"}
    assert len(trace.events) - at > 4


def test_a_stalled_partition_stays_so_through_changes_of_hands() -> None:
    trace = Trace(partitions=2, produce=lambda _: [50, 50])
    trace.steady(12)
    advanced_at = trace.one(1).advanced_at

    def without_the_second() -> None:
        trace.pass_time(8)
        trace.at[0], trace.batch_id, trace.processed_at = (
            trace.ends[0],
            trace.batch_id + 1,
            trace.now_ms,
        )
        trace.say("progress", batch=Batch(started_at=trace.now_ms - 8_000, rows=1))

    for _ in range(12):
        without_the_second()
    assert [trace.one(number).status for number in range(2)] == ["OK", "STALL"]
    at = len(trace.events)
    for _ in range(4):
        trace.unread = {1}
        trace.pass_time(100)
        trace.change_hands()
        trace.unread = set()
        without_the_second()
    assert {event.topics[0].partitions[1].status for event in trace.events[at:]} == {"STALL"}
    assert trace.one(1).advanced_at == advanced_at
    assert trace.one(0).advanced_at == trace.processed_at
    trace.change_hands()
    trace.steady(1)
    assert [trace.one(number).status for number in range(2)] == ["OK", "OK"]


def test_a_stall_is_told_as_soon_whether_the_owner_changes_or_not(trace: Trace) -> None:
    for _ in range(6):
        trace.pass_time(49)
        assert trace.status == "OK"
        trace.change_hands()
    trace.pass_time(15)
    assert trace.status == "STALL"
    trace.change_hands()
    trace.pass_time(1)
    assert trace.status == "STALL"


def test_a_leader_that_does_not_answer_ends_no_stall(trace: Trace) -> None:
    trace.pass_time(320)
    assert trace.status == "STALL"
    trace.unread = {0}
    trace.pass_time(100)
    assert (trace.status, trace.event.total_lag) == ("STALL", None)
    trace.unread = set()
    trace.pass_time(1)
    assert trace.status == "STALL"
    trace.batch()
    assert trace.status == "OK"


def test_a_time_without_any_owner_is_no_stall(trace: Trace) -> None:
    trace.now_s += 3_600
    trace.change_hands()
    trace.pass_time(5)
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
