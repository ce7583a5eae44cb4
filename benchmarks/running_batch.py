"""What a look inside a running batch costs the driver, each ten seconds: against a bare look.

A batch of thousands of tasks runs; the queries are listed with their activity, and with the tasks
of the running batch. A call waits for Java, so its time is the cost in both, or more.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.comparison import Row, in_turn, within
from benchmarks.quiet_spark import quiet_spark
from sparklag_listener.classic.queries import ClassicQueries

BUDGET_MS: Final = 1.0
_TASKS: Final = 10_000
_ENDED_JOBS: Final = 300
_WARM_UP: Final = 500
_ROUNDS: Final = 6
_LOOKS: Final = 50
_DEADLINE_S: Final = 120.0


class _WithoutTasks(ClassicQueries):
    """As before there was a look at the tasks."""

    def _with_running_batches(self, queries: Any) -> Any:
        return queries


def run() -> list[Row]:
    """One row."""
    with quiet_spark() as spark, tempfile.TemporaryDirectory() as folder:
        for _ in range(_ENDED_JOBS):
            # Spark keeps them, and its store is searched for those that run.
            spark.range(1).count()
        query = (
            spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=_TASKS, numPartitions=_TASKS)
            .load()
            .selectExpr("java_method('java.lang.Thread', 'sleep', 2000L)")
            .writeStream.format("noop")
            .option("checkpointLocation", str(Path(folder) / "query"))
            .start()
        )
        try:
            return [_compare(spark, str(query.runId))]
        finally:
            query.stop()


def _compare(spark: Any, run_id: str) -> Row:
    looking, bare = ClassicQueries(spark), _WithoutTasks(spark)
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        (active,) = looking.list_active(with_activity={run_id}).queries
        if active.running_batch is not None and active.running_batch.tasks_done:
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"no task is done: {active}")
        time.sleep(0.1)

    def look(queries: ClassicQueries, count: int = _LOOKS) -> list[float]:
        taken = []
        for _ in range(count):
            began_s = time.perf_counter()
            queries.list_active(with_activity={run_id})
            taken.append(1000 * (time.perf_counter() - began_s))
        return taken

    for queries in (looking, bare):
        look(queries, _WARM_UP)
    ours, other = in_turn(_ROUNDS, lambda: look(looking), lambda: look(bare))
    what = f"running batch of {_TASKS:,} tasks: a look each 10 s"
    return within(what, ours, "without the tasks", other, BUDGET_MS)
