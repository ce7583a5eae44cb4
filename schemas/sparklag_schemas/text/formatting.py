"""The values of events as text for people. An unknown value is "unknown", not 0. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

KEEPS_PACE: Final = "it keeps pace but does not catch up"
NEVER: Final = "never at these rates"
"""The beginning of a `catch_up_reason` where the lag never ends."""
OVERDUE: Final = "overdue"
"""The beginning of a `catch_up_reason` where the next batch takes far longer than usual."""
NOT_RUNNING: Final = "the query is not running"
"""The `catch_up_reason` of a query that has ended."""


def span(seconds: float) -> str:
    """A duration in seconds, in the unit that fits."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def records(lag: int | None) -> str:
    return "unknown" if lag is None else f"{lag:,}"


def waiting(records: int, since_ms: int, now_ms: int) -> str:
    """Records behind an open transaction, at a time in epoch milliseconds."""
    open_for = span(max(0.0, (now_ms - since_ms) / 1000))
    return f"{records:,} records wait behind a transaction that has been open for {open_for}"


def time_lag(lag: int | None, time_lag_s: float | None) -> str:
    """The age of the first unprocessed record, if there is one."""
    if lag == 0:
        return ""
    return "unknown" if time_lag_s is None else span(time_lag_s)


def ago(since_ms: int | None, now_ms: int) -> str:
    """How long ago, in the unit that fits."""
    if since_ms is None:
        return "never"
    seconds = max(0.0, (now_ms - since_ms) / 1000)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def when(at_ms: int | None, now_ms: int) -> str:
    """The local time, and how long ago that was."""
    if at_ms is None:
        return "at a time that is not known"
    time = datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "seconds")
    return f"{time} ({ago(at_ms, now_ms)})"


def per_second(rate: float | None, unit: str = "") -> str:
    return "unknown" if rate is None else f"{number(rate)}{unit}/s"


def trend(rate: float | None) -> str:
    """The change of a lag per second, with its sign."""
    if rate is None:
        return "unknown"
    return "steady" if abs(rate) < 0.05 else f"{'+' if rate > 0 else '-'}{number(abs(rate))}/s"


def catch_up(seconds: float | None, reason: str | None) -> str:
    """The time until the lag is gone; `reason` is the event's `catch_up_reason`."""
    if seconds is not None:
        return span(seconds) if seconds > 0 else ""
    if reason is not None and reason.startswith(OVERDUE):
        return OVERDUE
    if reason == NOT_RUNNING:
        return "not running"
    at_these_rates = reason is not None and reason.startswith((NEVER, KEEPS_PACE))
    return "never" if at_these_rates else "unknown"


def number(value: float) -> str:
    """The number, with one decimal below 100."""
    return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def size(count: int) -> str:
    """A number of bytes, in binary units."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def clock_time(at_ms: int, now_ms: int) -> str:
    """The local time; with the day where that is not within a day of now."""
    at = datetime.fromtimestamp(at_ms / 1000).astimezone()
    return at.strftime("%H:%M" if abs(at_ms - now_ms) < 86_400_000 else "%Y-%m-%d %H:%M")
