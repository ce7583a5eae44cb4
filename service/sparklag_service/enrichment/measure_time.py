"""The time of a measurement."""

from __future__ import annotations

from typing import NamedTuple


class MeasureTime(NamedTuple):
    """Offsets requested at `requested_s` or later came after the query's position."""

    now_ms: int
    """Epoch milliseconds."""
    now_s: float
    requested_s: float
    """`time.monotonic()`, both."""

    def monotonic_s(self, epoch_ms: int) -> float:
        """`epoch_ms` by the clock that only rises."""
        return self.now_s - (self.now_ms - epoch_ms) / 1000
