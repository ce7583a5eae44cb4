"""When an event is due: at once for news, once an interval for the clock, at every heartbeat."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import LagEvent
from sparklag_service.publishing.cadence import Cadence
from tests.messages import lag_event


def refresh(**fields: Any) -> LagEvent:
    return lag_event(cause="refresh", **fields)


def started(cadence: Cadence, event: LagEvent, now_s: float) -> None:
    assert cadence.due(event, now_s)
    cadence.published(event, now_s)


@pytest.fixture
def cadence() -> Cadence:
    return Cadence(publish_interval_s=1, heartbeat_s=10, refresh_interval_s=1)


def test_what_did_not_change_is_published_at_the_heartbeat_only(cadence: Cadence) -> None:
    started(cadence, refresh(), 0)
    assert not cadence.due(refresh(measured_at=2), 9.8)
    assert cadence.due(refresh(measured_at=2), 10)


def test_what_changed_is_published_once_in_the_interval(cadence: Cadence) -> None:
    started(cadence, refresh(topics=[]), 0)
    assert not cadence.due(refresh(), 0.8)
    assert cadence.due(refresh(), 1)


def test_that_another_query_has_its_name_is_news(cadence: Cadence) -> None:
    started(cadence, refresh(status="STOP"), 0)
    assert cadence.due(refresh(status="STOP", superseded_by="newer"), 1)


def test_a_refresh_that_comes_a_moment_early_does_not_leave_it_to_the_next(
    cadence: Cadence,
) -> None:
    """With both intervals the same, as they are by default, every second event would be late."""
    started(cadence, refresh(topics=[]), 0)
    assert cadence.due(refresh(), 0.999)
    started(cadence, refresh(measured_at=2), 20)
    assert cadence.due(refresh(measured_at=3), 29.999)


def test_that_a_record_grew_older_is_no_news(cadence: Cadence) -> None:
    """Everybody can reckon that: what else there is to say, comes with the next heartbeat."""

    def aged(time_lag_s: float, **fields: Any) -> LagEvent:
        event = refresh(max_time_lag_s=time_lag_s)
        (topic,) = event.topics
        one = replace(topic.partitions[0], time_lag_s=time_lag_s, **fields)
        return replace(event, topics=[replace(topic, partitions=[one])])

    started(cadence, aged(1.0, time_lag_method="floor"), 0)
    assert not cadence.due(aged(9.9, time_lag_method="floor"), 9)
    assert cadence.due(aged(30.0, time_lag_method="sampled"), 9)


def test_progress_does_not_wait_for_a_refresh_that_was_published_just_now(
    cadence: Cadence,
) -> None:
    started(cadence, refresh(), 0)
    assert cadence.due(lag_event(observed_at=9), 0.1)


def test_progress_of_short_batches_is_published_once_in_the_interval(cadence: Cadence) -> None:
    started(cadence, lag_event(), 0)
    assert not cadence.due(lag_event(observed_at=9), 0.5)
    assert cadence.due(lag_event(observed_at=9), 1)


@pytest.mark.parametrize("cause", ["started", "terminated"])
def test_a_start_and_an_end_are_published_at_once(cadence: Cadence, cause: Any) -> None:
    started(cadence, lag_event(), 0)
    assert cadence.due(lag_event(cause=cause), 0)


def test_after_a_failure_whatever_comes_is_due(cadence: Cadence) -> None:
    started(cadence, lag_event(), 0)
    cadence.forget(lag_event().query_id)
    assert cadence.due(lag_event(), 0)
