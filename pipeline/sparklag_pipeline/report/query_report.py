"""What the report says of each query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklag_pipeline.report.capacity import HOUR_MS, Capacity, capacity
from sparklag_pipeline.report.episodes import Episode, episodes
from sparklag_pipeline.report.trends import Trend, trend
from sparklag_pipeline.report.windows import RolledWindow, WorstPartition
from sparklag_schemas.printable import printable

MINUTE_MS: Final = 60_000
WORST_SHOWN: Final = 5

# Of a window's time: how much lies at or below its p50, between that and p95, and so on.
_SHARES: Final = (0.50, 0.45, 0.04, 0.01)
_MARKS: Final = (0.50, 0.95, 0.99)


@dataclass(frozen=True)
class Spread:
    """Of a number over time: for that share of the time it was at most so high.

    Put together from minutes, of which p50, p95, p99 and the maximum are known: each is an upper
    bound, and no farther off than those of single minutes lie apart. `max` is exact.
    """

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class QueryReport:
    """One query over the time that was asked for. What is not known is None."""

    cluster: str
    query_id: str
    query: str | None
    known_s: float
    within_target_s: float
    episodes: tuple[Episode, ...]
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
    def share_within_target(self) -> float | None:
        """Of the time in which the lag was known, 0 to 1."""
        return self.within_target_s / self.known_s if self.known_s > 0 else None

    @property
    def longest(self) -> Episode | None:
        """The longest episode."""
        return max(self.episodes, key=lambda episode: episode.duration_s, default=None)

    @property
    def display_name(self) -> str:
        """The query's name, or its id where it has none, on one line."""
        return printable(self.query or self.query_id)


def query_reports(
    minutes: Iterable[RolledWindow], hours: Iterable[RolledWindow]
) -> list[QueryReport]:
    """One for each query, the worst first: by the share of time within target, then by the age."""
    by_minute, by_hour = _by_query(minutes), _by_query(hours)
    found = [_report(rows, by_hour.get(key, [])) for key, rows in by_minute.items()]
    return sorted(found, key=_badness)


def _badness(report: QueryReport) -> tuple[float, float, float, str]:
    share = report.share_within_target
    age = report.time_lag_s.p95 if report.time_lag_s else -1.0
    lag = report.lag.p95 if report.lag else -1.0
    # One that is not known comes after those that are bad, before those that are well.
    return (1.0 if share is None else share, -age, -lag, report.display_name)


def _by_query(windows: Iterable[RolledWindow]) -> dict[tuple[str, str], list[RolledWindow]]:
    found: dict[tuple[str, str], list[RolledWindow]] = defaultdict(list)
    for window in windows:
        found[window.key].append(window)
    for rows in found.values():
        rows.sort(key=lambda window: window.start_ms)
    return found


def _report(minutes: Sequence[RolledWindow], hours: Sequence[RolledWindow]) -> QueryReport:
    newest = minutes[-1]
    p95_of_hours = [
        (hour.start_ms / HOUR_MS, hour.lag[1]) for hour in hours if hour.lag is not None
    ]
    return QueryReport(
        cluster=newest.cluster,
        query_id=newest.query_id,
        query=newest.query,
        known_s=sum(window.known_s for window in minutes),
        within_target_s=sum(window.within_target_s for window in minutes),
        episodes=tuple(episodes(minutes, MINUTE_MS)),
        lag=spread([(window.lag, window.known_s) for window in minutes]),
        time_lag_s=spread([(window.time_lag_s, window.known_s) for window in minutes]),
        produced=_sum(window.produced for window in minutes),
        processed=_sum(window.processed for window in minutes),
        worst=_worst(minutes),
        trend=trend(p95_of_hours),
        capacity=capacity(hours),
        minutes=tuple(minutes),
    )


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
    found: list[float] = []
    so_far = 0.0
    for value, mass in masses:
        so_far += mass
        while len(found) < len(_MARKS) and so_far >= _MARKS[len(found)] * whole * (1 - 1e-9):
            found.append(value)
    p50, p95, p99 = found
    return Spread(p50, p95, p99, masses[-1][0])


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _worst(minutes: Iterable[RolledWindow]) -> tuple[WorstPartition, ...]:
    found: dict[tuple[int, str, int], WorstPartition] = {}
    for window in minutes:
        for one in window.worst:
            place = (one.source, one.topic, one.partition)
            before = found.get(place)
            ages = [
                each.max_time_lag_s
                for each in (one, before)
                if each is not None and each.max_time_lag_s is not None
            ]
            lags = [each.max_lag for each in (one, before) if each is not None]
            found[place] = WorstPartition(*place, max(lags), max(ages, default=None))
    ranked = sorted(found.values(), key=lambda one: (-one.max_lag, one.topic, one.partition))
    return tuple(ranked[:WORST_SHOWN])
