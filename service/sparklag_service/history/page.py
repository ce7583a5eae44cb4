"""`GET /lag/{query}/history`: its parameters, and its response from rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from sparklag_schemas import Status
from sparklag_schemas.timestamps import duration_s, timestamp_ms
from sparklag_service.history.rows import Change, Resolution, Row, significant

_MAX_POINTS: Final = 1_000
_DEFAULT_POINTS: Final = 300
_DEFAULT_RANGE_MS: Final = 3_600_000

_Number = TypeVar("_Number", int, float)


class TimeRange(NamedTuple):
    """The time from `since_ms` up to but not including `until_ms`, in steps of about `step_ms`."""

    since_ms: int
    until_ms: int
    step_ms: int

    def aligned(self, resolution: Resolution, now_ms: int) -> TimeRange:
        """The range in whole steps. A step is a multiple of the widest slot in the range."""
        oldest_ms = min(max(now_ms - self.since_ms, 0), resolution.keep_ms)
        width_ms = resolution.width_ms(oldest_ms)
        least_ms = max(self.step_ms, -(-(self.until_ms - self.since_ms) // (_MAX_POINTS - 1)))
        step_ms = -(-least_ms // width_ms) * width_ms
        since_ms = self.since_ms // step_ms * step_ms
        return TimeRange(since_ms, -(-self.until_ms // step_ms) * step_ms, step_ms)


def time_range(since: str | None, until: str | None, step: str | None, now_ms: int) -> TimeRange:
    """Parse parameters; the default is the last hour. Raises ValueError with the parameter."""
    until_ms = now_ms + 1 if until is None else _parsed("until", timestamp_ms, until, now_ms)
    since_ms = until_ms - _DEFAULT_RANGE_MS
    if since is not None:
        since_ms = _parsed("since", timestamp_ms, since, now_ms)
    if since_ms >= until_ms:
        raise ValueError("since: it is not before `until`")
    step_ms = (until_ms - since_ms) // _DEFAULT_POINTS
    if step is not None:
        step_ms = round(_parsed("step", duration_s, step) * 1000)
    return TimeRange(since_ms, until_ms, max(step_ms, 1))


def _parsed(parameter: str, parse: Callable[..., _Number], *arguments: object) -> _Number:
    try:
        return parse(*arguments)
    except ValueError as error:
        raise ValueError(f"{parameter}: {error}") from None


class HistoryBatch(Struct, frozen=True, kw_only=True):
    """A completed batch and its phases. `duration_ms` is the whole trigger: what the three phases
    leave of it is Spark's own time, or a phase of another name."""

    duration_ms: int
    """The whole trigger, milliseconds."""
    planning_ms: int
    """Spark's `latestOffset`, `getBatch` and `queryPlanning` (of old ones also `setOffsetRange`,
    `getOffset`), milliseconds."""
    processing_ms: int
    """Spark's `addBatch`, milliseconds."""
    commit_ms: int
    """Spark's `walCommit`, `commitOffsets` and `commitBatch`, milliseconds."""


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """A step of time in which the query was measured. Other steps have no point."""

    at: int
    """Start of the step, epoch milliseconds."""
    measured_at: int
    """When it was measured last in the step, epoch milliseconds."""
    total_lag: int | None
    """Then, records. Null: unknown, as in the event."""
    max_total_lag: int | None
    """Highest in the step, records."""
    max_time_lag_s: float | None
    """Highest age of the first unprocessed record, seconds."""
    input_rate: float | None
    """At `measured_at`, offsets per second."""
    processed_rate: float | None
    """At `measured_at`, offsets per second."""
    status: Status
    """At `measured_at`."""
    batch: HistoryBatch | None
    """The last batch completed in the step. Null: none was, or Spark does not report its duration.
    """


class HistoryChange(Struct, frozen=True, kw_only=True):
    """A query's status changed, or a run of it began."""

    at: int
    """When, epoch milliseconds: for a status, the event's `status_since`."""
    status: Status | None
    """The status from then on. Null: a run began."""
    before: Status | None
    """The status before. Null: not known."""


class HistoryPage(Struct, frozen=True, kw_only=True):
    """A query's totals over time."""

    query_id: str
    """Spark's query id."""
    query: str | None
    """Its name. Null where it has none."""
    since: int
    """Start of the first step, epoch milliseconds."""
    until: int
    """End of the last step, epoch milliseconds."""
    step_s: float
    """Length of a step, seconds. At least the requested one: older rows are coarser, and a response
    has 1,000 points at most."""
    complete_since: int
    """Since when every event is in it, epoch milliseconds. Older events are not read again yet, or
    were compacted away."""
    reason: str | None
    """Why there is no history, where there is none."""
    points: list[HistoryPoint]
    """From the oldest on."""
    changes: list[HistoryChange]
    """From the oldest on: of a query, the last 48 are stored."""


def changes(stored: Sequence[Change], wanted: TimeRange) -> list[HistoryChange]:
    """The changes in the range. `stored`: oldest first."""
    listed: list[HistoryChange] = []
    before: Status | None = None
    for at_ms, status in stored:
        if wanted.since_ms <= at_ms < wanted.until_ms and (status is None or status != before):
            listed.append(HistoryChange(at=at_ms, status=status, before=before))
        before = status or before
    return listed


def points(rows: Sequence[Row], wanted: TimeRange) -> list[HistoryPoint]:
    """A point for each step with rows. `rows`: oldest first; `wanted`: aligned."""
    by_step: dict[int, Row] = {}
    for row in rows:
        if wanted.since_ms <= row.measured_at_ms < wanted.until_ms:
            at_ms = row.measured_at_ms // wanted.step_ms * wanted.step_ms
            earlier = by_step.get(at_ms)
            by_step[at_ms] = row if earlier is None else earlier.joined(row)
    return [
        HistoryPoint(
            at=at_ms,
            measured_at=row.measured_at_ms,
            total_lag=row.total_lag,
            max_total_lag=row.max_total_lag,
            max_time_lag_s=significant(row.max_time_lag_s),
            input_rate=significant(row.input_rate),
            processed_rate=significant(row.processed_rate),
            status=row.status,
            batch=None
            if row.batch is None
            else HistoryBatch(**{name: round(ms) for name, ms in row.batch._asdict().items()}),
        )
        for at_ms, row in by_step.items()
    ]
