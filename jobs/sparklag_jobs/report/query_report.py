"""The report's figures of each query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from sparklag_jobs.report.windows import (
    HOUR_MS,
    Capacity,
    RolledWindow,
    Trend,
    WorstPartition,
    capacity,
    trend,
)
from sparklag_schemas.text.printable import printable

MINUTE_MS: Final = 60_000
WORST_SHOWN: Final = 5

# Of a window's time: how much lies at or below its p50, between that and p95, and so on.
_SHARES: Final = (0.50, 0.45, 0.04, 0.01)
_MARKS: Final = (0.50, 0.95, 0.99)

_Number = TypeVar("_Number", int, float)


class Spread(Struct, frozen=True):
    """Of a number over time: for that share of the time it was at most so high.

    Combined from minutes, of which p50, p95, p99 and the maximum are known: each percentile is an
    upper bound, no farther off than those of single minutes are apart. `max` is exact.
    """

    p50: float
    p95: float
    p99: float
    max: float


class Episode(Struct, rename={"from_ms": "from", "to_ms": "to"}):
    """From the start of the first minute that missed to the end of the last; epoch milliseconds."""

    from_ms: int
    to_ms: int
    duration_s: float
    """In whole minutes: not how many seconds of them missed the target."""
    max_lag: int | None
    max_time_lag_s: float | None


class QueryReport(Struct, frozen=True, rename={"worst": "worst_partitions"}):
    """One query over the requested time. Unknown values are None."""

    cluster: str
    query_id: str
    query: str | None
    share_within_target: float | None
    """Of the time in which the lag was known, 0 to 1."""
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
    """Of the hours' p95 of lag; the slope is records an hour."""
    capacity: Capacity
    minutes: tuple[RolledWindow, ...]
    """In order."""

    @property
    def display_name(self) -> str:
        """The query's name, or its id where it has none, on one line."""
        return printable(self.query or self.query_id)


def query_reports(
    minutes: Iterable[RolledWindow], hours: Iterable[RolledWindow]
) -> list[QueryReport]:
    """One for each query, the worst first: by the share of time within target, then by the age."""
    by_minute, by_hour = _by_query(minutes), _by_query(hours)
    reports = [_report(rows, by_hour.get(key, [])) for key, rows in by_minute.items()]
    return sorted(reports, key=_rank)


def _rank(report: QueryReport) -> tuple[float, float, float, str]:
    share = report.share_within_target
    age = report.time_lag_s.p95 if report.time_lag_s else -1.0
    lag = report.lag.p95 if report.lag else -1.0
    # An unknown share ranks as one within target.
    return (1.0 if share is None else share, -age, -lag, report.display_name)


def _by_query(windows: Iterable[RolledWindow]) -> dict[tuple[str, str], list[RolledWindow]]:
    by_query: dict[tuple[str, str], list[RolledWindow]] = defaultdict(list)
    for window in sorted(windows, key=lambda window: window.start_ms):
        by_query[window.key].append(window)
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
    """Of one query's windows, in order: those that missed the target for any time, joined where
    one follows the other. A window in which nothing is known ends an episode."""
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
    """Of windows' (p50, p95, p99, max) and how long each counts. None where none is known."""
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
    ranked = sorted(worst.values(), key=lambda each: (-each.max_lag, each.topic, each.partition))
    return tuple(ranked[:WORST_SHOWN])


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max(*values: _Number | None) -> _Number | None:
    return max((value for value in values if value is not None), default=None)
