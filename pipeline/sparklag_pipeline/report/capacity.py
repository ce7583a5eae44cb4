"""How near what comes is to what a query can do, and when it passes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from sparklag_pipeline.report.trends import FEWEST_POINTS, trend
from sparklag_pipeline.report.windows import RolledWindow

HOUR_MS: Final = 3_600_000
_NEAR: Final = 0.03
FARTHEST_DAYS: Final = 365
"""A date beyond says more than such a line knows."""


@dataclass(frozen=True)
class Capacity:
    """Rates in records a second. `reason` says why `passed_at_ms` is None."""

    peak_input_rate: float | None = None
    """Highest hour's 95th percentile of what came."""
    batch_rate: float | None = None
    """What it can do: the median of the hours' `batch_rate`."""
    utilisation: float | None = None
    """The one by the other."""
    passed_at_ms: int | None = None
    """When what comes is expected to pass what it can do, epoch milliseconds."""
    reason: str | None = None


def capacity(hours: Sequence[RolledWindow]) -> Capacity:
    """Of one query's hours, in order. The peaks of days are not told apart from those of nights:
    every hour is a point, and the line through them is Theil and Sen's (see `trends`)."""
    inputs = [(hour.start_ms, hour.input_rate) for hour in hours if hour.input_rate is not None]
    can = [hour.batch_rate for hour in hours if hour.batch_rate is not None]
    if not inputs:
        return Capacity(reason="no whole hour in which the input rate was known")
    peak = max(rate for _, rate in inputs)
    if not can or median(can) <= 0:
        return Capacity(peak, reason="what it can do is not known: no batch rate")
    batch_rate = median(can)
    if _is_always_busy(hours):
        return Capacity(
            peak,
            reason="its batches follow each other without a pause and do what comes: what it can do"
            " beyond that does not show",
        )
    used = Capacity(peak, batch_rate, peak / batch_rate)
    at_ms, reason = _passed_at(inputs, batch_rate)
    return Capacity(peak, batch_rate, used.utilisation, at_ms, reason)


def _is_always_busy(hours: Sequence[RolledWindow]) -> bool:
    """Without a pause between batches the rate within them is that of what comes, however much
    more the query could do."""
    ratios = [
        hour.batch_rate / hour.input_rate
        for hour in hours
        if hour.batch_rate is not None and hour.input_rate
    ]
    return bool(ratios) and abs(median(ratios) - 1) <= _NEAR


def _passed_at(
    inputs: Sequence[tuple[int, float]], batch_rate: float
) -> tuple[int | None, str | None]:
    end_ms = inputs[-1][0] + HOUR_MS
    found = trend([((at_ms - end_ms) / HOUR_MS, rate) for at_ms, rate in inputs])
    if found is None:
        return None, f"{len(inputs)} hours are known: it takes {FEWEST_POINTS}"
    if found.at(0) >= batch_rate:
        return end_ms, None
    if found.direction != "rising":
        return None, f"the input rate is {found.direction}"
    hours = (batch_rate - found.at(0)) / found.slope
    if hours > FARTHEST_DAYS * 24:
        return None, f"not within {FARTHEST_DAYS} days at this slope"
    return end_ms + round(hours * HOUR_MS), None
