"""The report's figures for each query."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, Literal, TypeVar

from msgspec import Struct

from sparklag_jobs.history.rollups import RolledWindow, WorstPartition
from sparklag_schemas.text.printable import printable

MINUTE_MS: Final = 60_000
WORST_SHOWN: Final = 5

# Shares of a window's time: at or below its p50, between p50 and p95, and so on.
_SHARES: Final = (0.50, 0.45, 0.04, 0.01)
_MARKS: Final = (0.50, 0.95, 0.99)

Direction = Literal["rising", "falling", "steady"]
HOUR_MS: Final = 3_600_000
MIN_POINTS: Final = 8
"""With fewer points, the test's normal approximation is inaccurate."""
MAX_POINTS: Final = 1_000
"""All pairs of points are compared; more points are thinned to evenly spaced ones."""
SIGNIFICANCE: Final = 0.05
FARTHEST_DAYS: Final = 365
"""A later date is more than the trend can predict."""
_ALWAYS_BUSY_SHARE: Final = 0.03

_Number = TypeVar("_Number", int, float)


class Spread(Struct, frozen=True):
    """Percentiles of a number over time: for that share of the time it was at most this high.

    Combined from the p50, p95, p99 and maximum of minutes: each percentile is an upper bound, off
    by at most the distance between those of single minutes. `max` is exact.
    """

    p50: float
    p95: float
    p99: float
    max: float


class Episode(Struct, rename={"from_ms": "from", "to_ms": "to"}):
    """From the start of the first minute that missed the target to the last one's end."""

    from_ms: int
    to_ms: int
    duration_s: float
    """In whole minutes, even if only seconds of them missed the target."""
    max_lag: int | None
    max_time_lag_s: float | None


class Trend(Struct, frozen=True, rename={"slope": "records_per_hour"}):
    """Direction and slope of a series, with tau and p (two-sided) of the test."""

    direction: Direction
    slope: float
    tau: float
    p_value: float


class Capacity(Struct, frozen=True, rename={"passed_at_ms": "passed_at"}):
    """Rates in records a second. `reason` is why `passed_at_ms` is None."""

    peak_input_rate: float | None = None
    """The highest of the hours' 95th percentiles of the input."""
    batch_rate: float | None = None
    """The rate that the query can process: the median of the hours' `batch_rate`."""
    utilisation: float | None = None
    """Peak input rate divided by batch rate."""
    passed_at_ms: int | None = None
    """When the input is expected to exceed the batch rate, epoch milliseconds."""
    reason: str | None = None


class QueryReport(Struct, frozen=True, rename={"worst": "worst_partitions"}):
    """One query over the requested time. Unknown values are None."""

    cluster: str
    query_id: str
    query: str | None
    share_within_target: float | None
    """Share of the time with a known lag, 0 to 1."""
    known_s: float
    within_target_s: float
    episodes: list[Episode]
    longest_episode_s: float | None
    lag: Spread | None
    time_lag_s: Spread | None
    produced: int | None
    processed: int | None
    worst: tuple[WorstPartition, ...]
    trend: Trend | None
    """Trend of the hours' p95 of lag; the slope is records an hour."""
    capacity: Capacity
    minutes: tuple[RolledWindow, ...]
    """Sorted by time."""

    @property
    def display_name(self) -> str:
        """The query's name on one line; its id if it has no name."""
        return printable(self.query or self.query_id)


def query_reports(
    minutes: Iterable[RolledWindow], hours: Iterable[RolledWindow]
) -> list[QueryReport]:
    """Reports, the worst first: by the share of time within target, then by the age."""
    by_minute, by_hour = _by_query(minutes), _by_query(hours)
    reports = [_report(rows, by_hour.get(key, [])) for key, rows in by_minute.items()]
    return sorted(reports, key=_rank)


def _rank(report: QueryReport) -> tuple[float, float, float, str]:
    share = report.share_within_target
    age = report.time_lag_s.p95 if report.time_lag_s else -1.0
    lag = report.lag.p95 if report.lag else -1.0
    # An unknown share ranks like a share of 1.
    return (1.0 if share is None else share, -age, -lag, report.display_name)


def _by_query(windows: Iterable[RolledWindow]) -> dict[tuple[str, str], list[RolledWindow]]:
    by_query: dict[tuple[str, str], list[RolledWindow]] = defaultdict(list)
    for window in sorted(windows, key=lambda window: window.start_ms):
        by_query[window.cluster, window.query_id].append(window)
    return by_query


def _report(minutes: Sequence[RolledWindow], hours: Sequence[RolledWindow]) -> QueryReport:
    newest = minutes[-1]
    p95_of_hours = [
        (hour.start_ms / HOUR_MS, hour.lag[1]) for hour in hours if hour.lag is not None
    ]
    known_s = sum(window.known_s for window in minutes)
    within_target_s = sum(window.within_target_s for window in minutes)
    missed = episodes(minutes, MINUTE_MS)
    return QueryReport(
        cluster=newest.cluster,
        query_id=newest.query_id,
        query=newest.query,
        share_within_target=within_target_s / known_s if known_s > 0 else None,
        known_s=known_s,
        within_target_s=within_target_s,
        episodes=missed,
        longest_episode_s=max((episode.duration_s for episode in missed), default=None),
        lag=spread([(window.lag, window.known_s) for window in minutes]),
        time_lag_s=spread([(window.time_lag_s, window.known_s) for window in minutes]),
        produced=_sum(window.produced for window in minutes),
        processed=_sum(window.processed for window in minutes),
        worst=_worst(minutes),
        trend=trend(p95_of_hours),
        capacity=capacity(hours),
        minutes=tuple(minutes),
    )


def episodes(windows: Iterable[RolledWindow], step_ms: int) -> list[Episode]:
    """The windows of one query, in order, that missed the target for any time; adjacent windows are
    joined. A window without known lag ends an episode."""
    joined: list[Episode] = []
    for window in windows:
        if window.known_s <= window.within_target_s:
            continue
        if not joined or joined[-1].to_ms != window.start_ms:
            joined.append(Episode(window.start_ms, window.start_ms, 0.0, None, None))
        episode = joined[-1]
        episode.to_ms += step_ms
        episode.duration_s += step_ms / 1000
        if window.lag is not None:
            episode.max_lag = _max(episode.max_lag, round(window.lag[-1]))
        if window.time_lag_s is not None:
            episode.max_time_lag_s = _max(episode.max_time_lag_s, window.time_lag_s[-1])
    return joined


def spread(windows: Sequence[tuple[tuple[float, ...] | None, float]]) -> Spread | None:
    """Combines the (p50, p95, p99, max) of windows, each weighted by its seconds."""
    masses = sorted(
        (value, share * seconds)
        for marks, seconds in windows
        if marks is not None
        for value, share in zip(marks, _SHARES, strict=True)
    )
    whole = sum(mass for _, mass in masses)
    if whole <= 0:
        return None
    percentiles: list[float] = []
    below = 0.0
    for value, mass in masses:
        below += mass
        while len(percentiles) < len(_MARKS) and below >= _MARKS[len(percentiles)] * whole * (
            1 - 1e-9
        ):
            percentiles.append(value)
    p50, p95, p99 = percentiles
    return Spread(p50, p95, p99, masses[-1][0])


def _worst(minutes: Iterable[RolledWindow]) -> tuple[WorstPartition, ...]:
    worst: dict[tuple[int, str, int], WorstPartition] = {}
    for window in minutes:
        for partition in window.worst:
            key = (partition.source, partition.topic, partition.partition)
            previous = worst.get(key, partition)
            worst[key] = WorstPartition(
                *key,
                max(previous.max_lag, partition.max_lag),
                _max(previous.max_time_lag_s, partition.max_time_lag_s),
            )
    ranked = sorted(worst.values(), key=lambda p: (-p.max_lag, p.topic, p.partition))
    return tuple(ranked[:WORST_SHOWN])


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max(*values: _Number | None) -> _Number | None:
    return max((value for value in values if value is not None), default=None)


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The trend of (x, y) with rising x. None: too few points."""
    if len(points) < MIN_POINTS:
        return None
    if len(points) > MAX_POINTS:
        step = len(points) / MAX_POINTS
        points = [points[int(number * step)] for number in range(MAX_POINTS)]
    slopes, balance = [], 0
    for index, (x, y) in enumerate(points):
        for later_x, later_y in points[index + 1 :]:
            if later_x > x:
                slopes.append((later_y - y) / (later_x - x))
                balance += (later_y > y) - (later_y < y)
    if not slopes:
        return None
    slope = median(slopes)
    p_value = _p_value(balance, [y for _, y in points])
    direction: Direction = "steady"
    if p_value < SIGNIFICANCE and slope != 0:
        direction = "rising" if slope > 0 else "falling"
    return Trend(direction, slope, balance / len(slopes), p_value)


def _p_value(balance: int, values: Sequence[float]) -> float:
    n = len(values)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0:
        return 1.0
    # The continuity correction: the balance is an integer.
    z = max(abs(balance) - 1, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def capacity(hours: Sequence[RolledWindow]) -> Capacity:
    """The capacity from one query's hours, in order. Each hour is a point of the trend."""
    inputs = [(hour.start_ms, hour.input_rate) for hour in hours if hour.input_rate is not None]
    batch_rates = [hour.batch_rate for hour in hours if hour.batch_rate is not None]
    if not inputs:
        return Capacity(reason="no whole hour in which the input rate was known")
    peak = max(rate for _, rate in inputs)
    if not batch_rates or median(batch_rates) <= 0:
        return Capacity(peak, reason="the capacity is unknown: no batch rate")
    # Without pauses between batches, the batch rate equals the input rate, whatever the capacity.
    ratios = [
        hour.batch_rate / hour.input_rate
        for hour in hours
        if hour.batch_rate is not None and hour.input_rate
    ]
    if ratios and abs(median(ratios) - 1) <= _ALWAYS_BUSY_SHARE:
        return Capacity(
            peak,
            reason="its batches run back to back and process the whole input: its capacity"
            " beyond that is unknown",
        )
    batch_rate = median(batch_rates)
    return Capacity(peak, batch_rate, peak / batch_rate, *_passed_at(inputs, batch_rate))


def _passed_at(
    inputs: Sequence[tuple[int, float]], batch_rate: float
) -> tuple[int | None, str | None]:
    end_ms = inputs[-1][0] + HOUR_MS
    points = [((at_ms - end_ms) / HOUR_MS, rate) for at_ms, rate in inputs]
    line = trend(points)
    if line is None:
        return None, f"{len(inputs)} hours are known, {MIN_POINTS} are needed"
    rate_at_end = median(rate - line.slope * x for x, rate in points)
    if rate_at_end >= batch_rate:
        return end_ms, None
    if line.direction != "rising":
        return None, f"the input rate is {line.direction}"
    hours = (batch_rate - rate_at_end) / line.slope
    if hours > FARTHEST_DAYS * 24:
        return None, f"not within {FARTHEST_DAYS} days at this slope"
    return end_ms + round(hours * HOUR_MS), None
