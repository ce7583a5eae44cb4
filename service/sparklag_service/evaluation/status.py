"""The status of a query, and why, in numbers. Pure.

Burrow's rules, for batches instead of commits (docs/adr/0009): what a partition's past says is in
`Trends`; here is what the whole query's says, and which of all is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparklag_schemas import PartitionLag, Status, Thresholds
from sparklag_schemas.formatting import span
from sparklag_schemas.origins import traits_of
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.finding import Finding
from sparklag_service.evaluation.headroom import Headroom
from sparklag_service.evaluation.query_history import QueryHistory
from sparklag_service.evaluation.topic_measure import NO_BATCH
from sparklag_service.tracking.query_state import QueryState

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
_NO_PARTITION = "there is no partition that it reads"


def query_status(
    state: QueryState,
    partitions: Sequence[PartitionLag],
    unread: Sequence[Finding],
    past: Sequence[Finding],
    *,
    silent: bool,
) -> Finding:
    """`unread`: topics of which nothing is known. `past`: see `past_findings`."""
    beyond = _beyond_lag(state, silent=silent)
    if beyond is not None:
        return beyond
    telling: list[PartitionLag | Finding] = [one for one in unread if one.reason != NO_BATCH]
    telling += past
    if not state.has_position:
        telling += [one for one in partitions if one.status not in ("OK", "UNKNOWN")]
        if not telling:
            return Finding("UNKNOWN", NO_BATCH)
    else:
        telling += [one for one in partitions if one.reason is not None]
    if not telling:
        return Finding("OK", None) if partitions else Finding("UNKNOWN", _NO_PARTITION)
    worst = max(telling, key=lambda one: _RANK[one.status])
    if isinstance(worst, Finding):
        return worst
    alike = sum(one.status == worst.status and one.reason is not None for one in partitions)
    status = _SEVERITY[_RANK[worst.status]]
    return Finding(status, f"{alike} of {len(partitions)} partitions: {worst.reason}")


def past_findings(
    state: QueryState,
    course: QueryHistory,
    thresholds: Thresholds,
    moment: Moment,
    *,
    total_lag: int | None,
    max_time_lag_s: float | None,
    room: Headroom,
) -> Iterator[Finding]:
    """What the past of the whole query says, and what the thresholds do; the worst first."""
    standing = _standing(state, course, thresholds, total_lag)
    if standing is not None:
        yield standing
    if room.loss_expected_at_ms is not None:
        left_s = (room.loss_expected_at_ms - moment.now_ms) / 1000
        if left_s <= thresholds.min_headroom_s:
            yield Finding("WARN", f"retention deletes unread records in {span(left_s)}")
    if thresholds.max_lag is not None and (total_lag or 0) > thresholds.max_lag:
        yield Finding("WARN", f"lag is {total_lag:,} records, {thresholds.max_lag:,} are allowed")
    allowed_s = thresholds.max_time_lag_s
    if allowed_s is not None and (max_time_lag_s or 0) > allowed_s:
        oldest = span(max_time_lag_s or 0)
        yield Finding("WARN", f"an unread record is {oldest} old, {span(allowed_s)} is allowed")
    if course.flag is not None:
        yield course.flag


def _beyond_lag(state: QueryState, *, silent: bool) -> Finding | None:
    """What makes lag a side issue."""
    if state.exception is not None:
        first_line = state.exception.strip().partition("\n")[0].rstrip()
        return Finding("FAILED", f"the query failed: {first_line or 'it did not say why'}")
    if state.ended:
        return Finding("FINISHED", traits_of(state.origin).ended_reason)
    if silent and state.run_id is None:
        where = traits_of(state.origin).position_store
        reason = f"its {where} cannot be read: it is where it was, or farther"
        return Finding("UNKNOWN", reason)
    if silent:
        reason = "nothing is heard of it: its driver is gone, or cannot reach Kafka"
        return Finding("STOP", reason)
    if state.other_run_id is not None:
        where = f" at {state.checkpoint_location}" if state.checkpoint_location is not None else ""
        return Finding(
            "CONFLICT",
            f"run {state.other_run_id} of this query goes on beside run {state.run_id}:"
            f" two drivers share one checkpoint{where}",
        )
    return None


def _standing(
    state: QueryState, course: QueryHistory, thresholds: Thresholds, total_lag: int | None
) -> Finding | None:
    """Burrow's rule 2: nothing is completed for much longer than usual.

    A driver that lives and does not get on stalls. Without one, its end cannot be told from that.
    """
    since_s, usual = course.stands_since_s(), course.usual
    if since_s is None or (usual.interval_s is None and usual.batch_s is None):
        return None
    stands_s = course.at_s - since_s
    factor = thresholds.stall_factor
    usual_s = max(usual.interval_s or 0.0, usual.batch_s or 0.0)
    if stands_s <= max(factor * usual_s, thresholds.stall_after_s):
        return None
    told = f"no {traits_of(state.origin).step} for {span(stands_s)}"
    if usual.interval_s is not None:
        told += f", usually one each {span(usual.interval_s)}"
    if usual.batch_s is not None:
        told += f" that takes up to {span(usual.batch_s)}"
    if total_lag is not None:
        told += f"; {total_lag:,} records wait"
    return Finding("STALL" if state.run_id is not None else "STOP", told)
