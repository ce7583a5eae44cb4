"""Spark's active jobs and stages, and the tasks of a running batch in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from sparklag_schemas import RunningBatch, Straggler
from sparklag_schemas.messages.bounds import bounded_s

_STRAGGLER_FACTOR: Final = 3
_STRAGGLER_S: Final = 5.0


def _is_long(running_s: float, mean_s: float) -> bool:
    """A straggler runs longer than a completed task took, by a factor as in Spark's speculation."""
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
    """The sum of its completed tasks."""
    input_records: int
    output_records: int
    shuffle_read_records: int
    shuffle_write_records: int

    @property
    def mean_task_s(self) -> float | None:
        """The mean of its completed tasks. None: there is none."""
        done = self.num_complete_tasks
        return self.executor_run_time / done / 1000 if done else None

    def elapsed_s(self, now_ms: int) -> float:
        """The time since its first task was launched."""
        launched_ms = self.first_task_launched_time
        return max(0, now_ms - launched_ms) / 1000 if launched_ms is not None else 0.0

    def remaining_s(self, now_ms: int) -> float | None:
        """The time until its tasks end, by the pace of the completed ones. None: unknown."""
        mean_s, running = self.mean_task_s, self.num_active_tasks
        # Spark's counts are wrong after it dropped events, and may be negative.
        if mean_s is None or running <= 0:
            return None
        elapsed_s, done = self.elapsed_s(now_ms), self.num_complete_tasks
        # The run time excludes Spark's overhead between tasks, which matters for short tasks.
        task_s = max(mean_s, elapsed_s * running / (done + running))
        open_tasks = max(0, self.num_tasks - done)
        # Lower bound: the running tasks are about to end. Upper bound: they have just begun.
        least_s = max(0, open_tasks - running) * task_s / running
        most_s = open_tasks * task_s / running
        return min(max(self.num_tasks * task_s / running - elapsed_s, least_s), most_s)

    def may_have_straggler(self, now_ms: int) -> bool:
        """True where a running task can be one, and enough are done to compare."""
        mean_s = self.mean_task_s
        return (
            mean_s is not None
            and 0 < self.num_active_tasks <= self.num_complete_tasks
            and _is_long(self.elapsed_s(now_ms), mean_s)
        )


class _Execution(Struct, frozen=True, rename="camel"):
    """Spark's SQLExecutionUIData. `jobs`: their states by id."""

    execution_id: int
    jobs: dict[int, str]


class _Metric(Struct, frozen=True, rename="camel"):
    name: str
    accumulator_id: int


class _PlanNode(Struct, frozen=True):
    """Spark's SparkPlanGraphNode: an operator of a plan."""

    name: str
    metrics: list[_Metric]


FindOldestTask = Callable[[Stage, int], Straggler | None]
"""Takes a stage and the time in epoch milliseconds. Returns the running task of the stage that was
launched first, whether it is a straggler or not."""


@dataclass
class BatchTasks:
    """The observed jobs and tasks of one batch of a run."""

    completed_batch_id: int | None
    """The previous batch in this run."""
    started_at_ms: int
    batch_id: int | None = None
    """None: not planned yet."""
    progressed_at_ms: int = 0
    _job_tasks: dict[int, int] = field(default_factory=dict)
    """The number of tasks of each job that was active at some time."""
    _counts: tuple[int, ...] = ()

    def observe(
        self,
        jobs: Sequence[Job],
        stages: Sequence[Stage],
        oldest_task: FindOldestTask,
        now_ms: int,
        newest_job: int = -1,
        rows_read: int | None = None,
    ) -> RunningBatch:
        """`jobs`: the active ones of this run. `stages`: the active ones of all runs. `newest_job`:
        the id of this run's last job, active or ended. `rows_read`: see RunningScans."""
        if not self._job_tasks and jobs:
            submitted = [job.submission_time for job in jobs if job.submission_time is not None]
            self.started_at_ms = min([self.started_at_ms, *submitted])
        active = {job.job_id: job.num_tasks for job in jobs}
        self._job_tasks.update(active)
        ended = sum(tasks for job, tasks in self._job_tasks.items() if job not in active)
        stages = [s for s in stages if any(s.stage_id in job.stage_ids for job in jobs)]
        done = ended + sum(min(job.num_completed_indices, job.num_tasks) for job in jobs)
        # Executors report the records that running tasks have read and written every 10 s.
        counts = (
            newest_job,
            len(jobs),
            done,
            *(stage.num_complete_tasks for stage in stages),
            sum(stage.input_records + stage.output_records for stage in stages),
            sum(stage.shuffle_read_records + stage.shuffle_write_records for stage in stages),
            rows_read or 0,
        )
        if counts != self._counts:
            self._counts, self.progressed_at_ms = counts, now_ms
        straggler = _straggler(stages, oldest_task, now_ms)
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
            rows_read=rows_read,
            mean_task_s=bounded_s(max(means_s, default=None)),
            remaining_s=None if straggler is not None else _remaining_s(jobs, stages, now_ms),
            straggler=straggler,
        )


def _remaining_s(jobs: Sequence[Job], stages: Sequence[Stage], now_ms: int) -> float | None:
    for job in jobs:
        active = [stage.stage_id for stage in stages if stage.stage_id in job.stage_ids]
        # A stage has a higher id than the stages it waits for.
        if not active or max(job.stage_ids) > max(active):
            return None
    remaining_s = [stage.remaining_s(now_ms) for stage in stages]
    if not remaining_s or None in remaining_s:
        return None
    return bounded_s(round(max(each for each in remaining_s if each is not None), 3))


def _straggler(
    stages: Sequence[Stage], oldest_task: FindOldestTask, now_ms: int
) -> Straggler | None:
    tasks = (oldest_task(each, now_ms) for each in stages if each.may_have_straggler(now_ms))
    stragglers = [
        task for task in tasks if task is not None and _is_long(task.running_s, task.mean_task_s)
    ]
    return max(stragglers, key=lambda task: task.running_s, default=None)


# Long parts of Spark's JSON that are not read.
_IGNORED: Final = (
    *("name", "description", "details", "jobTags", "rddIds", "accumulatorUpdates", "tasks"),
    *("executorSummary", "peakExecutorMetrics", "killedTasksSummary", "schedulingPool"),
    *("taskMetricsDistributions", "executorMetricsDistributions", "speculationSummary"),
)
_API: Final = ("status.api.v1.JobData", "status.api.v1.StageData")
_IGNORED_OF_SQL: Final = {
    "sql.execution.ui.SQLExecutionUIData": (
        *("description", "details", "physicalPlanDescription", "modifiedConfigs", "metrics"),
        *("stages", "metricValues", "errorMessage", "jobTags"),
    ),
    "sql.execution.ui.SparkPlanGraphNode": ("desc",),
}
_ROWS: Final = "number of output rows"
_jobs = msgspec.json.Decoder(list[Job])
_stages = msgspec.json.Decoder(list[Stage])
_executions = msgspec.json.Decoder(list[_Execution])
_nodes = msgspec.json.Decoder(list[_PlanNode])
_values = msgspec.json.Decoder(dict[int, str])


class ActiveJobs:
    """Reads the active jobs of a SparkContext. Raises what Py4J, PySpark and msgspec raise."""

    def __init__(self, jvm: Any, context: Any) -> None:
        self._store = context.statusStore()
        self._scheduler = context.taskScheduler()
        self._job_ids = context.statusTracker().getJobIdsForGroup
        self._stream = jvm.java.util.Arrays.stream
        self._running = jvm.java.util.List.of(jvm.org.apache.spark.JobExecutionStatus.RUNNING)
        self._ordering = getattr(getattr(jvm.scala.math, "Ordering$Long$"), "MODULE$")
        self._json = _mapper(jvm, dict.fromkeys(_API, _IGNORED))

    def read(self) -> tuple[list[Job], list[Stage]]:
        """4 Py4J commands. Not read in chunks: above 8 KiB, about ten stages, this thread waits 40
        ms for the rest, which uses no CPU and delays no other thread."""
        jobs = _jobs.decode(self._json(self._store.jobsList(self._running)))
        stages = _stages.decode(self._json(self._store.activeStages())) if jobs else []
        return jobs, stages

    def newest_job(self, run_id: str) -> int:
        """The id of the run's last job, active or ended. 4 Py4J commands. -1: none."""
        return int(self._stream(self._job_ids(run_id)).max().orElse(-1))

    def oldest_task(self, stage: Stage, now_ms: int) -> Straggler | None:
        """See FindOldestTask. 11 Py4J commands. None: the task has just ended, or is not known."""
        try:
            tasks = self._scheduler.taskSetManagerForAttempt(stage.stage_id, stage.attempt_id).get()
            # Task ids rise with the launches.
            info = tasks.taskInfos().apply(tasks.runningTasksSet().min(self._ordering))
            return Straggler(
                stage_id=stage.stage_id,
                task_index=info.index(),
                attempt=info.attemptNumber(),
                executor_id=str(info.executorId()),
                host=str(info.host()),
                running_s=(now_ms - info.launchTime()) / 1000,
                mean_task_s=stage.mean_task_s or 0.0,
            )
        except Exception:
            # Read without the scheduler's lock. PySpark has its own types for Java's errors.
            return None


class RunningScans:
    """Reads what the scans of running jobs have returned. Raises what ActiveJobs raises."""

    def __init__(self, jvm: Any, session: Any) -> None:
        self._store = session.sharedState().statusStore()
        self._json = _mapper(jvm, _IGNORED_OF_SQL)

    def rows(self, jobs: Sequence[Job]) -> int | None:
        """The sum over all scans of streams, as executors report it every 10 s. 8 Py4J commands.
        None: not known. In real-time mode Spark counts no input of running tasks otherwise."""
        ids = {job.job_id for job in jobs}
        for execution in _executions.decode(self._json(self._store.executionsList())):
            if not ids.isdisjoint(execution.jobs):
                graph = self._store.planGraph(execution.execution_id)
                metrics = self._store.executionMetrics(execution.execution_id)
                rows = _values.decode(self._json(metrics))
                scans = [
                    metric.accumulator_id
                    for node in _nodes.decode(self._json(graph.allNodes()))
                    for metric in node.metrics
                    if "StreamScan" in node.name and metric.name == _ROWS
                ]
                return sum(int(rows[each].replace(",", "")) for each in scans if each in rows)
        return None


def _mapper(jvm: Any, ignored_of: Mapping[str, Collection[str]]) -> Any:
    """Writes Java's objects as JSON, without the ignored parts of each class."""
    jackson = jvm.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper()
    scala_module = getattr(jackson.module.scala, "DefaultScalaModule$")
    mapper.registerModule(getattr(scala_module, "MODULE$"))
    properties = getattr(jackson.annotation, "JsonIgnoreProperties$Value")
    for kind, names in ignored_of.items():
        ignored = jvm.java.util.HashSet()
        for name in names:
            ignored.add(name)
        config = mapper.configOverride(jvm.java.lang.Class.forName(f"org.apache.spark.{kind}"))
        config.setIgnorals(properties.forIgnoredProperties(ignored))
    return mapper.writeValueAsString
