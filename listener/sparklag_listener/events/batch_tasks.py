"""The tasks of a running batch, from Spark's active jobs and stages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from sparklag_schemas import RunningBatch, Straggler
from sparklag_schemas.messages.bounds import bounded_s

_STRAGGLER_FACTOR: Final = 3
"""A straggler runs so many times longer than a completed task took, as in Spark's speculation,"""
_STRAGGLER_S: Final = 5.0
"""and at least so long."""


def _is_long(running_s: float, mean_s: float) -> bool:
    return running_s > max(_STRAGGLER_FACTOR * mean_s, _STRAGGLER_S)


class Job(Struct, frozen=True, rename="camel"):
    """Spark's JobData of an active job."""

    job_id: int
    submission_time: int | None
    stage_ids: list[int]
    job_group: str | None
    num_tasks: int
    num_active_tasks: int
    num_completed_indices: int
    num_failed_tasks: int


class Stage(Struct, frozen=True, rename="camel"):
    """Spark's StageData of an active stage. Times in milliseconds."""

    stage_id: int
    attempt_id: int
    num_tasks: int
    num_active_tasks: int
    num_complete_tasks: int
    first_task_launched_time: int | None
    executor_run_time: int
    """Of its completed tasks."""
    input_records: int
    output_records: int
    shuffle_read_records: int
    shuffle_write_records: int

    @property
    def mean_task_s(self) -> float | None:
        """Of its completed tasks. None: there is none."""
        if not self.num_complete_tasks:
            return None
        return self.executor_run_time / self.num_complete_tasks / 1000

    def elapsed_s(self, now_ms: int) -> float:
        """Since its first task was launched."""
        if self.first_task_launched_time is None:
            return 0.0
        return max(0, now_ms - self.first_task_launched_time) / 1000

    def remaining_s(self, now_ms: int) -> float | None:
        """Until its tasks are done, if they take as long as the completed ones. None: not known."""
        mean_s, running = self.mean_task_s, self.num_active_tasks
        # Spark counts wrongly where it dropped events: below 0 too.
        if mean_s is None or running <= 0:
            return None
        elapsed_s, done = self.elapsed_s(now_ms), self.num_complete_tasks
        # The run time is without what Spark needs between tasks, which counts for short ones.
        task_s = max(mean_s, elapsed_s * running / (done + running))
        open_tasks = max(0, self.num_tasks - done)
        # At the least the running tasks are about to end, at the most they have just begun.
        least_s = max(0, open_tasks - running) * task_s / running
        most_s = open_tasks * task_s / running
        return min(max(self.num_tasks * task_s / running - elapsed_s, least_s), most_s)

    def may_have_straggler(self, now_ms: int) -> bool:
        """Whether any of its running tasks can be one, and enough are done to tell."""
        mean_s = self.mean_task_s
        return (
            mean_s is not None
            and 0 < self.num_active_tasks <= self.num_complete_tasks
            and _is_long(self.elapsed_s(now_ms), mean_s)
        )


@dataclass(frozen=True)
class OldestTask:
    """The running task of a stage that was launched first."""

    index: int
    attempt: int
    executor_id: str
    host: str
    launched_at_ms: int


OldestTaskOf = Callable[[Stage], OldestTask | None]


@dataclass
class BatchTasks:
    """What was seen of one batch of a run."""

    completed_batch_id: int | None
    """The one before it, in this run."""
    started_at_ms: int
    """When it was first seen."""
    batch_id: int | None = None
    """None: not planned yet."""
    progressed_at_ms: int = 0
    _job_tasks: dict[int, int] = field(default_factory=dict)
    """Number of tasks of each job that was active at some time."""
    _counts: tuple[int, ...] = ()

    def observe(
        self,
        jobs: Sequence[Job],
        stages: Sequence[Stage],
        oldest_task_of: OldestTaskOf,
        now_ms: int,
        newest_job: int = -1,
    ) -> RunningBatch:
        """`jobs` of this run that are active, and the active stages of all runs. `newest_job`: the
        id of the last of its jobs, also where that has ended."""
        if not self._job_tasks and jobs:
            submitted = [job.submission_time for job in jobs if job.submission_time is not None]
            self.started_at_ms = min([self.started_at_ms, *submitted])
        active = {job.job_id: job.num_tasks for job in jobs}
        self._job_tasks.update(active)
        ended = sum(tasks for job, tasks in self._job_tasks.items() if job not in active)
        stages = [s for s in stages if any(s.stage_id in job.stage_ids for job in jobs)]
        done = ended + sum(min(job.num_completed_indices, job.num_tasks) for job in jobs)
        # Executors report what running tasks have read and written each 10 s.
        counts = (
            newest_job,
            len(jobs),
            done,
            *(stage.num_complete_tasks for stage in stages),
            sum(stage.input_records + stage.output_records for stage in stages),
            sum(stage.shuffle_read_records + stage.shuffle_write_records for stage in stages),
        )
        if counts != self._counts:
            self._counts, self.progressed_at_ms = counts, now_ms
        straggler = _straggler(stages, oldest_task_of, now_ms)
        means_s = [stage.mean_task_s for stage in stages if stage.mean_task_s is not None]
        return RunningBatch(
            batch_id=self.batch_id,
            started_at=self.started_at_ms,
            observed_at=now_ms,
            progressed_at=self.progressed_at_ms,
            jobs=len(jobs),
            tasks_total=sum(self._job_tasks.values()),
            tasks_done=done,
            tasks_running=sum(max(0, job.num_active_tasks) for job in jobs),
            tasks_failed=sum(job.num_failed_tasks for job in jobs),
            mean_task_s=bounded_s(max(means_s, default=None)),
            remaining_s=None if straggler is not None else _remaining_s(jobs, stages, now_ms),
            straggler=straggler,
        )


def _remaining_s(jobs: Sequence[Job], stages: Sequence[Stage], now_ms: int) -> float | None:
    for job in jobs:
        active = [stage.stage_id for stage in stages if stage.stage_id in job.stage_ids]
        # A stage has a higher id than those it waits for.
        if not active or max(job.stage_ids) > max(active):
            return None
    remaining_s = [stage.remaining_s(now_ms) for stage in stages]
    known_s = [each for each in remaining_s if each is not None]
    if not known_s or len(known_s) < len(remaining_s):
        return None
    return bounded_s(round(max(known_s), 3))


def _straggler(
    stages: Sequence[Stage], oldest_task_of: OldestTaskOf, now_ms: int
) -> Straggler | None:
    stragglers = []
    for stage in stages:
        mean_s = stage.mean_task_s
        if mean_s is None or not stage.may_have_straggler(now_ms):
            continue
        task = oldest_task_of(stage)
        if task is None:
            continue
        running_s = (now_ms - task.launched_at_ms) / 1000
        if _is_long(running_s, mean_s):
            straggler = Straggler(
                stage_id=stage.stage_id,
                task_index=task.index,
                attempt=task.attempt,
                executor_id=task.executor_id,
                host=task.host,
                running_s=running_s,
                mean_task_s=mean_s,
            )
            stragglers.append(straggler)
    return max(stragglers, key=lambda straggler: straggler.running_s, default=None)
