"""The history of one instance: rows of all queries within one memory limit."""

from __future__ import annotations

import asyncio
import sys
from array import array
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from sparklag_schemas import LagEvent, Settings
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.history.page import HistoryPage, TimeRange, changes, points
from sparklag_service.history.rows import (
    ROW_BYTES,
    Change,
    Resolution,
    Row,
    Totals,
    changes_of,
    pack,
    row_of,
    unpack,
    unpack_change,
)
from sparklag_service.view.feed import Arrival
from sparklag_service.view.view import Entry

FINEST: Final = 512
COARSEST: Final = 8
_SLACK: Final = 1.25
"""Factor: a query's rows are thinned once they exceed their number by this."""
_GROWTH: Final = 1.125
"""Factor by which Python overallocates a growing buffer."""
_MAX_CHANGES: Final = 48
_SERIES_BYTES: Final = 1_200
"""Memory of a query besides its rows, with all its changes."""
_SHARE: Final = 0.9
"""The used share of the memory limit; the allocator loses the rest between the buffers."""


@dataclass
class _Series:
    rows: bytearray = field(default_factory=bytearray)
    older: bytearray = field(default_factory=bytearray)
    """Rows from before the first of `rows`, which the refill reads."""
    changes: array[int] = field(default_factory=lambda: array("Q"))
    """Packed, oldest first."""

    def held_bytes(self) -> int:
        return _SERIES_BYTES + sys.getsizeof(self.rows) + sys.getsizeof(self.older)

    def keep_changes(self, packed: Iterable[int]) -> None:
        for change in packed:
            if change not in self.changes:
                insort(self.changes, change)
        del self.changes[:-_MAX_CHANGES]

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
        self._max_rows = [int(_SLACK * resolution.max_rows()) for resolution in self._resolutions]
        self._level = 0
        self._series: dict[str, _Series] = {}
        self._others: Iterator[str] = iter(())

    @property
    def held_bytes(self) -> int:
        """Memory of all rows, summed at each call."""
        return sum(series.held_bytes() for series in self._series.values())

    @property
    def resolution(self) -> Resolution:
        """The finest resolution for the highest number of queries so far: coarse rows do not become
        finer, and would look like gaps."""
        return self._resolutions[self._level]

    def add(
        self, query_id: str, event: LagEvent | Totals, now_ms: int, *, older: bool = False
    ) -> bool:
        """Add an event that is newer than the query's other rows; with `older`, one that is older,
        in the order of time. Returns False if there is no room."""
        series = self._series.get(query_id)
        if series is None:
            coarsest = len(self._resolutions) - 1
            if self._bytes_of(len(self._series) + 1, coarsest) > self._max_bytes:
                return False
            series = self._series[query_id] = _Series()
            while self._bytes_of(len(self._series), self._level) > self._max_bytes:
                self._level += 1
        self._append(series.older if older else series.rows, row_of(event), now_ms)
        series.keep_changes(changes_of(event))
        self._thin_if_long(series, now_ms)
        # Visits the queries in turn: one without new events may keep the rows of fewer queries.
        other = next(self._others, None)
        if other is None:
            self._others = iter(list(self._series))
        elif other in self._series:
            self._thin_if_long(self._series[other], now_ms)
        return True

    def join(self, query_id: str, now_ms: int) -> None:
        """Join the query's older rows to the others: the next older rows precede all of these."""
        series = self._series.get(query_id)
        if series is not None and series.older:
            self._thin(series, now_ms)

    def forget(self, query_id: str) -> None:
        self._series.pop(query_id, None)

    def forget_before(self, query_id: str, at_ms: int) -> None:
        series = self._series.get(query_id)
        if series is not None:
            rows = (row for row in series.all_rows() if row.measured_at_ms >= at_ms)
            series.replace(rows)
            kept = [change for change in series.changes if unpack_change(change).at_ms >= at_ms]
            series.changes = array("Q", kept)

    def rows(self, query_id: str, now_ms: int) -> list[Row]:
        """The rows of a query, oldest first."""
        series = self._series.get(query_id)
        return [] if series is None else self.resolution.thinned(series.all_rows(), now_ms)

    def changes(self, query_id: str) -> list[Change]:
        """The last changes of a query, oldest first."""
        series = self._series.get(query_id)
        return [] if series is None else list(map(unpack_change, series.changes))

    def query_ids(self) -> list[str]:
        return list(self._series)

    def _append(self, buffer: bytearray, row: Row, now_ms: int) -> None:
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

    def _bytes_of(self, queries: int, level: int) -> float:
        return queries * (_SERIES_BYTES + _GROWTH * ROW_BYTES * self._max_rows[level])


_MB: Final = 1024 * 1024
_FINEST_HEARTBEATS: Final = 1.5
"""A query that is published at every heartbeat, perhaps a little late, has an event in each slot. A
slot without an event is a gap."""
_TOMBSTONES: Final = 10_000


class History:
    """Stores the totals of each event of the feed."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        finest_s = max(1, ceil(_FINEST_HEARTBEATS * settings.heartbeat_s))
        self.keep_ms = int(settings.history.keep_s * 1000)
        self.archive = Archive(
            settings.history.memory_mb * _MB, finest_s * 1000, max(self.keep_ms, finest_s * 1000)
        )
        self._counters = counters
        self.complete_since_ms: dict[int, int] = {}
        """The time since when no event is missing, by partition."""
        self.ends: dict[int, int] = {}
        """Log end offsets when the feed began: the refill reads up to them. The feed has only the
        last minute before them, and may miss events before an outage."""
        self.forgotten_ms: dict[str, int] = {}
        """The time of a query's tombstone, by query id."""
        self.refill_needed = asyncio.Event()

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        now_ms = epoch_ms()
        for partition in self.ends.keys() - ends.keys():
            del self.ends[partition]
        for partition, start in restarted.items():
            self.ends[partition] = ends.get(partition, start)
            self.complete_since_ms[partition] = now_ms
            self.refill_needed.set()

    def arrived(self, arrival: Arrival) -> None:
        event = arrival.event
        if event is None:
            self.archive.forget(arrival.query_id)
            self.forget_before(arrival.query_id, arrival.at_ms)
            return
        if not self.archive.add(arrival.query_id, event, epoch_ms()):
            self._counters.history_left_out += 1

    def forget_before(self, query_id: str, at_ms: int) -> None:
        """Drop rows older than a query's tombstone, written at `at_ms`."""
        self.forgotten_ms[query_id] = max(at_ms, self.forgotten_ms.get(query_id, 0))
        if len(self.forgotten_ms) > _TOMBSTONES:
            del self.forgotten_ms[next(iter(self.forgotten_ms))]
        self.archive.forget_before(query_id, at_ms)

    def page(self, entry: Entry, wanted: TimeRange, now_ms: int) -> HistoryPage:
        event = entry.event
        wanted = wanted.aligned(self.archive.resolution, now_ms)
        rows = self.archive.rows(event.query_id, now_ms)
        complete_since_ms = self.complete_since_ms.get(entry.partition, now_ms)
        full = "there are more queries than history.memory_mb has room for"
        return HistoryPage(
            query_id=event.query_id,
            query=event.query,
            since=wanted.since_ms,
            until=wanted.until_ms,
            step_s=wanted.step_ms / 1000,
            complete_since=max(now_ms - self.keep_ms, complete_since_ms),
            reason=None if rows else full,
            points=points(rows, wanted),
            changes=changes(self.archive.changes(event.query_id), wanted),
        )
