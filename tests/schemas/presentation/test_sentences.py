"""What a person reads of a query: in a few lines, and nothing made up where nothing is known."""

from __future__ import annotations

from typing import Any

import msgspec

from sparklag_schemas import Batch, LagEvent, PartitionLag, RunningBatch, TopicLag
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.presentation import sentences
from sparklag_schemas.text.formatting import ago, catch_up, clock_time, number, size, trend
from tests.messages import lag_event, straggler

NOW_MS = 1_790_000_001_000


def partition(number: int, lag: int | None, **fields: Any) -> PartitionLag:
    end = None if lag is None else 100 + lag
    return PartitionLag(
        partition=number, processed_offset=100, latest_offset=end, lag=lag, **fields
    )


def event_of(*partitions: PartitionLag, **fields: Any) -> LagEvent:
    """An event whose sums are those of its partitions."""
    lags = [one.lag for one in partitions if one.lag is not None]
    ages = [one.time_lag_s for one in partitions if one.time_lag_s is not None]
    total = sum(lags) if lags else None
    topic = TopicLag(topic="orders", source=0, total_lag=total, partitions=list(partitions))
    return lag_event(
        **{
            "total_lag": total,
            "max_lag": max(lags, default=None),
            "max_time_lag_s": max(ages, default=None),
            "unknown_partitions": len(partitions) - len(lags),
            "topics": [topic],
            **fields,
        }
    )


def lines_of(event: LagEvent) -> dict[str, str]:
    return dict(sentences.lines(event, NOW_MS))


def test_what_is_not_known_has_no_line() -> None:
    assert lines_of(lag_event()) == {
        "lag": "65 records, 65 in the worst partition, orders[0]",
        "last batch": "41, completed 1 s ago",
        "observed": "1 s ago by its listener",
        "last measured": "1 s ago",
    }


def test_a_lag_that_is_not_known_is_reported_and_is_not_zero() -> None:
    text = lines_of(event_of(partition(0, None)))["lag"]
    assert text == "unknown in 1 of 1 partitions"


def test_the_worst_partition_is_that_with_the_most_to_read() -> None:
    """The records of an open transaction are in `lag`, and nothing to read."""
    held = partition(0, 5_000, readable_lag=40)
    event = event_of(held, partition(1, 3), total_lag=43, max_lag=40)
    assert lines_of(event)["lag"] == "43 records, 40 in the worst partition, orders[0]"


def test_the_status_reports_since_when_and_why() -> None:
    stalled = lag_event(status="STALL", status_since=NOW_MS - 720_000, reason="no batch for 12 min")
    assert sentences.status(stalled, NOW_MS) == "STALL for 12 min: no batch for 12 min"
    assert sentences.status(lag_event(status_since=0), NOW_MS) == "OK"


def test_the_time_lag_has_where_its_record_is_and_how_that_is_known() -> None:
    first = partition(0, 5, time_lag_s=3.0, time_lag_method="sampled")
    worst = partition(7, 5, time_lag_s=720.0, time_lag_method="interpolated")
    assert lines_of(event_of(first, worst))["time lag"] == (
        "12 min, in orders[7], estimated from log growth"
    )
    floor = partition(7, 5, time_lag_s=720.0, time_lag_method="floor")
    assert lines_of(event_of(floor))["time lag"] == "at least 12 min, in orders[7]"
    assert sentences.time_lag(floor) == "≥ 12 min"
    assert sentences.time_lag(partition(0, 5)) == "unknown"
    assert sentences.time_lag(partition(0, 0, time_lag_s=0.0)) == ""


def test_trend_and_catch_up_report_whether_it_gets_better_and_when_it_is_over() -> None:
    rates = {"input_rate": 5_200.0, "processed_rate": 5_100.0, "lag_trend": 100.0}
    never = "never at these rates: input 5,200.0 records/s, processed 5,100.0 records/s"
    lines = lines_of(lag_event(**rates, catch_up_reason=never))
    assert lines["trend"] == "+100/s: input 5,200 records/s, processed 5,100 records/s"
    assert lines["catch-up"] == "never at these rates"
    falling = {"input_rate": 10.0, "processed_rate": 60.0, "lag_trend": -50.0}
    lines = lines_of(lag_event(**falling, catch_up_s=90.0))
    assert lines["trend"] == "-50.0/s: input 10.0 records/s, processed 60.0 records/s"
    assert lines["catch-up"] == "90 s"


def test_an_overdue_batch_has_no_catch_up_time() -> None:
    why = "overdue: the running batch has taken 35 s, usually 2.0 s"
    rates = {"input_rate": 50.0, "processed_rate": None, "lag_trend": 50.0}
    event = event_of(partition(0, 65), **rates, catch_up_s=None, catch_up_reason=why)
    assert lines_of(event)["catch-up"] == why
    assert catch_up(None, why) == "overdue"


def test_the_headroom_reports_what_was_lost_and_when_more_will_be() -> None:
    losing = lag_event(lost_records=1_200, loss_expected_at=NOW_MS + 10_800_000)
    when = clock_time(NOW_MS + 10_800_000, NOW_MS)
    assert lines_of(losing)["headroom"] == (
        "1,200 records were deleted before they were read;"
        f" retention deletes unread records in 3.0 h ({when}) at these rates"
    )
    assert (
        lines_of(lag_event(min_headroom_s=7_300.0))["headroom"]
        == "2.0 h before retention; the query stays ahead of it"
    )


def test_a_batch_reports_what_took_its_time_and_what_holds_it_back() -> None:
    batch = Batch(
        started_at=0,
        rows=50_000,
        duration_ms=8_200,
        phases_ms={"addBatch": 7_900, "walCommit": 200, "triggerExecution": 8_200},
        rate_limited=True,
        state_rows=1_200_000,
        state_memory_bytes=356_515_840,
        watermark_at=NOW_MS - 600_000,
        max_event_time_at=NOW_MS - 590_000,
    )
    event = lag_event(
        batch=batch, usual_batch_s=9.1, usual_interval_s=10.0, activity="running", in_flight=5_000
    )
    result = lines_of(event)
    assert result["lag"].endswith("5,000 in the running batch")
    assert result["last batch"] == (
        "41, completed 1 s ago, 50,000 rows in 8.2 s (usually up to 9.1 s, one every 10 s);"
        " the next one is running"
    )
    assert result["why"] == (
        "the batch took addBatch 7.9 s; rate limited: more records were available than a batch may"
        " read; state 1,200,000 rows in 340 MiB; watermark 10 min ago, 10.0 s behind the newest"
        " event"
    )
    # Nothing of a dead query holds it back.
    assert "why" not in lines_of(msgspec.structs.replace(event, status="STOP"))


def test_a_running_batch_reports_how_far_it_is_and_what_holds_it_up() -> None:
    fields: dict[str, Any] = {
        "batch_id": 42,
        "started_at": NOW_MS - 720_000,
        "observed_at": NOW_MS,
        "progressed_at": NOW_MS - 5_000,
    }
    tasks = {"jobs": 1, "tasks_total": 2_000, "tasks_done": 1_800, "tasks_running": 4}

    def line(**more: Any) -> str:
        return lines_of(lag_event(running_batch=RunningBatch(**{**fields, **more})))[
            "running batch"
        ]

    assert line() == "42, for 12 min, no Spark job now"
    assert line(**tasks, tasks_failed=3, remaining_s=80.0) == (
        "42, for 12 min: 1,800 of 2,000 known tasks done, 3 failed, 80 s left at this rate"
    )
    held = line(**tasks, straggler=straggler(), progressed_at=NOW_MS - 360_000)
    assert held == (
        "42, for 12 min: 1,800 of 2,000 known tasks done, no progress for 6 min;"
        " task 17 of stage 3 on executor 4 (worker-4) has run for 6 min, usually 2.0 s"
    )
    assert "running batch" not in lines_of(lag_event())


def test_skew_is_reported_where_one_partition_has_far_more_than_its_part() -> None:
    many = [partition(number, 1) for number in range(9)]
    skewed = event_of(*many, partition(9, 91), skew=0.91)
    assert lines_of(skewed)["why"] == "skewed: 91% of the lag is in orders[9]"
    # Of two, one always has half.
    assert "why" not in lines_of(event_of(partition(0, 4), partition(1, 6), skew=0.6))


def test_a_group_commits_and_has_no_batches() -> None:
    group = lag_event(origin="group", run_id=None, processed_at=None, batch_id=None)
    assert lines_of(group)["last commit"] == "none observed yet"
    members = ConsumerGroup(state="Stable", members=3, members_without_partitions=1, coordinator=2)
    group = lag_event(origin="group", commit_rate=0.2, group=members)
    assert lines_of(group)["last commit"] == "1 s ago, 0.2 commits/s"
    expected = "Stable, 3 members, 1 of them without partitions, coordinator 2"
    assert lines_of(group)["group"] == expected
    assert lines_of(lag_event(group=ConsumerGroup(state="Dead")))["group"] == "Dead"
    assert "group" not in lines_of(lag_event(group=ConsumerGroup(coordinator=2)))
    assert lines_of(group)["observed"] == "1 s ago by Kafka"


def test_numbers_are_as_long_as_they_say_something() -> None:
    assert [number(value) for value in (0.25, 99.94, 5_200.4)] == ["0.2", "99.9", "5,200"]
    assert [trend(value) for value in (None, 0.01, 12.0, -1_200.0)] == [
        "unknown",
        "steady",
        "+12.0/s",
        "-1,200/s",
    ]
    assert [size(count) for count in (1_000, 2_048, 3 << 20, 5 << 30)] == [
        "1000 bytes",
        "2 KiB",
        "3 MiB",
        "5.0 GiB",
    ]
    assert ago(None, NOW_MS) == "never"
    assert ago(NOW_MS - 600_000, NOW_MS) == "10 min ago"
    assert ago(NOW_MS + 5_000, NOW_MS) == "0 s ago"


def test_a_lag_that_is_never_caught_up_is_reported_from_one_of_which_that_is_not_known() -> None:
    assert catch_up(None, "never at these rates: …") == "never"
    assert catch_up(None, "it keeps pace but does not catch up: …") == "never"
    assert catch_up(None, "its pace is not known yet") == "unknown"
    assert catch_up(None, "the query is not running") == "not running"
    assert catch_up(0.0, None) == ""
    assert catch_up(90.0, None) == "90 s"
