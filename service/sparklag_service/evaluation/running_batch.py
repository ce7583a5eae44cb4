"""Whether the running batch hangs, by Spark's tasks: also where it is the first one. Pure."""

from __future__ import annotations

from sparklag_schemas import RunningBatch, Thresholds
from sparklag_schemas.formatting import span
from sparklag_service.evaluation.query_history import UsualTimes
from sparklag_service.evaluation.verdict import Verdict
from sparklag_service.tracking.query_state import QueryState


def running_batch_verdict(
    state: QueryState, usual: UsualTimes, thresholds: Thresholds
) -> Verdict | None:
    """STALL where nothing in it has gone on for longer than `stall_after_s`, and than
    `stall_factor` times what its tasks, or batches where that is known, take."""
    batch = state.running_batch
    if batch is None:
        return None
    stuck_s = (batch.observed_at - batch.progressed_at) / 1000
    usual_s = max(batch.mean_task_s or 0.0, usual.batch_s or 0.0)
    if stuck_s <= max(thresholds.stall_after_s, thresholds.stall_factor * usual_s):
        return None
    number = "the next batch" if batch.batch_id is None else f"batch {batch.batch_id}"
    runs_s = max(0, batch.observed_at - batch.started_at) / 1000
    return Verdict("STALL", f"{number} has run for {span(runs_s)}: {_hang(batch, stuck_s)}")


def _hang(batch: RunningBatch, stuck_s: float) -> str:
    if not batch.jobs:
        return f"no Spark job for {span(stuck_s)} (planning, or user code)"
    done = f"{batch.tasks_done:,} of {batch.tasks_total:,} tasks done"
    text = f"{done}, no progress for {span(stuck_s)}"
    if batch.straggler is not None:
        task = batch.straggler
        return (
            f"{text}; task {task.task_index} of stage {task.stage_id} has run"
            f" for {span(task.running_s)}, usually {span(task.mean_task_s)}"
        )
    if not batch.tasks_running:
        return f"{text}; no task is running: check the executors"
    return text
