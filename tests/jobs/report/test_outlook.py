"""Slopes and their significance."""

from __future__ import annotations

import random

import pytest

from sparklag_jobs.report.query_report import MAX_POINTS, trend


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
