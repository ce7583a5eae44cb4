"""The result of one check, and common parts of several checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MAX_SKEW_S: Final = 2.0
"""Time lags are wrong by the difference of the two clocks."""
SYNCHRONISE: Final = "synchronise both with NTP: time lags are wrong by as much"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. `note`: not checked, or worth a look, but not wrong."""

    check: str
    state: Literal["ok", "note", "bad"]
    text: str
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        """True if there is nothing to repair."""
        return self.state != "bad"


def ok(check: str, text: str) -> CheckResult:
    return CheckResult(check, "ok", text)


def note(check: str, text: str, remedy: str | None = None) -> CheckResult:
    return CheckResult(check, "note", text, remedy)


def bad(check: str, text: str, remedy: str | None = None) -> CheckResult:
    return CheckResult(check, "bad", text, remedy)


def clock_result(whose: str, ahead_s: float, accuracy_s: float) -> CheckResult:
    """The result for a clock `ahead_s` ahead of this machine's, with an error of `accuracy_s`."""
    shown = f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    if abs(ahead_s) <= accuracy_s:
        shown = "that of this machine"
    text = f"the clock of {whose} is {shown} (± {accuracy_s:.1f} s)"
    if abs(ahead_s) - accuracy_s > MAX_SKEW_S:
        return bad("clock", text, SYNCHRONISE)
    return ok("clock", text)
