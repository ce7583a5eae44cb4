"""What the demo knows, from the events it read."""

from __future__ import annotations

import pytest

from sparklag_pipeline.demo.progress import Step, Story
from tests.pipeline.lag_events import lag_event


def _story() -> Story:
    return Story(query="orders", started_at=100.0)


def test_only_the_querys_own_events_with_a_lag_count_as_its_first() -> None:
    story = _story()
    story.take(lag_event(query="another", lag=99), now=101)
    story.take(lag_event(lag=None, at=2), now=102)
    assert story.first_lag_s is None
    assert "no lag of 'orders'" in story.summary()

    story.take(lag_event(lag=8, at=3), now=104.5)
    story.take(lag_event(lag=3, at=4), now=105)

    assert story.first_lag_s == pytest.approx(4.5)
    assert (story.highest_lag, story.last_lag, story.events) == (8, 3, 3)
    assert "after 4.5 s" in story.summary()


def test_a_late_event_does_not_take_the_lag_back() -> None:
    story = _story()
    story.take(lag_event(lag=8, at=3), now=101)
    story.take(lag_event(lag=900, at=2), now=102)

    assert (story.last_lag, story.highest_lag, story.events) == (8, 8, 1)


def test_an_earlier_runs_events_do_not_count() -> None:
    story = Story(query="orders", started_at=100.0, since_ms=1000)
    story.take(lag_event(lag=9, at=999), now=101)
    assert story.event is None

    story.take(lag_event(lag=8, at=1000), now=102)
    assert story.last_lag == 8


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
    story = _story()
    for second, lag in enumerate(lags):
        story.take(lag_event(lag=lag, at=second + 1), now=100.0 + second)
    assert story.direction() == direction


def test_rates_are_found_from_the_offsets_where_the_event_has_none() -> None:
    story = _story()
    assert story.rates() == (None, None)
    for second in range(5):
        story.take(
            lag_event(processed=100 * second, lag=50 * second, at=1 + second * 1000),
            now=100.0 + second,
        )
    arriving, processed = story.rates()
    assert arriving == pytest.approx(150)
    assert processed == pytest.approx(100)


def test_an_unknown_partition_makes_no_rate_jump() -> None:
    story = _story()
    story.take(lag_event(processed=0, lag=0, at=1), now=101)
    story.take(lag_event(processed=50, lag=None, at=2001), now=102)
    assert story.rates() == (None, None)


def test_columns_hold_the_last_known_lag() -> None:
    story = _story()
    story.take(lag_event(lag=5, at=1), now=110)
    story.take(lag_event(lag=7, at=2), now=114)

    assert story.columns(now=120, width=10, seconds=20) == [None] * 4 + [5, 5, 7, 7, 7, 7]


def test_a_step_knows_how_long_it_took() -> None:
    step = Step("Kafka")
    assert step.seconds(5) is None
    step.begin(10)
    assert step.seconds(12) == 2
    step.end(13, "there")
    assert step.seconds(99) == 3
    assert (step.state, step.note) == ("done", "there")
