"""Timestamps: now, and parsers of timestamps and durations."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import Final


def epoch_ms() -> int:
    """The time now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_MOST_MS: Final = 1 << 53


def timestamp_ms(text: str, now_ms: int) -> int:
    """The time in epoch milliseconds. `text`: the same, ISO 8601 (without a zone: UTC), or a
    duration before now: `2h`, `-2h`. Raises ValueError that lists these forms."""
    if re.fullmatch(r"\d{1,16}", text):
        return min(int(text), _MOST_MS)
    ago = text.removeprefix("-")
    if _DURATION.match(ago) and not text[:4].isdigit():
        return now_ms - round(duration_s(ago) * 1000)
    try:
        # Python takes a Z only since 3.11; in a URL, a + that is not escaped reads as a blank.
        iso = re.sub(r"[zZ]$", "+00:00", text).replace(" ", "+")
        return datetime_ms(datetime.fromisoformat(iso))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is neither epoch milliseconds nor ISO 8601 nor a duration before now,"
            " as 15m or 24h"
        ) from None


def datetime_ms(at: datetime) -> int:
    """The time in epoch milliseconds; without a zone it is UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return round(at.timestamp() * 1000)


def duration_s(text: str) -> float:
    """The duration in seconds. `text`: seconds, or numbers with units: 90, 90s, 1h30m. Raises
    ValueError that lists these forms."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    elif re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        seconds = sum(float(n) * _UNITS_S[unit] for n, unit in _DURATION.findall(text))
    else:
        seconds = 0.0
    if not 0.0 < seconds < _MOST_MS / 1000:
        raise ValueError(f"{text!r} is not a duration above 0: seconds, or as 30s, 5m, 1h30m, 2d")
    return seconds
