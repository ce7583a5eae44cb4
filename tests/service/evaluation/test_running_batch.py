"""A batch that hangs by its tasks, the first one too."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_schemas import Activity, Cause, Observation, RunningBatch, SourcePosition
from tests.messages import QUERY_ID, observation, straggler
from tests.service.states import States, evaluated, offsets_at, source, state

MINUTE_MS = 60_000


def running(stuck_s: float, **fields: Any) -> RunningBatch:
    """Batch 0, for twelve minutes, in which nothing went on for so long."""
    at_ms = 20 * MINUTE_MS
    return RunningBatch(
        **{
            "batch_id": 0,
            "started_at": at_ms - 12 * MINUTE_MS,
            "observed_at": at_ms,
            "progressed_at": at_ms - int(stuck_s * 1000),
            **fields,
        }
    )


def in_first_batch(batch: RunningBatch) -> tuple[str, str | None]:
    event = evaluated(state(source(None), running_batch=batch), offsets_at({0: 70}))
    return event.status, event.reason


TASKS = {"jobs": 1, "tasks_total": 200, "tasks_done": 180, "tasks_running": 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no Spark job for 6 min (planning, or user code)"),
        (TASKS, "180 of 200 tasks done, no progress for 6 min"),
        (
            {**TASKS, "straggler": straggler(), "mean_task_s": 2.0},
            "180 of 200 tasks done, no progress for 6 min; task 17 of stage 3 has run for 6"
            " min, usually 2.0 s",
        ),
        (
            {**TASKS, "tasks_running": 0},
            "180 of 200 tasks done, no progress for 6 min; no task is running: check the executors",
        ),
    ],
)
def test_a_hang_in_the_first_batch_is_a_stall(fields: dict[str, Any], reason: str) -> None:
    reason = f"batch 0 has run for 12 min: {reason}"
    assert in_first_batch(running(360, **fields)) == ("STALL", reason)


def test_a_first_batch_that_goes_on_is_none_however_long_it_takes() -> None:
    status, _ = in_first_batch(running(290, **TASKS))
    assert status == "UNKNOWN"


def test_tasks_that_usually_take_long_are_waited_for() -> None:
    assert in_first_batch(running(800, **TASKS, mean_task_s=300.0))[0] == "UNKNOWN"
    assert in_first_batch(running(901, **TASKS, mean_task_s=300.0))[0] == "STALL"


def test_a_batch_without_a_number_is_the_next() -> None:
    _, reason = in_first_batch(running(360, batch_id=None))
    assert str(reason).startswith("the next batch has run for 12 min")


def received(cause: Cause, observed_at: int, **fields: Any) -> Observation:
    sources = [SourcePosition(source=0, topics=["orders"])]
    return observation(
        **{
            "cause": cause,
            "observed_at": observed_at,
            "sources": sources,
            "batch_id": None,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("cause", "activity"), [("progress", None), ("idle", None), ("refresh", "waiting")]
)
def test_a_batch_that_is_over_runs_no_more(cause: Cause, activity: Activity | None) -> None:
    tracker = States()
    tracker.observe(received("refresh", 10, running_batch=running(1)))
    assert tracker.queries[QUERY_ID].running_batch == running(1)
    tracker.observe(received(cause, 20, activity=activity))
    assert tracker.queries[QUERY_ID].running_batch is None


def test_a_batch_that_its_checkpoint_has_completed_runs_no_more() -> None:
    tracker = States()
    tracker.observe(received("refresh", 10, running_batch=running(1)))
    position = SourcePosition(source=0, topics=["orders"], processed={"orders": {0: 5}})
    completed = {"origin": "checkpoint", "run_id": None, "batch_id": 0, "sources": [position]}
    tracker.observe(received("checkpoint", 20, **completed))
    assert tracker.queries[QUERY_ID].running_batch is None
