"""The status of a query, and its reason in numbers. Pure.

Each rule is a function of the `Evidence`, and returns a verdict or None. The first of
`_WITHOUT_LAG` that applies decides, whatever the lag is. Otherwise the worst verdict decides: of
`_OF_LAG`, of `_OF_THE_PAST`, and of the partitions. A new rule is a function here, and an entry in
one of these tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, cast

from sparklag_schemas import OpenTransaction, PartitionLag, RunningBatch, Status, Thresholds
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.topics import feedback_topics
from sparklag_schemas.text.formatting import span, waiting
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_history import QueryHistory, UsualTimes
from sparklag_service.evaluation.rates import Headroom
from sparklag_service.evaluation.topic_measure import NO_BATCH, NOT_READ
from sparklag_service.evaluation.trends import Verdict
from sparklag_service.tracking.query_state import QueryState

# From good to bad: a query is as bad as its worst partition.
_SEVERITY: Final[tuple[Status, ...]] = (
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
_RANK: Final[dict[str, int]] = {status: rank for rank, status in enumerate(_SEVERITY)}
_DRIVER_ENDS: Final = {
    "stopped": "the driver stopped Spark",
    "exited": "the driver process exited",
    "interrupted": "the driver was interrupted: Ctrl-C, a signal, or all jobs were cancelled",
}
_CLOSED: Final = "no longer observed: the handle was closed; the position may be out of date"
FEEDBACK: Final = (
    "a topic of sparklag's own, to which each batch adds records: list the query's topics, or"
    " exclude this one from subscribePattern"
)
_OVERDUE_PAUSES: Final = 3
_MIN_OVERDUE_S: Final = 30.0
_SHARE_GROUP: Final = "a share group has no position: the broker hands out records one by one"
_CHECKPOINT_S: Final = 30.0
"""The time to plan a batch in real-time mode, end it, write its checkpoint and report it."""
_NO_PARTITION: Final = "the query reads no partition"


@dataclass(frozen=True)
class Evidence:
    """The input of the rules: the query, its history and its lag at one time."""

    state: QueryState
    history: QueryHistory
    thresholds: Thresholds
    measure_time: MeasureTime
    total_lag: int | None
    max_time_lag_s: float | None
    headroom: Headroom
    alarm_age_s: float
    """The age that records must have before a trend is an alarm."""
    transactions: Sequence[OpenTransaction]
    """Those that the query's partitions wait for."""
    gets_better: bool
    """True: the lag falls, or will be gone before its records are old, or may be so: after a
    hand-over rates are not known yet."""
    silent: bool
    """See `Evaluator.evaluate`."""
    home: str
    """Alias of the cluster of `own_topics`, the topics of sparklag."""
    own_topics: frozenset[str]
    is_window_judged: bool
    """True: Burrow's own rules have evaluated the group's past."""


Rule = Callable[[Evidence], Verdict | None]


def query_status(
    evidence: Evidence, partitions: Sequence[PartitionLag], unmeasured: Sequence[Verdict]
) -> Verdict:
    """The status of the query. `unmeasured`: the verdicts on topics without partitions."""
    for rule in _WITHOUT_LAG:
        overriding = rule(evidence)
        if overriding is not None:
            return overriding
    has_position = evidence.state.has_position
    candidates: list[PartitionLag | Verdict] = [
        verdict for verdict in unmeasured if verdict.reason not in (NO_BATCH, NOT_READ)
    ]
    rules = _OF_LAG if evidence.is_window_judged else (*_OF_LAG, *_OF_THE_PAST)
    if is_between_checkpoints(evidence):
        rules = (feedback, short_headroom)
    candidates += [verdict for rule in rules if (verdict := rule(evidence)) is not None]
    candidates += [
        partition
        for partition in partitions
        if (
            partition.reason is not None
            if has_position
            else partition.status not in ("OK", "UNKNOWN")
        )
    ]
    if not candidates:
        is_read = bool(partitions) and not unmeasured and all(p.lag == 0 for p in partitions)
        if not has_position and not is_read:
            is_first = evidence.state.batch_id is None
            waits = NO_BATCH if is_first else NOT_READ
            return Verdict("UNKNOWN", next((p.reason for p in partitions if p.lag), waits))
        return Verdict("OK", None) if partitions else Verdict("UNKNOWN", _NO_PARTITION)
    worst = max(candidates, key=lambda candidate: _RANK[candidate.status])
    if isinstance(worst, Verdict):
        return worst
    same = sum(p.status == worst.status and p.reason is not None for p in partitions)
    # A partition measured by this version has one of its statuses.
    status = cast(Status, worst.status)
    return Verdict(status, f"{same} of {len(partitions)} partitions: {worst.reason}")


def is_between_checkpoints(evidence: Evidence) -> bool:
    """True: real-time mode, and the first record may be delivered: its offset is written to the
    checkpoint at the end of the trigger's interval."""
    interval_s, oldest_s = evidence.state.trigger_interval_s, evidence.max_time_lag_s
    if evidence.state.mode != "real-time" or interval_s is None or oldest_s is None:
        return False
    return oldest_s <= interval_s + _CHECKPOINT_S


def failed(evidence: Evidence) -> Verdict | None:
    """FAILED: Spark's `QueryTerminatedEvent.exception`, or the exception of the driver's exit."""
    state = evidence.state
    if state.exception is None:
        return None
    first_line = state.exception.strip().partition("\n")[0].rstrip()
    what = "the driver failed" if state.driver_end == "exited" else "the query failed"
    return Verdict("FAILED", f"{what}: {first_line or 'no error message'}")


def share_group(evidence: Evidence) -> Verdict | None:
    """UNKNOWN: its brokers hand out single records, so no offset is the group's position."""
    group = evidence.state.group
    return None if group is None or group.has_position else Verdict("UNKNOWN", _SHARE_GROUP)


def finished(evidence: Evidence) -> Verdict | None:
    """FINISHED: Spark's `QueryTerminatedEvent` without an exception; a group that was deleted.
    WARN: the query runs again and again, and its next run is overdue or its lag is over a limit."""
    state = evidence.state
    if not state.ended:
        return None
    if state.runs is not None and state.runs.recur:
        for rule in (run_overdue, short_headroom, beyond_max_lag, beyond_max_time_lag):
            if (over := rule(evidence)) is not None:
                return over
    ended = traits_of(state.origin).ended_reason
    if state.ends_by_itself:
        ended = "the query ended by itself, or was stopped"
    return Verdict("FINISHED", _DRIVER_ENDS.get(state.driver_end or "", ended))


def run_overdue(evidence: Evidence) -> Verdict | None:
    """WARN: there are records to read, and the next run did not start for three times the usual
    pause between runs, and `_MIN_OVERDUE_S`."""
    runs, history, now_ms = evidence.state.runs, evidence.history, evidence.measure_time.now_ms
    if runs is None or (history.behind_since_s is None and evidence.total_lag is not None):
        return None
    pairs = list(pairwise(runs.finished))
    pause_s = median(run.started_at - before.ended_at for before, run in pairs) / 1000
    away_s = (now_ms - runs.reported_at) / 1000
    if away_s <= max(_OVERDUE_PAUSES * pause_s, _MIN_OVERDUE_S):
        return None
    every_s = median(run.ended_at - before.ended_at for before, run in pairs) / 1000
    reason = f"has not run for {span(away_s)}, usually every {span(every_s)}"
    if evidence.total_lag is not None:
        reason += f"; lag is {evidence.total_lag:,} records"
    if (loss_at_ms := evidence.headroom.loss_expected_at_ms) is not None:
        left_s = max(0.0, (loss_at_ms - now_ms) / 1000)
        reason += f"; retention deletes unread records in {span(left_s)}"
    return Verdict("WARN", reason)


def closed(evidence: Evidence) -> Verdict | None:
    """UNKNOWN: the handle was closed, and the driver continues."""
    return Verdict("UNKNOWN", _CLOSED) if evidence.state.driver_end == "closed" else None


def silent(evidence: Evidence) -> Verdict | None:
    """STOP: the driver sent no message for longer than a living driver pauses. UNKNOWN: without a
    driver, the checkpoint or group could not be read for that long."""
    if not evidence.silent:
        return None
    if evidence.state.run_id is None:
        store = traits_of(evidence.state.origin).position_store
        reason = f"cannot read its {store}: the position may be out of date"
        return Verdict("UNKNOWN", reason)
    return Verdict("STOP", "the driver stopped reporting: it died or cannot reach Kafka")


def conflict(evidence: Evidence) -> Verdict | None:
    """CONFLICT: two runs of one checkpoint report, which Spark does not allow."""
    state = evidence.state
    if state.other_run_id is None:
        return None
    where = f" at {state.checkpoint_location}" if state.checkpoint_location is not None else ""
    return Verdict(
        "CONFLICT",
        f"two drivers share one checkpoint{where}:"
        f" run {state.run_id} and run {state.other_run_id} are both active",
    )


def feedback(evidence: Evidence) -> Verdict | None:
    """WARN: the query reads a topic of sparklag without naming it, so each batch adds records to
    it. A consumer group adds none."""
    state = evidence.state
    if traits_of(state.origin).commits_offsets:
        return None
    for source in state.sources:
        if source.cluster == evidence.home:
            for topic in feedback_topics(
                evidence.own_topics, source.topics, source.watched_topics()
            ):
                reason = f"never catches up: the query also reads {topic}, {FEEDBACK}"
                return Verdict("WARN", reason)
    return None


def short_headroom(evidence: Evidence) -> Verdict | None:
    """WARN: retention reaches unread records in less than `min_headroom_s`."""
    if evidence.headroom.loss_expected_at_ms is None:
        return None
    left_s = (evidence.headroom.loss_expected_at_ms - evidence.measure_time.now_ms) / 1000
    if left_s > evidence.thresholds.min_headroom_s:
        return None
    return Verdict("WARN", f"retention deletes unread records in {span(left_s)}")


def beyond_max_lag(evidence: Evidence) -> Verdict | None:
    """WARN: the lag is more than `max_lag` records."""
    allowed, lag = evidence.thresholds.max_lag, evidence.total_lag or 0
    if allowed is None or lag <= allowed:
        return None
    return Verdict("WARN", f"lag is {lag:,} records, {allowed:,} are allowed")


def beyond_max_time_lag(evidence: Evidence) -> Verdict | None:
    """WARN: an unread record is older than `max_time_lag_s`."""
    allowed_s, time_lag_s = evidence.thresholds.max_time_lag_s, evidence.max_time_lag_s or 0
    if allowed_s is None or time_lag_s <= allowed_s:
        return None
    reason = f"time lag is {span(time_lag_s)}, {span(allowed_s)} is allowed"
    return Verdict("WARN", reason)


def waits_for_transaction(evidence: Evidence) -> Verdict | None:
    """WARN: records have waited behind an open transaction for longer than `max_time_lag_s`; where
    that is not set, than `stall_after_s`."""
    if not evidence.transactions:
        return None
    thresholds, now_ms = evidence.thresholds, evidence.measure_time.now_ms
    allowed_s = thresholds.max_time_lag_s
    allowed_s = thresholds.stall_after_s if allowed_s is None else allowed_s
    since_ms = min(transaction.since for transaction in evidence.transactions)
    if now_ms - since_ms <= allowed_s * 1000:
        return None
    records = sum(transaction.records for transaction in evidence.transactions)
    return Verdict("WARN", waiting(records, since_ms, now_ms))


def stalled(evidence: Evidence) -> Verdict | None:
    """STALL or STOP, Burrow's rule 2: nothing is completed for much longer than usual.

    A query with a live driver is STALL; without a driver it is STOP, like an ended one. A group may
    have no commit since its first read. The usual times are known after two batches; a query
    without a driver is STOP without them, and a group with members is STALL.
    """
    state, thresholds, usual = evidence.state, evidence.thresholds, evidence.history.usual
    since_s, traits = evidence.history.stalled_since_s(), traits_of(state.origin)
    real_time_s = _real_time_s(state)
    is_usual_known = usual.interval_s is not None or usual.batch_s is not None or real_time_s > 0
    if since_s is None or not (is_usual_known or state.run_id is None):
        return None
    stalled_s = evidence.history.at_s - since_s
    usual_s = max(usual.longest_s, real_time_s)
    least_s = patience_s(state, usual, thresholds)
    if stalled_s <= max(thresholds.stall_factor * usual_s, least_s):
        return None
    times = []
    if usual.batch_s is not None:
        times.append(f"up to {span(usual.batch_s)}")
    if usual.interval_s is not None:
        times.append(f"one every {span(usual.interval_s)}")
    reason = f"no {traits.step} for {span(stalled_s)}"
    if times:
        reason += f" (usually {', '.join(times)})"
    if evidence.total_lag is not None:
        reason += f"; lag is {evidence.total_lag:,} records"
    is_alive = state.run_id is not None or (state.has_members and not is_usual_known)
    return Verdict("STALL" if is_alive else "STOP", reason)


def patience_s(state: QueryState, usual: UsualTimes, thresholds: Thresholds) -> float:
    """The least time without progress for an alarm. Kafka removes members that do not poll, so a
    group with members may commit rarely as long as its usual interval is not known."""
    if not state.has_members or usual.interval_s is not None:
        return thresholds.stall_after_s
    return thresholds.window * thresholds.stall_after_s


def running_batch_hangs(evidence: Evidence) -> Verdict | None:
    """STALL: no task of the running batch, by Spark's status store, made progress for longer than
    `stall_after_s`, and for longer than `stall_factor` times its usual task or batch. The rule also
    applies to a query's first batch."""
    batch, thresholds = evidence.state.running_batch, evidence.thresholds
    if batch is None:
        return None
    stuck_s = (batch.observed_at - batch.progressed_at) / 1000
    usual_batch_s = evidence.history.usual.batch_s or 0.0
    usual_s = max(batch.mean_task_s or 0.0, usual_batch_s, _real_time_s(evidence.state))
    if stuck_s <= max(thresholds.stall_after_s, thresholds.stall_factor * usual_s):
        return None
    number = "the next batch" if batch.batch_id is None else f"batch {batch.batch_id}"
    runs_s = max(0, batch.observed_at - batch.started_at) / 1000
    return Verdict("STALL", f"{number} has run for {span(runs_s)}: {_hang(batch, stuck_s)}")


def _real_time_s(state: QueryState) -> float:
    """How long a batch takes in real-time mode: its tasks run until the end of the interval. 0 in
    another mode."""
    return (state.trigger_interval_s or 0.0) if state.mode == "real-time" else 0.0


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


def lag_grows(evidence: Evidence) -> Verdict | None:
    """WARN, Burrow's rule 6 on the whole query: the lag grew throughout the window of commits, and
    records are older than the usual times explain."""
    rise, lag = evidence.history.rise, evidence.total_lag
    if rise is None or lag is None or evidence.gets_better:
        return None
    old_enough = (evidence.max_time_lag_s or 0) > evidence.alarm_age_s
    if not old_enough or not rise.is_trend(evidence.thresholds):
        return None
    return Verdict("WARN", rise.reason(lag, evidence.measure_time.now_ms))


def without_evidence(evidence: Evidence) -> Verdict | None:
    """UNKNOWN: records wait, and nothing shows that the query reads them: it completed nothing for
    long, and how often it usually does is not known."""
    state, history, lag = evidence.state, evidence.history, evidence.total_lag
    if not lag or history.usual.interval_s is not None:
        return None
    step, since_s, reason = traits_of(state.origin).step, None, ""
    if history.has_evidence:
        since_s = history.stalled_since_s()
    elif history.commits:
        last_s = history.commits[-1].at_s
        since_s = max(last_s, history.idle_s or last_s)
    if since_s is not None:
        batch_s = (state.batch.duration_ms or 0) / 1000 if state.batch is not None else 0.0
        usual_s = max(batch_s, state.trigger_interval_s or 0.0)
        waited_s, thresholds = history.at_s - since_s, evidence.thresholds
        if waited_s <= max(thresholds.stall_after_s, thresholds.stall_factor * usual_s):
            return None
        reason = f" for {span(waited_s)}, and its usual interval is not known yet"
    return Verdict("UNKNOWN", f"no {step} observed{reason or ' yet'}; lag is {lag:,} records")


_WITHOUT_LAG: Final[tuple[Rule, ...]] = (failed, finished, closed, silent, conflict, share_group)
_OF_LAG: Final[tuple[Rule, ...]] = (
    feedback,
    short_headroom,
    beyond_max_lag,
    beyond_max_time_lag,
    waits_for_transaction,
)
_OF_THE_PAST: Final[tuple[Rule, ...]] = (stalled, running_batch_hangs, lag_grows, without_evidence)
