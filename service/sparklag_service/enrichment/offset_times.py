"""When a log ended where: what the age of a position is read from. Pure.

The end offsets of a topic are kept in rows, one row for all its partitions, each with its time.
The older they are the wider they lie apart: a day of them is some two hundred rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import lt
from typing import Final

from msgspec import Struct

SPACING: Final = 0.05
"""Of a row's age: how far it may lie from the next one, older than the rows were taken."""
KEEP_S: Final = 90_000.0
"""A day, and what a row of that age may lie apart from the next."""
_THIN_EVERY: Final = 32
"""Rows taken between two thinnings."""

# A cell says where the log ended: end + 1 where that was read then, -(end + 1) where it was not,
# and is what was read last; 0 where nothing was known yet. So the sizes of a partition's cells
# never fall from row to row, and can be searched.


class Latest(Struct, frozen=True, gc=False):  # one for each partition, made anew in each pass
    """A latest offset, and when it was asked for (`time.monotonic()`, seconds)."""

    offset: int
    asked_s: float


class Bracket:
    """Two looks at a topic between which a record came. Most records of an age came between the
    same two."""

    __slots__ = ("_is_first", "_newer", "_older", "_span_s", "newer_s", "older_s")

    def __init__(
        self,
        older: array[int] | None,
        older_s: float | None,
        newer: array[int] | None,
        newer_s: float,
        *,
        is_first: bool = False,
    ) -> None:
        self._older = older if older is not None else array("q")
        self.older_s = older_s
        """The log still ended at the record, or before. None: nobody looked as early as that."""
        self._newer = newer
        """None: the end that was read last."""
        self.newer_s = newer_s
        """The log had gone past the record."""
        self._is_first = is_first
        """Nobody looked at any partition before."""
        self._span_s = newer_s - older_s if older_s is not None else 0.0

    def arrived_s(self, number: int, offset: int, latest: Latest) -> float | None:
        """When the record at `offset` of a partition came, if records came evenly; of one that was
        there before anyone looked, when it was seen. None: it did not come between these two."""
        older, newer = self._older, self._newer
        size = offset + 1
        if newer is None:
            if latest.asked_s != self.newer_s:
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
        # In the middle of its share of the time: without a bias to either side.
        return self.older_s + (size - before + 0.5) / (after - before) * self._span_s


class OffsetTimes:
    """The rows of one topic, read at one isolation level. Times are `time.monotonic()`.

    Two rows lie at most 5 % of their age apart, or as they were taken.
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
        """When the last row was read."""
        return self._times[-1] if self._times else None

    @property
    def size_bytes(self) -> int:
        """What the cells take."""
        return sum(row.itemsize * len(row) for row in self._rows)

    def take(self, at_s: float, ends: Sequence[Latest | None], interval_s: float) -> None:
        """A row, by partition number; one that is not newer than the last one is left out.

        What was not read since the last row counts as not read. `interval_s` is how often rows are
        taken: thinning does not make them rarer than that.
        """
        last_s = self.last_s
        if last_s is not None and at_s <= last_s:
            return
        before = self._rows[-1] if self._rows else array("q")
        sizes = [
            end.offset + 1
            for end in ends
            if end is not None and (last_s is None or end.asked_s > last_s)
        ]
        if len(sizes) == len(ends) == len(before) and not any(map(lt, sizes, map(abs, before))):
            # Mostly: all were read, and none has shrunk.
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
        """Where logs ended at an earlier time, as somebody else knows it, by partition number.

        What contradicts a row is left out.
        """
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

    def bracket(self, partition: int, offset: int, latest: Latest) -> Bracket:
        """The narrowest for the record at `offset`, which is before `latest`, the partition's end
        as it was read last."""
        newer, newer_s = None, latest.asked_s
        first = self._first_past(partition, offset + 1)
        if first < len(self._rows):
            newer, newer_s = self._rows[first], self._times[first]
        for index in range(first - 1, -1, -1):
            row = self._rows[index]
            if partition < len(row) and row[partition] > 0:
                return Bracket(row, self._times[index], newer, newer_s)
        return Bracket(None, None, newer, newer_s, is_first=first == 0)

    def _first_past(self, partition: int, size: int) -> int:
        """The first row where the log had gone past; as many as there are rows where none had."""
        rows = self._rows
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            row = rows[middle]
            cell = row[partition] if partition < len(row) else 0
            if (cell if cell > 0 else -cell) > size:
                high = middle
            else:
                low = middle + 1
        return low

    def _row_with_gaps(
        self, before: array[int], ends: Sequence[Latest | None], last_s: float | None
    ) -> array[int]:
        known = len(before)
        row = array("q", bytes(8 * max(known, len(ends))))
        row[:known] = before
        shrunk = []
        for number, end in enumerate(ends):
            cell = before[number] if number < known else 0
            if end is None or (last_s is not None and end.asked_s <= last_s):
                row[number] = -cell if cell > 0 else cell
                continue
            row[number] = end.offset + 1
            if end.offset + 1 < (cell if cell > 0 else -cell):
                shrunk.append(number)
        for number in range(len(ends), known):
            row[number] = -abs(before[number])
        for older in self._rows if shrunk else ():
            for number in shrunk:
                if number < len(older):
                    older[number] = 0
        return row

    def _thin(self, now_s: float) -> None:
        keep = list(_kept(self._times, now_s, self._interval_s, self._spacing, self._keep_s))
        self._times = [self._times[index] for index in keep]
        self._rows = [self._rows[index] for index in keep]


def _first_size(rows: list[array[int]], number: int, otherwise: int) -> int:
    known = (abs(row[number]) for row in rows if number < len(row) and row[number])
    return next(known, otherwise)


def _kept(
    times: list[float], now_s: float, interval_s: float, spacing: float, keep_s: float
) -> Iterator[int]:
    """Indices of the rows to keep, in their order: the newest, and no gap wider than allowed."""
    kept = [len(times) - 1]
    for index in range(len(times) - 2, -1, -1):
        newer_s = times[kept[-1]]
        allowed_s = max(interval_s, spacing * (now_s - newer_s))
        is_last = index == 0
        if times[index] < now_s - keep_s:
            break
        if is_last or newer_s - times[index - 1] > allowed_s:
            kept.append(index)
    return reversed(kept)
