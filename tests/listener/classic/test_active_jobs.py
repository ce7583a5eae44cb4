"""The pace of a batch, and its straggler, from Spark's jobs and stages."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_listener.classic.active_jobs import BatchTasks, Job, Stage
from sparklag_schemas import Straggler

NOW_MS = 100_000


def job(**fields: Any) -> Job:
    return Job(
        **{
            "job_id": 7,
            "submission_time": 40_000,
            "stage_ids": [3],
            "job_group": "run",
            "num_tasks": 100,
            "num_active_tasks": 4,
            "num_completed_indices": 0,
            "num_failed_tasks": 0,
            **fields,
        }
    )


def stage(done: int, mean_s: float, elapsed_s: float, **fields: Any) -> Stage:
    return Stage(
        **{
            "stage_id": 3,
            "attempt_id": 0,
            "num_tasks": 100,
            "num_active_tasks": 4,
            "num_complete_tasks": done,
            "first_task_launched_time": NOW_MS - int(elapsed_s * 1000),
            "executor_run_time": int(done * mean_s * 1000),
            "input_records": 0,
            "output_records": 0,
            "shuffle_read_records": 0,
            "shuffle_write_records": 0,
            **fields,
        }
    )


@pytest.mark.parametrize("wave", range(1, 25))
@pytest.mark.parametrize("into_it_s", [0.1, 1.0, 1.9])
def test_even_tasks_are_done_when_estimated(wave: int, into_it_s: float) -> None:
    # Four at a time, two seconds each: 25 waves.
    remaining_s = stage(4 * wave, 2.0, 2.0 * wave + into_it_s).remaining_s(NOW_MS)
    assert remaining_s == pytest.approx(50 - 2.0 * wave - into_it_s, rel=0.01, abs=0.01)


def test_time_between_short_tasks_counts() -> None:
    # 10 ms of run time each, and as much around it.
    short = stage(1_000, 0.01, 1_000 * 0.02 / 4, num_tasks=2_000)
    assert short.remaining_s(NOW_MS) == pytest.approx(5.0, rel=0.02)


def test_tasks_whose_pace_is_not_known_have_no_end() -> None:
    assert stage(0, 0.0, 5.0).remaining_s(NOW_MS) is None
    # Below 0 where Spark has dropped events.
    for running in (0, -1, -5):
        assert stage(5, 1.0, 5.0, num_active_tasks=running).remaining_s(NOW_MS) is None


def test_a_stage_that_waits_hides_the_end() -> None:
    tasks = BatchTasks(None, NOW_MS)
    progress = tasks.observe([job()], [stage(8, 1.0, 2.0)], lambda *_: None, NOW_MS)
    assert progress.remaining_s is not None
    assert progress.started_at == 40_000
    waits = tasks.observe(
        [job(stage_ids=[3, 4])], [stage(8, 1.0, 2.0)], lambda *_: None, NOW_MS + 1
    )
    assert waits.remaining_s is None


def test_a_task_that_reads_goes_on() -> None:
    tasks = BatchTasks(None, NOW_MS)

    def observe(at_ms: int, **fields: Any) -> int:
        stages = [stage(0, 0.0, 2.0, **fields)]
        return tasks.observe([job()], stages, lambda *_: None, at_ms).progressed_at

    assert [observe(1, input_records=5), observe(2, input_records=5)] == [1, 1]
    assert observe(3, input_records=6) == 3
    assert observe(4, input_records=6) == 3


@pytest.mark.parametrize(("age_s", "is_straggler"), [(5.9, False), (6.1, True)])
def test_a_straggler_runs_three_times_as_long_as_others(age_s: float, is_straggler: bool) -> None:
    oldest = Straggler(
        stage_id=3,
        task_index=5,
        attempt=1,
        executor_id="2",
        host="worker",
        running_s=age_s,
        mean_task_s=2.0,
    )
    tasks = BatchTasks(None, NOW_MS)
    progress = tasks.observe([job()], [stage(96, 2.0, 60.0)], lambda *_: oldest, NOW_MS)
    assert (progress.straggler is not None) == is_straggler
    assert (progress.remaining_s is None) == is_straggler


def test_the_oldest_task_is_looked_up_only_where_it_can_be_one() -> None:
    def refuse(stage: Stage, now_ms: int) -> Straggler:
        raise AssertionError(stage)

    tasks = BatchTasks(None, NOW_MS)
    for each in (stage(0, 0.0, 60.0), stage(2, 2.0, 60.0), stage(96, 2.0, 5.0)):
        assert tasks.observe([job()], [each], refuse, NOW_MS).straggler is None
