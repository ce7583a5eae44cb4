"""The figures of a query and its outlook, from rows made by hand."""

from __future__ import annotations

import random

import pytest

from sparklag_jobs.history.rollups import WorstPartition
from sparklag_jobs.report.query_report import MAX_POINTS, episodes, query_reports, spread, trend
from tests.jobs.report.rolled import HOUR_MS, MINUTE_MS, START_MS, dark, hour, minute


def test_minutes_that_missed_in_a_row_are_one_episode_and_a_hole_ends_it() -> None:
    bad = {"within_target_s": 20.0}
    rows = [
        minute(0),
        minute(1, **bad, lag=(1, 1, 1, 50)),
        minute(2, **bad, lag=None, time_lag_s=None),
        minute(3, **bad, lag=(1, 1, 1, 40), time_lag_s=(1, 1, 1, 9.0)),
        minute(4),
        minute(5, **bad),
        minute(7, **bad),
        minute(8, known_s=0.0, within_target_s=0.0),
    ]
    result = episodes(rows, MINUTE_MS)
    places = [
        ((one.from_ms - START_MS) // MINUTE_MS, (one.to_ms - START_MS) // MINUTE_MS)
        for one in result
    ]
    assert places == [(1, 4), (5, 6), (7, 8)]
    assert (result[0].max_lag, result[0].max_time_lag_s, result[0].duration_s) == (50, 9.0, 180.0)


def test_percentiles_of_the_whole_are_upper_bounds_weighted_by_time() -> None:
    result = spread([((10, 20, 30, 40), 60.0), ((1, 2, 3, 400), 180.0), (None, 60.0)])
    assert result is not None
    # Of 240 s: 90 lie at 1 or below, 171 at 2; 203 at 10, 230 at 20; 238 at 30.
    assert (result.p50, result.p95, result.p99, result.max) == (2, 20, 30, 400)
    assert spread([(None, 60.0), ((1, 2, 3, 4), 0.0)]) is None


def test_the_worst_query_comes_first_and_one_of_which_nothing_is_known_last() -> None:
    rows = [
        minute(0, query_id="well"),
        minute(0, query_id="old", time_lag_s=(1, 90, 90, 90)),
        minute(0, query_id="bad", within_target_s=0.0),
        dark(0, query_id="dark"),
    ]
    result = query_reports(rows, [])
    assert [report.query_id for report in result] == ["bad", "old", "well", "dark"]
    last = result[-1]
    assert (last.share_within_target, last.lag) == (None, None)
    assert (last.produced, last.longest_episode_s) == (None, None)


def test_a_query_is_summed_over_its_minutes_and_its_worst_partitions_merged() -> None:
    one, other = WorstPartition(0, "t", 1, 50, None), WorstPartition(0, "t", 1, 40, 7.0)
    third = WorstPartition(0, "t", 2, 60, 1.0)
    rows = [
        minute(1, worst=(other, third), within_target_s=30.0, produced=None),
        minute(0, worst=(one,), query="before"),
    ]
    (result,) = query_reports(rows, [])
    assert result.display_name == "orders"
    assert (result.known_s, result.within_target_s, result.produced) == (120.0, 90.0, 10)
    assert result.share_within_target == pytest.approx(0.75)
    assert result.worst == (third, WorstPartition(0, "t", 1, 50, 7.0))


def test_capacity_is_passed_where_the_line_of_the_input_meets_what_the_query_can_do() -> None:
    hours = [hour(number, input_rate=100.0 + number, batch_rate=200.0) for number in range(24)]
    (result,) = query_reports([minute(0)], hours)
    assert result.capacity.utilisation == pytest.approx(123 / 200)
    # The line is 124 at the end of the last hour: 76 hours more.
    assert result.capacity.passed_at_ms == START_MS + (24 + 76) * HOUR_MS
    assert result.trend is not None
    assert result.trend.direction == "steady"


@pytest.mark.parametrize(
    ("hours", "reason"),
    [
        ([], "no whole hour in which the input rate was known"),
        ([hour(0, input_rate=5.0)], "the capacity is unknown: no batch rate"),
        ([hour(0, input_rate=5.0, batch_rate=9.0)], "1 hours are known, 8 are needed"),
        (
            [hour(n, input_rate=5.0 + n, batch_rate=5.2 + n) for n in range(24)],
            "its batches run back to back and process the whole input: its capacity beyond that is"
            " unknown",
        ),
        (
            [hour(number, input_rate=5.0, batch_rate=9.0) for number in range(24)],
            "the input rate is steady",
        ),
        (
            [hour(n, input_rate=5 + n / 1e6, batch_rate=9.0) for n in range(24)],
            "not within 365 days at this slope",
        ),
    ],
)
def test_where_no_date_can_be_reported_the_reason_is(hours: list[object], reason: str) -> None:
    (result,) = query_reports([minute(0)], hours)  # type: ignore[arg-type]  # parametrised
    assert (result.capacity.passed_at_ms, result.capacity.reason) == (None, reason)


def test_what_comes_beyond_what_it_can_do_already_is_passed_now() -> None:
    hours = [hour(number, input_rate=300.0, batch_rate=200.0) for number in range(24)]
    (result,) = query_reports([minute(0)], hours)
    assert result.capacity.passed_at_ms == START_MS + 24 * HOUR_MS


def test_a_line_has_its_own_slope_and_outliers_do_not_move_it() -> None:
    points = [(float(x), 3.0 * x + 7) for x in range(30)]
    points[5], points[20] = (5.0, 1e9), (20.0, -1e9)
    result = trend(points)
    assert result is not None
    assert result.direction == "rising"
    assert result.slope == pytest.approx(3)


def test_noise_is_steady_and_a_falling_line_falls() -> None:
    chance = random.Random(4)
    noise = trend([(float(x), chance.random()) for x in range(200)])
    falling = trend([(float(x), chance.random() * 10 - x) for x in range(50)])
    assert noise is not None
    assert noise.direction == "steady"
    assert falling is not None
    assert falling.direction == "falling"
    assert falling.p_value < 1e-6


def test_kendalls_tau_and_the_variance_with_ties_are_those_of_the_books() -> None:
    # By hand: 26 pairs rise, none falls, 2 are tied; the variance is (8*7*21 - 2*(2*1*9)) / 18.
    points = [(float(x), float(y)) for x, y in enumerate([1, 1, 2, 3, 4, 5, 5, 6])]
    result = trend(points)
    assert result is not None
    assert result.tau == pytest.approx(26 / 28)
    assert result.p_value == pytest.approx(0.001687, rel=0.01)


def test_few_points_and_equal_ones_say_nothing() -> None:
    assert trend([(float(x), 1.0) for x in range(7)]) is None
    assert trend([(1.0, float(y)) for y in range(20)]) is None
    flat = trend([(float(x), 5.0) for x in range(20)])
    assert flat is not None
    assert (flat.direction, flat.p_value) == ("steady", 1.0)


def test_many_points_are_thinned_evenly() -> None:
    result = trend([(float(x), 2.0 * x) for x in range(MAX_POINTS * 3)])
    assert result is not None
    assert result.slope == pytest.approx(2)
