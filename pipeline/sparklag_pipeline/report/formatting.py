"""Numbers of the report as people read them. What is not known is a dash."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

from sparklag_pipeline.report.query_report import QueryReport

UNKNOWN: Final = "–"  # noqa: RUF001  # an en dash, as tables have it


def share(value: float | None) -> str:
    """99.95 %: rounded down, so that 100 % is all of it."""
    if value is None:
        return UNKNOWN
    return f"{int(value * 10_000) / 100:.2f} %"


def records(value: float | None) -> str:
    """1,234; 5.6 M."""
    if value is None:
        return UNKNOWN
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {letter}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Records a second."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}/s" if value < 100 else f"{records(value)}/s"


def duration(seconds: float | None) -> str:
    """4.2 s, 12 min, 3.5 h, 2.1 d."""
    if seconds is None:
        return UNKNOWN
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.1f} s".replace(".0 ", " ")


def moment(at_ms: int) -> str:
    """2026-11-22 13:05, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M")


def trend(report: QueryReport) -> str:
    """rising, +120 an hour."""
    if report.trend is None:
        return UNKNOWN
    if report.trend.direction == "steady":
        return "steady"
    slope = report.trend.slope
    return f"{report.trend.direction}, {slope:+,.{0 if abs(slope) >= 10 else 2}f}/h"


def capacity(report: QueryReport) -> str:
    """What of it is used, and when it is passed or why that is not known."""
    found = report.capacity
    if found.utilisation is None:
        return found.reason or UNKNOWN
    when = f"passed {moment(found.passed_at_ms)[:10]}" if found.passed_at_ms else found.reason
    return f"{found.utilisation:.0%}, {when}"
