"""Spark's active jobs and stages, from the store behind its UI, which is kept without a UI too.

Nothing here waits for the scheduler, and nothing grows with the number of tasks.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparklag_listener.classic.py4j_text import read_text
from sparklag_listener.events.batch_tasks import Job, OldestTask, Stage

# Long parts of Spark's JSON that are not read.
_IGNORED: Final = (
    *("name", "description", "details", "jobTags", "rddIds", "accumulatorUpdates", "tasks"),
    *("executorSummary", "peakExecutorMetrics", "killedTasksSummary", "schedulingPool"),
)

_active = msgspec.json.Decoder(tuple[list[Job], list[Stage]])


class ActiveJobs:
    """Of a classic session's SparkContext. Raises what Py4J, PySpark and msgspec raise."""

    def __init__(self, jvm: Any, context: Any) -> None:
        self._store = context.statusStore()
        self._scheduler = context.taskScheduler()
        # Cached: each part of a class's name costs a command.
        self._list_of = jvm.java.util.List.of
        self._writer = jvm.java.io.StringWriter
        self._running = self._list_of(jvm.org.apache.spark.JobExecutionStatus.RUNNING)
        self._ordering = getattr(getattr(jvm.scala.math, "Ordering$Long$"), "MODULE$")
        self._mapper = _mapper(jvm)

    def read(self) -> tuple[list[Job], list[Stage]]:
        """8 Py4J commands, some more for dozens of jobs."""
        active = self._list_of(self._store.jobsList(self._running), self._store.activeStages())
        writer = self._writer()
        self._mapper.writeValue(writer, active)
        return _active.decode(read_text(writer.getBuffer()))

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
