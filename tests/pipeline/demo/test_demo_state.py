"""What the demo knows, from the events it read."""

from __future__ import annotations

import pytest

from sparklag_pipeline.demo.state import DemoState, Step
from tests.pipeline.lag_events import lag_event


def _state() -> DemoState:
    return DemoState(query="orders", started_at=100.0)


def test_only_the_querys_own_events_with_a_lag_count_as_its_first() -> None:
    state = _state()
    state.add(lag_event(query="another", lag=99), now=101)
    state.add(lag_event(lag=None, at=2), now=102)
    assert state.first_lag_s is None
    assert "no lag of 'orders'" in state.summary()

    state.add(lag_event(lag=8, at=3), now=104.5)
    state.add(lag_event(lag=3, at=4), now=105)

    assert state.first_lag_s == pytest.approx(4.5)
    assert (state.highest_lag, state.last_lag, state.events) == (8, 3, 3)
    assert "after 4.5 s" in state.summary()


def test_a_late_event_does_not_take_the_lag_back() -> None:
    state = _state()
    state.add(lag_event(lag=8, at=3), now=101)
    state.add(lag_event(lag=900, at=2), now=102)

    assert (state.last_lag, state.highest_lag, state.events) == (8, 8, 1)


def test_an_earlier_runs_events_do_not_count() -> None:
    state = DemoState(query="orders", started_at=100.0, since_ms=1000)
    state.add(lag_event(lag=9, at=999), now=101)
    assert state.event is None

    state.add(lag_event(lag=8, at=1000), now=102)
    assert state.last_lag == 8


@pytest.mark.parametrize(
    ("lags", "direction"),
    [
        # A batch every four seconds: up and down, whatever the direction.
        ([0, 1000, 2000, 3000] * 5, "steady"),
        ([base + step for base in range(0, 5000, 1000) for step in (0, 900, 1800, 2700)], "rising"),
        ([8000 - 400 * second for second in range(20)], "falling"),
        ([5000], "steady"),
        ([], "steady"),
    ],
)
def test_the_direction_is_that_of_the_wave_not_of_a_batch(lags: list[int], direction: str) -> None:
    state = _state()
    for second, lag in enumerate(lags):
        state.add(lag_event(lag=lag, at=second + 1), now=100.0 + second)
    assert state.direction() == direction


def test_columns_hold_the_last_known_lag() -> None:
    state = _state()
    state.add(lag_event(lag=5, at=1), now=110)
    state.add(lag_event(lag=7, at=2), now=114)

    assert state.columns(now=120, width=10, seconds=20) == [None] * 4 + [5, 5, 7, 7, 7, 7]


def test_a_step_knows_how_long_it_took() -> None:
    step = Step("Kafka")
    assert step.seconds(5) is None
    step.begin(10)
    assert step.seconds(12) == 2
    step.end(13, "there")
    assert step.seconds(99) == 3
    assert (step.state, step.note) == ("done", "there")
