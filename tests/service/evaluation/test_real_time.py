"""Real-time mode: lag and age since the last checkpoint; and the lag before the first batch."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import RunningBatch, Thresholds
from sparklag_schemas.presentation.sentences import lines
from sparklag_service.tracking.query_state import restored
from tests.service.evaluation.trace import Trace
from tests.service.states import evaluated, offsets_at, only, source, state

MODE = {"mode": "real-time", "trigger_interval_s": 60.0}
TIGHT = Thresholds(max_time_lag_s=20.0, max_lag=100, stall_after_s=30.0)


def sawtooth(**fields: Any) -> Trace:
    """Ten records a second, and a checkpoint each minute, four times."""
    trace = Trace(thresholds=TIGHT, produce=lambda _: [10], refresh_s=5.0, **fields)
    for _ in range(4):
        trace.pass_time(60.0)
        trace.batch()
    return trace


def test_no_alarm_is_raised_about_records_younger_than_the_interval() -> None:
    trace = sawtooth(**MODE)
    trace.pass_time(60.0)
    assert {event.status for event in trace.events[30:]} == {"OK"}


def test_micro_batches_with_the_same_numbers_alarm() -> None:
    trace = sawtooth(mode="micro-batch", trigger_interval_s=60.0)
    trace.pass_time(60.0)
    assert trace.status == "WARN"


def test_a_hang_is_a_stall_all_the_same() -> None:
    trace = sawtooth(**MODE)
    trace.pass_time(400.0)
    assert trace.status == "STALL"


RUNNING = RunningBatch(
    batch_id=0, started_at=0, observed_at=100_000, progressed_at=0, jobs=1, rows_read=50
)


@pytest.mark.parametrize(("latest", "status"), [(0, "OK"), (70, "UNKNOWN")])
def test_readers_without_records_do_not_hang(latest: int, status: str) -> None:
    sources = source(None, topics=["orders"], starting={})
    query = state(sources, running_batch=RUNNING, mode="real-time", trigger_interval_s=1_800.0)
    assert evaluated(query, offsets_at({0: latest}, {0: 0})).status == status


@pytest.mark.parametrize(
    ("fields", "unread"),
    [
        ({}, 20),
        ({"rows_read": 90}, 0),
        ({"batch_id": 1}, None),
    ],
)
def test_what_tasks_have_read_is_left_out_of_the_estimate(
    fields: dict[str, Any], unread: int | None
) -> None:
    sources = source(None, topics=["orders"], starting={})
    running = replace(RUNNING, **fields)
    event = evaluated(state(sources, running_batch=running, **MODE), offsets_at({0: 70}, {0: 0}))
    assert event.unread_estimate == unread
    text = dict(lines(event, 100_000))["lag"]
    assert "since the last checkpoint" in text
    assert ("not read yet" in text) == (unread is not None)


@pytest.mark.parametrize(
    ("starting", "lag"),
    [({}, 60), ({"orders": {0: 30}}, 40), ({"orders": {0: -2}}, 60), ({"orders": {0: -1}}, None)],
)
def test_before_the_first_batch_lag_counts_from_where_it_starts(
    starting: dict[str, dict[int, int]], lag: int | None
) -> None:
    sources = source(None, topics=["orders"], starting=starting)
    offsets = offsets_at({0: 70}, {0: 10})
    event = evaluated(state(sources, processed_at=None), offsets)
    assert (event.total_lag, only(event).processed_offset) == (lag, None)
    counts = "no batch has completed yet: lag counts from startingOffsets"
    assert only(event).reason == (counts if lag is not None else "no batch has completed yet")
    assert dict(lines(event, 0))["last batch"] == "none completed yet"
    again = evaluated(restored(event), offsets, previous=event)
    assert (again.total_lag, again.status) == (lag, event.status)
