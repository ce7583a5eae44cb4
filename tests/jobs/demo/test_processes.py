"""What the demo knows of a query, from the events it read."""

from __future__ import annotations

import pytest

from sparklag_jobs.demo.processes import QueryLag
from sparklag_schemas import Status
from tests.jobs.lag_events import lag_event


def _state() -> QueryLag:
    return QueryLag(query="orders", started_at=100.0)


def test_only_an_event_with_a_lag_counts_as_its_first() -> None:
    state = _state()
    state.add(lag_event(lag=None, at=2), now=102)
    assert state.first_lag_s is None
    assert "orders: the service answered with no lag" in state.summary()
    state.add(lag_event(lag=8, at=3), now=104.5)
    state.add(lag_event(lag=3, at=4), now=105)
    assert state.first_lag_s == pytest.approx(4.5)
    assert (state.highest_lag, state.events) == (8, 3)
    assert state.summary() == (
        "orders: first lag after 4.5 s, 3 lag events, highest lag 8 records, last 3"
    )


def test_each_failure_counts_once_however_often_it_is_read() -> None:
    state = _state()
    statuses: list[Status] = ["OK", "FAILED", "FAILED", "OK", "FAILED"]
    for at, status in enumerate(statuses, 1):
        state.add(lag_event(at=at, status=status), now=100 + at)
    assert state.failures == 2
    assert state.summary().endswith("last 30, failures 2")


def test_the_same_event_again_does_not_count() -> None:
    state = _state()
    for now in (101, 102):
        state.add(lag_event(lag=8, at=3), now=now)
    assert (state.highest_lag, state.first_lag_s, state.events) == (8, 1, 1)


def test_an_earlier_runs_events_do_not_count() -> None:
    state = QueryLag(query="orders", started_at=100.0, since_ms=1000)
    state.add(lag_event(lag=9, at=999), now=101)
    assert state.event is None
    state.add(lag_event(lag=8, at=1000), now=102)
    assert state.highest_lag == 8
