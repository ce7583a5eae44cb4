"""The rows of all queries, under one ceiling. Pure: the time is passed in.

The more queries there are the coarser each query's rows get; beyond what fits at the coarsest, new
queries have no history.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sparklag_service.history.rows import ROW_BYTES, Resolution, Row, pack, unpack

FINEST: Final = 512
COARSEST: Final = 8
_SLACK: Final = 1.25
"""A query may have so many times its rows before they are thinned."""
_GROWTH: Final = 1.125
"""Python gives a growing buffer more than it needs."""
_SERIES_BYTES: Final = 700
"""What Python takes for a query beside the rows."""
_SHARE: Final = 0.9
"""Of the ceiling; the rest is what the allocator loses between the buffers."""


@dataclass
class _Series:
    rows: bytearray = field(default_factory=bytearray)
    older: bytearray = field(default_factory=bytearray)
    """What the refill reads, from before the first of `rows`."""

    def held_bytes(self) -> int:
        return _SERIES_BYTES + sys.getsizeof(self.rows) + sys.getsizeof(self.older)

    def all_rows(self) -> Iterator[Row]:
        return unpack(self.older + self.rows)

    def replace(self, rows: Iterable[Row]) -> None:
        self.rows, self.older = bytearray(b"".join(map(pack, rows))), bytearray()


class Archive:
    """Rows by query id."""

    def __init__(self, max_bytes: int, finest_ms: int, keep_ms: int) -> None:
        self._max_bytes = int(max_bytes * _SHARE)
        self._resolutions = [
            Resolution(finest_ms, FINEST >> step, keep_ms)
            for step in range((FINEST // COARSEST).bit_length())
        ]
        self._max_rows = [int(_SLACK * each.max_rows()) for each in self._resolutions]
        self._level = 0
        self._series: dict[str, _Series] = {}
        self._others: Iterator[str] = iter(())

    @property
    def held_bytes(self) -> int:
        """Of memory, summed up at each call."""
        return sum(series.held_bytes() for series in self._series.values())

    @property
    def resolution(self) -> Resolution:
        """As fine as the highest number of queries so far allows: rows that have become coarse do
        not get finer, and would look like gaps."""
        return self._resolutions[self._level]

    def add(self, query_id: str, row: Row, now_ms: int, *, older: bool = False) -> bool:
        """Take in a row that is newer than the query's other rows; or, with `older`, older than
        they are, from the oldest on. False: there is no room for it."""
        series = self._series_of(query_id)
        if series is None:
            return False
        self._append(series, series.older if older else series.rows, row, now_ms)
        self._thin_if_long(series, now_ms)
        self._thin_another(now_ms)
        return True

    def join(self, query_id: str, now_ms: int) -> None:
        """The next older rows are older than all of the query's."""
        series = self._series.get(query_id)
        if series is not None and series.older:
            self._thin(series, now_ms)

    def forget(self, query_id: str) -> None:
        """All of its rows."""
        self._series.pop(query_id, None)

    def forget_before(self, query_id: str, at_ms: int) -> None:
        """Its rows from before that time."""
        series = self._series.get(query_id)
        if series is not None:
            rows = (row for row in series.all_rows() if row.measured_at_ms >= at_ms)
            series.replace(rows)

    def rows(self, query_id: str, now_ms: int) -> list[Row]:
        """The query's, from the oldest on."""
        series = self._series.get(query_id)
        return [] if series is None else self.resolution.thinned(series.all_rows(), now_ms)

    def query_ids(self) -> list[str]:
        """Of the queries that have rows."""
        return list(self._series)

    def _series_of(self, query_id: str) -> _Series | None:
        series = self._series.get(query_id)
        if series is None:
            if self._bytes_of(len(self._series) + 1, len(self._resolutions) - 1) > self._max_bytes:
                return None
            series = self._series[query_id] = _Series()
            self._level = max(self._level, self._level_for(len(self._series)))
        return series

    def _append(self, series: _Series, buffer: bytearray, row: Row, now_ms: int) -> None:
        if buffer:
            (last,) = unpack(buffer[-ROW_BYTES:])
            width_ms = self.resolution.width_ms(now_ms - row.measured_at_ms)
            if row.measured_at_ms // width_ms == last.measured_at_ms // width_ms:
                row = last.joined(row)
                del buffer[-ROW_BYTES:]
        buffer += pack(row)

    def _thin(self, series: _Series, now_ms: int) -> None:
        series.replace(self.resolution.thinned(series.all_rows(), now_ms))

    def _thin_if_long(self, series: _Series, now_ms: int) -> None:
        if len(series.older) + len(series.rows) > self._max_rows[self._level] * ROW_BYTES:
            self._thin(series, now_ms)

    def _thin_another(self, now_ms: int) -> None:
        """Each query in turn: one without new events may be as fine as fewer queries could be."""
        query_id = next(self._others, None)
        if query_id is None:
            self._others = iter(list(self._series))
        elif query_id in self._series:
            self._thin_if_long(self._series[query_id], now_ms)

    def _level_for(self, queries: int) -> int:
        for level in range(len(self._resolutions)):
            if self._bytes_of(queries, level) <= self._max_bytes:
                return level
        return len(self._resolutions) - 1

    def _bytes_of(self, queries: int, level: int) -> float:
        return queries * (_SERIES_BYTES + _GROWTH * ROW_BYTES * self._max_rows[level])
