"""The sparkline of a query's lag: nothing that is unknown or was not measured looks like 0."""

from __future__ import annotations

from sparklag_service.cli.top.lag_history import STEP_S, STEPS, LagHistory

NOW_MS = 1_790_000_000_000
STEP_MS = STEP_S * 1000


def history(*lags: int | None) -> LagHistory:
    """One measurement in each of the last steps."""
    made = LagHistory()
    for number, lag in enumerate(reversed(lags)):
        made.add(NOW_MS - number * STEP_MS, lag)
    return made


def test_a_sparkline_is_in_proportion_to_the_highest_lag() -> None:
    assert history(0, 1, 50, 100).sparkline(NOW_MS, 4) == "▁▂▅█"


def test_a_lag_that_stays_at_zero_is_the_lowest_block() -> None:
    assert history(0, 0, 0).sparkline(NOW_MS, 3) == "▁▁▁"


def test_an_unknown_lag_is_a_question_mark_and_a_time_without_measurement_is_blank() -> None:
    assert history(100, None).sparkline(NOW_MS, 4) == "  █?"
    assert history(None).sparkline(NOW_MS, 2) == " ?"


def test_a_step_has_the_highest_lag_measured_in_it() -> None:
    made = history(10, 5)
    for lag in (20, None, 7):
        made.add(NOW_MS, lag)
    assert made.highest(NOW_MS) == 20
    assert made.sparkline(NOW_MS, 2) == "▅█"


def test_it_moves_with_the_time_and_keeps_an_hour() -> None:
    made = history(*[7] * (2 * STEPS))
    assert made.sparkline(NOW_MS) == "█" * STEPS
    assert made.sparkline(NOW_MS, 2 * STEPS) == " " * STEPS + "█" * STEPS
    assert made.sparkline(NOW_MS + STEP_MS, 2) == "█ "
