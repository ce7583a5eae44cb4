"""How fine the history is: slots that are wider the older they are. Pure.

The width of a slot is a power of two times the finest, and slots begin at whole multiples of their
width: two neighbours always make one of the next width, whenever that is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, log2
from typing import NamedTuple

from sparklag_service.history.rows import Row


class Grain(NamedTuple):
    """A slot is at least its age / `fineness` wide, and at most twice that."""

    finest_ms: int
    fineness: int
    keep_ms: int

    def width_ms(self, age_ms: int) -> int:
        """Of a slot of that age."""
        least = age_ms / self.fineness / self.finest_ms
        return self.finest_ms if least <= 1 else self.finest_ms << ceil(log2(least))

    def most_rows(self) -> int:
        """What a query has, at most, with an event in every slot."""
        rows, age_ms = 0, 0
        while age_ms < self.keep_ms:
            width_ms = self.width_ms(age_ms + 1)
            # That width lasts until here.
            until_ms = min(width_ms * self.fineness, self.keep_ms)
            rows += ceil((until_ms - age_ms) / width_ms) + 1
            age_ms = until_ms
        return rows

    def thinned(self, rows: Iterable[Row], now_ms: int) -> list[Row]:
        """In their order, one in each slot, without those past their time."""
        found: list[Row] = []
        end_ms = 0
        for row in sorted(rows, key=_at_ms):
            # A clock that goes ahead puts rows into the future: they are as many.
            age_ms = abs(now_ms - row.measured_at_ms)
            if age_ms > self.keep_ms:
                continue
            if row.measured_at_ms < end_ms:
                found[-1] = found[-1].joined(row)
                continue
            width_ms = self.width_ms(age_ms)
            end_ms = (row.measured_at_ms // width_ms + 1) * width_ms
            found.append(row)
        return found


def _at_ms(row: Row) -> int:
    return row.measured_at_ms
