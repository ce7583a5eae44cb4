"""The report's figures as people read them, in a terminal and on the page. Unknown is a dash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Final

from sparklag_jobs.report.query_report import Episode, QueryReport
from sparklag_schemas.text import formatting
from sparklag_schemas.text.printable import printable

UNKNOWN: Final = "–"  # noqa: RUF001  # an en dash, as tables have it


def share(value: float | None) -> str:
    """99.95 %: rounded down, so that 100 % is all of it."""
    return _known(value, lambda known: f"{int(known * 10_000) / 100:.2f} %")


def records(value: float | None) -> str:
    """1,234; 5.6 M."""
    return _known(value, _short)


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {letter}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Records a second."""
    return _known(value, formatting.per_second)


def duration(seconds: float | None) -> str:
    """4.2 s, 12 min, 3.5 h, 2.1 days."""
    return _known(seconds, formatting.span)


def _known(value: float | None, formatted: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else formatted(value)


def utc(at_ms: int) -> str:
    """2026-11-22 13:05."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M")


def overview(report: QueryReport) -> dict[str, str]:
    """The cells of a query, by their columns' titles."""
    lags, ages = report.lag, report.time_lag_s
    return {
        "in target": share(report.share_within_target),
        "known": duration(report.known_s),
        "missed": f"{len(report.episodes)}×",
        "longest": duration(report.longest_episode_s),
        "age p95": duration(ages.p95 if ages else None),
        "age max": duration(ages.max if ages else None),
        "lag p95": records(lags.p95 if lags else None),
        "lag max": records(lags.max if lags else None),
        "processed": records(report.processed),
    }


def outlook(report: QueryReport) -> dict[str, str]:
    """The cells that are text, by their columns' titles."""
    worst = report.worst[0] if report.worst else None
    return {
        "lag trend": _trend(report),
        "capacity": _capacity(report),
        "worst partition": UNKNOWN
        if worst is None
        else printable(f"{worst.topic} {worst.partition}: {records(worst.max_lag)}"),
    }


def episode_cells(episode: Episode) -> dict[str, str]:
    """The cells of an episode, by their columns' titles."""
    return {
        "missed from": utc(episode.from_ms),
        "to": utc(episode.to_ms),
        "for": duration(episode.duration_s),
        "lag max": records(episode.max_lag),
        "age max": duration(episode.max_time_lag_s),
    }


def _trend(report: QueryReport) -> str:
    """rising, +120/h."""
    if report.trend is None:
        return UNKNOWN
    if report.trend.direction == "steady":
        return "steady"
    slope = report.trend.slope
    return f"{report.trend.direction}, {slope:+,.{0 if abs(slope) >= 10 else 2}f}/h"


def _capacity(report: QueryReport) -> str:
    """How much of it is used, and when it is exceeded or why that is unknown."""
    capacity = report.capacity
    if capacity.utilisation is None:
        return capacity.reason or UNKNOWN
    at_ms = capacity.passed_at_ms
    when = f"passed {utc(at_ms)[:10]}" if at_ms else capacity.reason
    return f"{capacity.utilisation:.0%}, {when}"
