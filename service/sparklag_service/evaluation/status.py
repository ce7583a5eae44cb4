"""The status of a query and its reason in numbers, and whether its running batch hangs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from sparklag_schemas import PartitionLag, RunningBatch, Status, Thresholds
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.topics import feedback_topics
from sparklag_schemas.text.formatting import span
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_history import QueryHistory, UsualTimes
from sparklag_service.evaluation.rates import Headroom
from sparklag_service.evaluation.topic_measure import NO_BATCH
from sparklag_service.evaluation.trends import Verdict
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


# From good to bad: a query is as bad as its worst partition.
_SEVERITY: tuple[Status, ...] = (
    "OK",
    "FINISHED",
    "UNKNOWN",
    "WARN",
    "REWIND",
    "STALL",
    "STOP",
    "CONFLICT",
    "RECREATED",
    "GONE",
    "DATA_LOSS",
    "FAILED",
)
_RANK: dict[str, int] = {status: rank for rank, status in enumerate(_SEVERITY)}
_DRIVER_ENDS = {
    "stopped": "the driver stopped Spark",
    "exited": "the driver process exited",
}
_CLOSED = "no longer observed: the handle was closed; the position may be out of date"
FEEDBACK = (
    "a topic of sparklag's own, to which each batch adds records: list the query's topics, or"
    " exclude this one from subscribePattern"
)
_NO_PARTITION = "the query reads no partition"


def query_status(
    state: QueryState,
    partitions: Sequence[PartitionLag],
    unmeasured: Sequence[Verdict],
    on_query: Sequence[Verdict],
    *,
    silent: bool,
) -> Verdict:
    """`unmeasured`: on topics without any partition. `on_query`: on the whole query."""
    overriding = _regardless_of_lag(state, silent=silent)
    if overriding is not None:
        return overriding
    candidates: list[PartitionLag | Verdict] = [v for v in unmeasured if v.reason != NO_BATCH]
    candidates += on_query
    if not state.has_position:
        candidates += [p for p in partitions if p.status not in ("OK", "UNKNOWN")]
        if not candidates:
            return Verdict("UNKNOWN", NO_BATCH)
    else:
        candidates += [partition for partition in partitions if partition.reason is not None]
    if not candidates:
        return Verdict("OK", None) if partitions else Verdict("UNKNOWN", _NO_PARTITION)
    worst = max(candidates, key=lambda candidate: _RANK[candidate.status])
    if isinstance(worst, Verdict):
        return worst
    alike = sum(p.status == worst.status and p.reason is not None for p in partitions)
    # A partition measured here has a status of ours.
    status = cast(Status, worst.status)
    return Verdict(status, f"{alike} of {len(partitions)} partitions: {worst.reason}")


def threshold_verdicts(
    thresholds: Thresholds,
    measure_time: MeasureTime,
    *,
    total_lag: int | None,
    max_time_lag_s: float | None,
    headroom: Headroom,
) -> Iterator[Verdict]:
    """WARN where the query is beyond a threshold of its own."""
    if headroom.loss_expected_at_ms is not None:
        left_s = (headroom.loss_expected_at_ms - measure_time.now_ms) / 1000
        if left_s <= thresholds.min_headroom_s:
            yield Verdict("WARN", f"retention deletes unread records in {span(left_s)}")
    if thresholds.max_lag is not None and (total_lag or 0) > thresholds.max_lag:
        yield Verdict("WARN", f"lag is {total_lag:,} records, {thresholds.max_lag:,} are allowed")
    allowed_s = thresholds.max_time_lag_s
    if allowed_s is not None and (max_time_lag_s or 0) > allowed_s:
        oldest = span(max_time_lag_s or 0)
        reason = f"the oldest unread record is {oldest} old, {span(allowed_s)} is allowed"
        yield Verdict("WARN", reason)


def feedback_verdicts(state: QueryState, home: str, own: frozenset[str]) -> Iterator[Verdict]:
    """Of a query that reads `own`, the topics of sparklag on the cluster `home`, without naming
    them. A consumer group publishes nothing there."""
    if traits_of(state.origin).commits_offsets:
        return
    for source in state.sources:
        if source.cluster == home:
            for topic in feedback_topics(own, source.topics, source.processed):
                yield Verdict("WARN", f"never catches up: the query also reads {topic}, {FEEDBACK}")


def _regardless_of_lag(state: QueryState, *, silent: bool) -> Verdict | None:
    """A verdict beside which lag does not matter."""
    traits = traits_of(state.origin)
    if state.exception is not None:
        first_line = state.exception.strip().partition("\n")[0].rstrip()
        what = "the driver failed" if state.driver_end == "exited" else "the query failed"
        return Verdict("FAILED", f"{what}: {first_line or 'no error message'}")
    if state.ended:
        return Verdict("FINISHED", _DRIVER_ENDS.get(state.driver_end or "", traits.ended_reason))
    if state.driver_end == "closed":
        return Verdict("UNKNOWN", _CLOSED)
    if silent and state.run_id is None:
        reason = f"cannot read its {traits.position_store}: the position may be out of date"
        return Verdict("UNKNOWN", reason)
    if silent:
        reason = "the driver stopped reporting: it died or cannot reach Kafka"
        return Verdict("STOP", reason)
    if state.other_run_id is not None:
        where = f" at {state.checkpoint_location}" if state.checkpoint_location is not None else ""
        return Verdict(
            "CONFLICT",
            f"two drivers share one checkpoint{where}:"
            f" run {state.run_id} and run {state.other_run_id} are both active",
        )
    return None


def stalled(
    state: QueryState, history: QueryHistory, thresholds: Thresholds, total_lag: int | None
) -> Verdict | None:
    """Burrow's rule 2: nothing is completed for much longer than usual.

    With a live driver the query stalls. Without a driver, that cannot be told from its end. A group
    may never have been seen to commit; how long a batch takes is not known before there were two.
    """
    since_s, usual, traits = history.stalled_since_s(), history.usual, traits_of(state.origin)
    is_usual_known = usual.interval_s is not None or usual.batch_s is not None
    if since_s is None or not (is_usual_known or traits.commits_offsets):
        return None
    stalled_s = history.at_s - since_s
    usual_s = max(usual.interval_s or 0.0, usual.batch_s or 0.0)
    if stalled_s <= max(thresholds.stall_factor * usual_s, thresholds.stall_after_s):
        return None
    times = []
    if usual.batch_s is not None:
        times.append(f"up to {span(usual.batch_s)}")
    if usual.interval_s is not None:
        times.append(f"one every {span(usual.interval_s)}")
    reason = f"no {traits.step} for {span(stalled_s)}"
    if times:
        reason += f" (usually {', '.join(times)})"
    if total_lag is not None:
        reason += f"; lag is {total_lag:,} records"
    return Verdict("STALL" if state.run_id is not None else "STOP", reason)
