"""Earlier log end offsets, to interpolate the arrival time of a record. Pure.

The log end offsets of a topic are stored in rows, one row for all its partitions, each with its
time. Older rows are further apart: a day takes some two hundred rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import lt
from typing import Final

from msgspec import Struct

SPACING: Final = 0.05
"""The distance of two rows, as a share of their age."""
KEEP_S: Final = 90_000.0
"""A day, and the distance of two rows of that age."""
_THIN_EVERY: Final = 32
"""Rows appended between two thinnings."""

# A cell is end + 1 if the log end offset was read for this row, -(end + 1) if it was not and the
# last value is repeated, and 0 before the first value. So the absolute values of a partition's
# cells never fall from row to row, and can be searched by bisection.


class LatestOffset(Struct, frozen=True, gc=False):  # new for each partition in each pass
    """A latest offset, and when it was requested (`time.monotonic()`)."""

    offset: int
    requested_s: float


@dataclass(eq=False, slots=True)
class Bracket:
    """Two rows of a topic between which a record arrived. Most records of an age share them."""

    _older: array[int]
    older_s: float | None
    """Time of the last row in which the log ends at or before the record. None: no such row."""
    _newer: array[int] | None
    """The first row in which the log ends after the record. None: the latest offset."""
    newer_s: float
    """The time of `_newer`."""
    _is_first: bool = False
    """True if no partition has an earlier row."""

    def arrived_s(self, number: int, offset: int, latest: LatestOffset) -> float | None:
        """When the record at `offset` of a partition arrived, if records arrived evenly; before the
        first row, when it was first read. None: it did not arrive between these two rows."""
        older, newer = self._older, self._newer
        size = offset + 1
        if newer is None:
            if latest.requested_s != self.newer_s:
                return None
            after = latest.offset + 1
        elif number < len(newer):
            after = newer[number]
        else:
            return None
        if size >= after:
            return None
        if self.older_s is None:
            return self.newer_s if self._is_first else None
        before = older[number] if number < len(older) else 0
        if not 0 < before <= size:
            return None
        # In the middle of the record's share of the time: no bias to either side.
        span_s = self.newer_s - self.older_s
        return self.older_s + (size - before + 0.5) / (after - before) * span_s


class LogEndHistory:
    """The rows of one topic at one isolation level. Times are `time.monotonic()`.

    Two rows are at most 5 % of their age apart, or as far as they were when appended.
    """

    def __init__(self, spacing: float = SPACING, keep_s: float = KEEP_S) -> None:
        self._spacing = spacing
        self._keep_s = keep_s
        self._times: list[float] = []
        self._rows: list[array[int]] = []
        self._interval_s = 0.0
        self._until_thinning = _THIN_EVERY

    def __len__(self) -> int:
        return len(self._times)

    @property
    def last_s(self) -> float | None:
        return self._times[-1] if self._times else None

    def append(self, at_s: float, ends: Sequence[LatestOffset | None], interval_s: float) -> None:
        """Add a row of log ends, by partition number, if it is newer than the last row.

        An offset requested before the last row counts as not read. Thinning keeps rows at least as
        dense as `interval_s`, the time between two appended rows.
        """
        last_s = self.last_s
        if last_s is not None and at_s <= last_s:
            return
        before = self._rows[-1] if self._rows else array("q")
        sizes = [
            end.offset + 1
            for end in ends
            if end is not None and (last_s is None or end.requested_s > last_s)
        ]
        if len(sizes) == len(ends) == len(before) and not any(map(lt, sizes, map(abs, before))):
            # The usual case: every offset was read, and no log has shrunk.
            row = array("q", sizes)
        else:
            row = self._row_with_gaps(before, ends, last_s)
        self._times.append(at_s)
        self._rows.append(row)
        self._interval_s = interval_s
        self._until_thinning -= 1
        if not self._until_thinning:
            self._until_thinning = _THIN_EVERY
            self._thin(at_s)

    def insert(self, at_s: float, ends: Mapping[int, int]) -> None:
        """Add log end offsets of an earlier time from another source, by partition number. An
        offset that contradicts a row is left out."""
        index = bisect_left(self._times, at_s)
        if not ends or (index < len(self._times) and self._times[index] == at_s):
            return
        before = self._rows[index - 1] if index else array("q")
        row = array("q", bytes(8 * max(len(before), 1 + max(ends))))
        row[: len(before)] = array("q", (-abs(cell) for cell in before))
        later = self._rows[index:]
        for number, end in ends.items():
            size = end + 1
            if size < abs(row[number]) or size > _first_size(later, number, size):
                continue
            row[number] = size
            for newer in later:
                if number < len(newer):
                    if newer[number]:
                        break
                    newer[number] = -size
        self._times.insert(index, at_s)
        self._rows.insert(index, row)

    def bracket(self, partition: int, offset: int, latest: LatestOffset) -> Bracket:
        """The narrowest bracket of the record at `offset`, which is before `latest`."""
        newer, newer_s = None, latest.requested_s
        first = self._first_past(partition, offset + 1)
        if first < len(self._rows):
            newer, newer_s = self._rows[first], self._times[first]
        for index in range(first - 1, -1, -1):
            row = self._rows[index]
            if partition < len(row) and row[partition] > 0:
                return Bracket(row, self._times[index], newer, newer_s)
        return Bracket(array("q"), None, newer, newer_s, first == 0)

    def _first_past(self, partition: int, size: int) -> int:
        """Index of the first row with an end past `size`. The number of rows if none has."""
        return bisect_right(
            self._rows, size, key=lambda row: abs(row[partition]) if partition < len(row) else 0
        )

    def _row_with_gaps(
        self, before: array[int], ends: Sequence[LatestOffset | None], last_s: float | None
    ) -> array[int]:
        row = array("q", bytes(8 * max(len(before), len(ends))))
        shrunk = []
        for number, (end, cell) in enumerate(zip_longest(ends, before, fillvalue=None)):
            size = abs(cell or 0)
            if end is None or (last_s is not None and end.requested_s <= last_s):
                row[number] = -size
                continue
            row[number] = end.offset + 1
            if end.offset + 1 < size:
                shrunk.append(number)
        for older in self._rows if shrunk else ():
            for number in shrunk:
                if number < len(older):
                    older[number] = 0
        return row

    def _thin(self, now_s: float) -> None:
        kept = list(self._retained(now_s))
        self._times = [self._times[index] for index in kept]
        self._rows = [self._rows[index] for index in kept]

    def _retained(self, now_s: float) -> Iterator[int]:
        """Indices of the rows to keep, oldest first: the newest row, and no gap wider than
        allowed."""
        times = self._times
        kept = [len(times) - 1]
        for index in range(len(times) - 2, -1, -1):
            newer_s = times[kept[-1]]
            allowed_s = max(self._interval_s, self._spacing * (now_s - newer_s))
            if times[index] < now_s - self._keep_s:
                break
            if index == 0 or newer_s - times[index - 1] > allowed_s:
                kept.append(index)
        return reversed(kept)


def _first_size(rows: list[array[int]], number: int, otherwise: int) -> int:
    sizes = (abs(row[number]) for row in rows if number < len(row) and row[number])
    return next(sizes, otherwise)
