"""The answer of `GET /lag/{query}/history`, from rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from sparklag_schemas import Status
from sparklag_service.history.grain import Grain
from sparklag_service.history.query_params import MOST_POINTS, Question
from sparklag_service.history.rows import Row, in_known_digits


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """A step of time in which the query was measured. One in which it was not has no point."""

    at: Annotated[int, Meta(description="Begin of the step, epoch milliseconds.")]
    measured_at: Annotated[
        int, Meta(description="When it was measured last in the step, epoch milliseconds.")
    ]
    total_lag: Annotated[
        int | None, Meta(description="Then, records. Null: not known, as in the event.")
    ]
    max_total_lag: Annotated[int | None, Meta(description="Highest in the step, records.")]
    max_time_lag_s: Annotated[
        float | None, Meta(description="Highest age of the first unprocessed record, seconds.")
    ]
    input_rate: Annotated[float | None, Meta(description="At `measured_at`, offsets per second.")]
    processed_rate: Annotated[
        float | None, Meta(description="At `measured_at`, offsets per second.")
    ]
    status: Annotated[Status, Meta(description="At `measured_at`.")]
    statuses: Annotated[list[Status], Meta(description="All that it had in the step.")]


class HistoryPage(Struct, frozen=True, kw_only=True):
    """A query's totals over time."""

    query_id: Annotated[str, Meta(description="Spark's query id.")]
    query: Annotated[str | None, Meta(description="Its name. Null where it has none.")]
    since: Annotated[int, Meta(description="Begin of the first step, epoch milliseconds.")]
    until: Annotated[int, Meta(description="End of the last step, epoch milliseconds.")]
    step_s: Annotated[
        float,
        Meta(
            description="Length of a step, seconds. At least what was asked for: what is older is"
            " kept coarser, and an answer has 1,000 points at most."
        ),
    ]
    complete_since: Annotated[
        int,
        Meta(
            description="Since when every event is in it, epoch milliseconds. What is older is not"
            " read again yet, or was compacted away."
        ),
    ]
    reason: Annotated[str | None, Meta(description="Why there is no history, where there is none.")]
    points: Annotated[list[HistoryPoint], Meta(description="From the oldest on.")]


def step_ms(asked: Question, grain: Grain, now_ms: int) -> int:
    """A whole number of the widest slots in it, so that each is in one step."""
    width_ms = grain.width_ms(min(max(now_ms - asked.since_ms, 0), grain.keep_ms))
    least_ms = max(asked.step_ms, -(-(asked.until_ms - asked.since_ms) // (MOST_POINTS - 1)))
    return -(-least_ms // width_ms) * width_ms


def points(rows: Sequence[Row], since_ms: int, until_ms: int, step_ms: int) -> list[HistoryPoint]:
    """One for each step that has rows. `rows` from the oldest on."""
    found: list[HistoryPoint] = []
    joined: Row | None = None
    begin_ms = 0
    for row in rows:
        if not since_ms <= row.measured_at_ms < until_ms:
            continue
        if joined is not None and row.measured_at_ms < begin_ms + step_ms:
            joined = joined.joined(row)
            continue
        if joined is not None:
            found.append(_point(begin_ms, joined))
        joined, begin_ms = row, row.measured_at_ms // step_ms * step_ms
    if joined is not None:
        found.append(_point(begin_ms, joined))
    return found


def _point(at_ms: int, row: Row) -> HistoryPoint:
    return HistoryPoint(
        at=at_ms,
        measured_at=row.measured_at_ms,
        total_lag=row.total_lag,
        max_total_lag=row.max_total_lag,
        max_time_lag_s=in_known_digits(row.max_time_lag_s),
        input_rate=in_known_digits(row.input_rate),
        processed_rate=in_known_digits(row.processed_rate),
        status=row.status,
        statuses=row.statuses,
    )
