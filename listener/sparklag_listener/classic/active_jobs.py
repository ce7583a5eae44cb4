"""Spark's active jobs and stages, from the store behind its UI, which is kept without a UI too.

Nothing here waits for the scheduler, and nothing grows with the number of tasks.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparklag_listener.events.batch_tasks import Job, OldestTask, Stage

# Long parts of Spark's JSON that are not read.
_IGNORED: Final = (
    *("name", "description", "details", "jobTags", "rddIds", "accumulatorUpdates", "tasks"),
    *("executorSummary", "peakExecutorMetrics", "killedTasksSummary", "schedulingPool"),
    *("taskMetricsDistributions", "executorMetricsDistributions", "speculationSummary"),
)

_jobs = msgspec.json.Decoder(list[Job])
_stages = msgspec.json.Decoder(list[Stage])


class ActiveJobs:
    """Of a classic session's SparkContext. Raises what Py4J, PySpark and msgspec raise."""

    def __init__(self, jvm: Any, context: Any) -> None:
        self._store = context.statusStore()
        self._scheduler = context.taskScheduler()
        self._job_ids = context.statusTracker().getJobIdsForGroup
        self._stream = jvm.java.util.Arrays.stream
        self._running = jvm.java.util.List.of(jvm.org.apache.spark.JobExecutionStatus.RUNNING)
        self._ordering = getattr(getattr(jvm.scala.math, "Ordering$Long$"), "MODULE$")
        self._json = _mapper(jvm).writeValueAsString

    def read(self) -> tuple[list[Job], list[Stage]]:
        """4 Py4J commands. Not in chunks: above 8 KiB, some ten stages, this thread waits 40 ms for
        the rest, which costs nothing and holds up nobody."""
        jobs = _jobs.decode(self._json(self._store.jobsList(self._running)))
        stages = _stages.decode(self._json(self._store.activeStages())) if jobs else []
        return jobs, stages

    def newest_job(self, run_id: str) -> int:
        """The id of the run's last job, also where that has ended. 4 Py4J commands. -1: none."""
        return int(self._stream(self._job_ids(run_id)).max().orElse(-1))

    def oldest_task(self, stage: Stage) -> OldestTask | None:
        """11 Py4J commands. None where it has just ended, or this Spark does not tell."""
        try:
            tasks = self._scheduler.taskSetManagerForAttempt(stage.stage_id, stage.attempt_id).get()
            # Task ids rise with the launches.
            info = tasks.taskInfos().apply(tasks.runningTasksSet().min(self._ordering))
            return OldestTask(
                index=info.index(),
                attempt=info.attemptNumber(),
                executor_id=str(info.executorId()),
                host=str(info.host()),
                launched_at_ms=info.launchTime(),
            )
        except Exception:
            # Read beside the scheduler, without its lock. PySpark has own types of Java's errors.
            return None


def _mapper(jvm: Any) -> Any:
    jackson = jvm.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper()
    scala_module = getattr(jackson.module.scala, "DefaultScalaModule$")
    mapper.registerModule(getattr(scala_module, "MODULE$"))
    ignored = jvm.java.util.HashSet()
    for name in _IGNORED:
        ignored.add(name)
    properties = getattr(jackson.annotation, "JsonIgnoreProperties$Value")
    api = "org.apache.spark.status.api.v1"
    for kind in ("JobData", "StageData"):
        config = mapper.configOverride(jvm.java.lang.Class.forName(f"{api}.{kind}"))
        config.setIgnorals(properties.forIgnoredProperties(ignored))
    return mapper
