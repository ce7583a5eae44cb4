"""A query's total lag over the last hour, and its sparkline. Pure."""

from __future__ import annotations

from typing import Final

STEP_S: Final = 60
"""Of a character of the sparkline."""
STEPS: Final = 60

_STEP_MS: Final = STEP_S * 1000
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "?"


class LagHistory:
    """The highest total lag in each minute of the last hour."""

    def __init__(self) -> None:
        self._highest: dict[int, int | None] = {}

    def add(self, measured_at_ms: int, lag: int | None) -> None:
        """Add a measurement. None: it was unknown."""
        step = measured_at_ms // _STEP_MS
        highest = self._highest.get(step)
        self._highest[step] = highest if lag is None else max(lag, highest or 0)
        newest = max(self._highest)
        for old in [each for each in self._highest if each <= newest - STEPS]:
            del self._highest[old]

    def highest(self, now_ms: int, steps: int = STEPS) -> int | None:
        """The highest lag in the last `steps`. None: not known in any."""
        return max((lag for lag in self._last(now_ms, steps) if lag is not None), default=None)

    def sparkline(self, now_ms: int, steps: int = STEPS) -> str:
        """A character for each of the last `steps`, in proportion to the highest. Lowest block: no
        lag; `?`: the lag was unknown; blank: it was not measured."""
        top = self.highest(now_ms, steps)
        now = now_ms // _STEP_MS
        return "".join(
            _character(self._highest[step], top) if step in self._highest else " "
            for step in range(now - steps + 1, now + 1)
        )

    def _last(self, now_ms: int, steps: int) -> list[int | None]:
        now = now_ms // _STEP_MS
        return [lag for step, lag in self._highest.items() if now - steps < step <= now]


def _character(lag: int | None, top: int | None) -> str:
    if lag is None or top is None:
        return _UNKNOWN
    if lag == 0:
        return _BLOCKS[0]
    return _BLOCKS[max(1, round(lag / top * (len(_BLOCKS) - 1)))]
