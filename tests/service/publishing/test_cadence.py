"""When an event is due, and when a query that is as published is measured."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import LagEvent, Settings
from sparklag_service.publishing.published_query import Cadence
from tests.messages import lag_event


def refresh(**fields: Any) -> LagEvent:
    return lag_event(cause="refresh", **fields)


def started(cadence: Cadence, event: LagEvent, now_s: float) -> None:
    assert cadence.due(event, now_s)
    cadence.published(event, now_s)


@pytest.fixture
def cadence() -> Cadence:
    return Cadence(Settings())


def cadence_of(**intervals: float) -> Cadence:
    return Cadence(Settings(refresh_intervals=intervals))


QUERY = lag_event().query, lag_event().query_id


def aged(time_lag_s: float, method: str) -> LagEvent:
    (topic,) = refresh().topics
    one = replace(topic.partitions[0], time_lag_s=time_lag_s, time_lag_method=method)
    return refresh(max_time_lag_s=time_lag_s, topics=[replace(topic, partitions=[one])])


@pytest.mark.parametrize(
    ("published", "event", "after_s", "due"),
    [
        pytest.param(refresh(), refresh(measured_at=2), 9.4, False, id="nothing changed"),
        pytest.param(refresh(), refresh(measured_at=2), 10, True, id="the heartbeat"),
        pytest.param(refresh(topics=[]), refresh(), 0.4, False, id="changed in the interval"),
        pytest.param(refresh(topics=[]), refresh(), 1, True, id="changed after it"),
        pytest.param(
            refresh(status="STOP"),
            refresh(status="STOP", superseded_by="newer"),
            *(1, True),
            id="another has its name",
        ),
        # Everybody can reckon that a record grew older.
        pytest.param(aged(1.0, "floor"), aged(9.9, "floor"), 9, False, id="older"),
        pytest.param(aged(1.0, "floor"), aged(30.0, "sampled"), 9, True, id="known better"),
        pytest.param(refresh(), lag_event(observed_at=9), 0.1, True, id="progress"),
        pytest.param(lag_event(), lag_event(observed_at=9), 0.5, False, id="a short batch"),
        pytest.param(lag_event(), lag_event(observed_at=9), 1, True, id="after the interval"),
        pytest.param(lag_event(), lag_event(cause="started"), 0, True, id="a start"),
        pytest.param(lag_event(), lag_event(cause="terminated"), 0, True, id="an end"),
    ],
)
def test_an_event_is_due_for_what_it_reports_and_when(
    cadence: Cadence, published: LagEvent, event: LagEvent, after_s: float, due: bool
) -> None:
    started(cadence, published, 0)
    assert cadence.due(event, after_s) is due


def test_a_refresh_after_a_late_one_does_not_leave_it_to_the_next(cadence: Cadence) -> None:
    """On a busy machine an evaluation is late by a share of a second, and the next one in time."""
    started(cadence, refresh(topics=[]), 0.4)
    assert cadence.due(refresh(), 1)
    started(cadence, refresh(measured_at=2), 20.4)
    assert cadence.due(refresh(measured_at=3), 30)


def test_after_a_failure_whatever_comes_is_due(cadence: Cadence) -> None:
    started(cadence, lag_event(), 0)
    cadence.forget()
    assert cadence.due(lag_event(), 0)


def test_without_an_interval_of_its_own_a_query_is_measured_in_each_refresh() -> None:
    cadence = cadence_of(**{"another-.*": 5})
    assert cadence.refresh_due(*QUERY, 0)
    started(cadence, refresh(), 0)
    assert not cadence.due(refresh(), 1)
    assert cadence.refresh_due(*QUERY, 2)


def test_a_query_with_an_interval_is_measured_less_often_once_it_is_as_published() -> None:
    cadence = cadence_of(**{".*": 5})
    started(cadence, refresh(), 0)
    assert cadence.refresh_due(*QUERY, 1)
    assert not cadence.due(refresh(), 1)
    assert not cadence.refresh_due(*QUERY, 2)
    assert not cadence.refresh_due(*QUERY, 5)
    assert cadence.refresh_due(*QUERY, 6)


def test_a_query_that_changes_is_measured_in_each_refresh_again() -> None:
    cadence = cadence_of(**{".*": 5})
    started(cadence, refresh(topics=[]), 0)
    assert not cadence.due(refresh(topics=[]), 1)
    started(cadence, refresh(), 6)
    assert cadence.refresh_due(*QUERY, 7)


def test_a_change_that_is_not_yet_published_is_measured_again() -> None:
    cadence = Cadence(Settings(refresh_intervals={".*": 5}, publish_interval_s=3))
    started(cadence, refresh(topics=[]), 0)
    assert not cadence.due(refresh(), 1)
    assert cadence.refresh_due(*QUERY, 2)


def test_at_the_heartbeat_every_query_is_measured() -> None:
    """It is published there: with what it is then, not with what it was."""
    cadence = cadence_of(**{".*": 7})
    started(cadence, refresh(), 0)
    assert not cadence.due(refresh(), 7)
    assert not cadence.refresh_due(*QUERY, 9)
    assert cadence.refresh_due(*QUERY, 10)
    started(cadence, refresh(), 10)


def test_after_a_failure_a_query_is_measured_in_the_next_refresh() -> None:
    cadence = cadence_of(**{".*": 5})
    started(cadence, refresh(), 0)
    assert not cadence.due(refresh(), 1)
    cadence.forget()
    assert cadence.refresh_due(*QUERY, 2)
