"""What `GET /lag/{query}/history` may be asked: moments and durations in the ways people write
them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from math import isfinite
from typing import Final, NamedTuple

MOST_POINTS: Final = 1_000
_USUAL_POINTS: Final = 300
_USUAL_S: Final = 3_600.0
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_MOST_MS: Final = 1 << 53


class BadQuestion(ValueError):
    """`parameter` is not what it may be; the text says what it may be."""

    def __init__(self, parameter: str, expectation: str) -> None:
        super().__init__(expectation)
        self.parameter = parameter


class Question(NamedTuple):
    """From `since_ms` up to and without `until_ms`, in steps of about `step_ms`."""

    since_ms: int
    until_ms: int
    step_ms: int


def question(since: str | None, until: str | None, step: str | None, now_ms: int) -> Question:
    """What is asked for; without parameters, the last hour. Raises BadQuestion."""
    until_ms = now_ms + 1 if until is None else _moment_ms("until", until, now_ms)
    if since is None:
        since_ms = until_ms - int(_USUAL_S * 1000)
    else:
        since_ms = _moment_ms("since", since, now_ms)
    if since_ms >= until_ms:
        raise BadQuestion("since", "it is not before `until`")
    if step is None:
        step_ms = (until_ms - since_ms) // _USUAL_POINTS
    else:
        step_ms = round(_duration_s("step", step) * 1000)
    return Question(since_ms, until_ms, max(step_ms, 1))


def _moment_ms(parameter: str, text: str, now_ms: int) -> int:
    """Epoch milliseconds, ISO 8601 (without a zone: UTC), or a duration before now."""
    if re.fullmatch(r"\d{1,16}", text):
        return min(int(text), _MOST_MS)
    if _DURATION.match(text) and not text[:4].isdigit():
        return now_ms - round(_duration_s(parameter, text) * 1000)
    try:
        # Python takes a Z only since 3.11; in a URL, a + that is not escaped reads as a blank.
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text).replace(" ", "+"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadQuestion(
            parameter,
            f"{text!r} is neither epoch milliseconds nor ISO 8601 nor a duration before now,"
            " as 15m or 24h",
        ) from None


def _duration_s(parameter: str, text: str) -> float:
    """A number of seconds, or numbers with units: 90, 90s, 1h30m."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        found_s = float(text)
    elif re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        found_s = sum(float(n) * _UNITS_S[unit] for n, unit in _DURATION.findall(text))
    else:
        found_s = 0.0
    if not 0.0 < found_s < _MOST_MS / 1000 or not isfinite(found_s):
        raise BadQuestion(
            parameter, f"{text!r} is not a duration above 0: seconds, or as 30s, 5m, 1h30m, 2d"
        )
    return found_s
