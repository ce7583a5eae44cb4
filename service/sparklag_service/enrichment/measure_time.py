"""When a query is measured."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """Offsets asked for at `asked_s` or later came after the query's position."""

    now_ms: int
    """Epoch milliseconds."""
    now_s: float
    asked_s: float
    """`time.monotonic()`, both."""

    def monotonic_s(self, epoch_ms: int) -> float:
        """`epoch_ms` by the clock that only rises."""
        return self.now_s - (self.now_ms - epoch_ms) / 1000
