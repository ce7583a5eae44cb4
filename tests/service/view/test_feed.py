"""What the view hands on to whoever follows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparklag_schemas import encode
from sparklag_service.counters import Counters
from sparklag_service.view.feed import Arrival, Feed
from tests.logged import logged
from tests.messages import lag_event
from tests.service.view.recorder import Recorder


class Broken:
    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        raise RuntimeError("at the beginning")

    def arrived(self, arrival: Arrival) -> None:
        raise RuntimeError(f"at {arrival.offset}")


def test_a_follower_that_fails_is_counted_and_logged_once_and_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters, recorder = Counters(), Recorder()
    feed = Feed(counters, Broken(), recorder)
    feed.begin({0: 3}, {0: 5})
    event = lag_event()
    for offset in (3, 4):
        feed.dispatch(Arrival("a", 0, offset, 0, event, encode(event)))
    assert (recorder.restarted, recorder.offsets) == ({0: 3}, [3, 4])
    assert counters.followers_failed == 3
    assert len(logged(caplog)) == 1


def read(feed: Feed, *offsets: int) -> None:
    event = lag_event()
    for offset in offsets:
        feed.dispatch(Arrival("a", 0, offset, 0, event, encode(event)))


def test_what_is_read_again_after_a_failure_is_handed_on_once() -> None:
    recorder = Recorder()
    feed = Feed(Counters(), recorder)
    feed.begin({0: 0}, {0: 0})
    read(feed, *range(10))
    feed.begin({0: 5}, {0: 10})
    read(feed, *range(5, 11))
    assert (recorder.restarted, recorder.offsets) == ({}, [*range(11)])


@pytest.mark.parametrize(("start", "end"), [(0, 3), (50, 60)])
def test_another_topic_of_that_name_or_a_gap_starts_over(start: int, end: int) -> None:
    recorder = Recorder()
    feed = Feed(Counters(), recorder)
    read(feed, *range(10))
    feed.begin({0: start, 1: 0}, {0: end, 1: 0})
    read(feed, start)
    assert (recorder.restarted, recorder.offsets) == ({0: start, 1: 0}, [*range(10), start])
