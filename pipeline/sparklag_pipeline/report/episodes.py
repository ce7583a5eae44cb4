"""When a query missed its target, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from sparklag_pipeline.report.windows import RolledWindow

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Episode:
    """From the start of the first minute that missed to the end of the last; epoch milliseconds."""

    from_ms: int
    to_ms: int
    max_lag: int | None
    max_time_lag_s: float | None

    @property
    def duration_s(self) -> float:
        """Whole minutes: how long it is in the history, not how many seconds of it were bad."""
        return (self.to_ms - self.from_ms) / 1000


def episodes(windows: Iterable[RolledWindow], step_ms: int) -> list[Episode]:
    """Of one query's windows, in order: those that missed the target for any time, joined where
    one follows the other. A window in which nothing is known ends an episode."""
    found: list[Episode] = []
    for window in windows:
        if window.known_s <= window.within_target_s:
            continue
        end_ms = window.start_ms + step_ms
        lag = None if window.lag is None else round(window.lag[-1])
        age_s = None if window.time_lag_s is None else window.time_lag_s[-1]
        if found and found[-1].to_ms == window.start_ms:
            last = found.pop()
            found.append(
                Episode(
                    last.from_ms,
                    end_ms,
                    _worse(last.max_lag, lag),
                    _worse(last.max_time_lag_s, age_s),
                )
            )
        else:
            found.append(Episode(window.start_ms, end_ms, lag, age_s))
    return found


def _worse(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
