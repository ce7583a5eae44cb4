"""The rows of a query's history: their packed form, and how older rows are joined. Pure.

A row is a slot of time. The width of a slot is a power of two times the finest, and slots begin at
whole multiples of their width. So two neighbours always make one slot of the next width.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from math import ceil, isnan, log2, nan
from typing import Final, NamedTuple, TypeVar, get_args

from msgspec import Struct, field

from sparklag_schemas import Batch, LagEvent, Status
from sparklag_schemas.messages.bounds import Count, DurationMs, DurationS, EpochMs, Name, SignedRate
from sparklag_schemas.messages.enumerations import OpenCause, OpenStatus

_STATUSES: Final[tuple[Status, ...]] = get_args(Status)
_NUMBER_OF_STATUS: Final[dict[str, int]] = {
    status: number for number, status in enumerate(_STATUSES)
}
_UNKNOWN: Final = _NUMBER_OF_STATUS["UNKNOWN"]
_RUN_BEGAN: Final = len(_STATUSES)
_KINDS: Final = 32
"""A change is packed as its time in milliseconds times this, plus the number of its status."""
_ROW: Final = struct.Struct("<qqqfffBffff")
_UNKNOWN_LAG: Final = -1
_Number = TypeVar("_Number", int, float)
_NO_BATCH: Final = (nan, nan, nan, nan)

_WHOLE_BATCH: Final = "triggerExecution"
_PLANNING, _PROCESSING, _COMMIT = 1, 2, 3
"""Indexes in BatchTimes."""
_PHASES: Final = {
    "latestOffset": _PLANNING,
    "getBatch": _PLANNING,
    "queryPlanning": _PLANNING,
    # Keys of older Spark versions.
    "setOffsetRange": _PLANNING,
    "getOffset": _PLANNING,
    "addBatch": _PROCESSING,
    "walCommit": _COMMIT,
    "commitOffsets": _COMMIT,
    "commitBatch": _COMMIT,
}
"""Keys of Spark's `durationMs`, as MicroBatchExecution reports them (`reportTimeTaken` of its
ProgressContext). Other keys count only in the duration."""

ROW_BYTES: Final = _ROW.size


class BatchTimes(NamedTuple):
    """The times of a completed batch, milliseconds. The phases do not add up to its duration."""

    duration_ms: float
    planning_ms: float
    processing_ms: float
    commit_ms: float


class Row(NamedTuple):
    """A slot of time. None: unknown. `max_…`: the highest in the slot; other fields: the last."""

    measured_at_ms: int
    total_lag: int | None
    max_total_lag: int | None
    max_time_lag_s: float | None
    input_rate: float | None
    processed_rate: float | None
    status: Status
    batch: BatchTimes | None = None
    """The last batch completed in the slot. None: no batch, or Spark reports no duration."""

    def joined(self, later: Row) -> Row:
        return Row(
            later.measured_at_ms,
            later.total_lag,
            _highest(self.max_total_lag, later.max_total_lag),
            _highest(self.max_time_lag_s, later.max_time_lag_s),
            later.input_rate,
            later.processed_rate,
            later.status,
            later.batch or self.batch,
        )


def _highest(*numbers: _Number | None) -> _Number | None:
    return max((number for number in numbers if number is not None), default=None)


class BatchTotals(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a batch in `Totals`."""

    duration_ms: DurationMs | None = None
    phases_ms: dict[Name, DurationMs] = field(default_factory=dict)


class RunTotals(Struct, frozen=True, kw_only=True, gc=False):
    """The field of the runs in `Totals`."""

    started_at: EpochMs


class Totals(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a lag event that the history stores. Partitions are not decoded."""

    query_id: Name
    measured_at: EpochMs
    status: OpenStatus
    cause: OpenCause
    query: Name | None = None
    run_id: Name | None = None
    """ContractRecords reads it: which names a team may write."""
    status_since: EpochMs | None = None
    runs: RunTotals | None = None
    batch: BatchTotals | None = None
    total_lag: Count | None = None
    max_time_lag_s: DurationS | None = None
    input_rate: SignedRate | None = None
    processed_rate: SignedRate | None = None


def row_of(event: LagEvent | Totals) -> Row:
    """The row of one event. A status of a newer version becomes UNKNOWN."""
    return Row(
        event.measured_at,
        event.total_lag,
        event.total_lag,
        event.max_time_lag_s,
        event.input_rate,
        event.processed_rate,
        _STATUSES[_NUMBER_OF_STATUS.get(event.status, _UNKNOWN)],
        # Only the progress event has the batch: later events repeat it.
        _batch_times(event.batch) if event.cause == "progress" and event.batch else None,
    )


class Change(NamedTuple):
    """The query has this status since then; None: a run began then."""

    at_ms: int
    status: Status | None


def changes_of(event: LagEvent | Totals) -> list[int]:
    """The packed changes that an event shows: all events between two changes show the same."""
    packed = []
    if event.runs is not None:
        packed.append(event.runs.started_at * _KINDS + _RUN_BEGAN)
    if event.status_since is not None:
        status = _NUMBER_OF_STATUS.get(event.status, _UNKNOWN)
        packed.append(event.status_since * _KINDS + status)
    return packed


def unpack_change(packed: int) -> Change:
    at_ms, number = divmod(packed, _KINDS)
    return Change(at_ms, None if number == _RUN_BEGAN else _STATUSES[number])


def _batch_times(batch: Batch | BatchTotals) -> BatchTimes | None:
    phases_ms = batch.phases_ms
    duration_ms = batch.duration_ms
    if duration_ms is None:
        duration_ms = phases_ms.get(_WHOLE_BATCH)
    if duration_ms is None:
        return None
    times_ms = [duration_ms, 0, 0, 0]
    for phase, ms in phases_ms.items():
        part = _PHASES.get(phase)
        if part is not None:
            times_ms[part] += ms
    return BatchTimes(*times_ms)


def pack(row: Row) -> bytes:
    """Pack a row into `ROW_BYTES` bytes; ages, rates and durations keep 7 digits."""
    return _ROW.pack(
        row.measured_at_ms,
        _UNKNOWN_LAG if row.total_lag is None else row.total_lag,
        _UNKNOWN_LAG if row.max_total_lag is None else row.max_total_lag,
        nan if row.max_time_lag_s is None else row.max_time_lag_s,
        nan if row.input_rate is None else row.input_rate,
        nan if row.processed_rate is None else row.processed_rate,
        _NUMBER_OF_STATUS[row.status],
        *(row.batch or _NO_BATCH),
    )


def unpack(buffer: bytes | bytearray) -> Iterator[Row]:
    """The rows of a buffer. Ages and rates have spurious digits: see `significant`."""
    for values in _ROW.iter_unpack(buffer):
        at_ms, lag, max_lag, age_s, input_rate, processed_rate, status, *batch_ms = values
        yield Row(
            at_ms,
            None if lag == _UNKNOWN_LAG else lag,
            None if max_lag == _UNKNOWN_LAG else max_lag,
            None if isnan(age_s) else age_s,
            None if isnan(input_rate) else input_rate,
            None if isnan(processed_rate) else processed_rate,
            _STATUSES[status],
            None if isnan(batch_ms[0]) else BatchTimes(*batch_ms),
        )


def significant(number: float | None) -> float | None:
    """An age or a rate of an unpacked row, without its spurious digits."""
    return None if number is None else float(f"{number:.6g}")


class Resolution(NamedTuple):
    """A slot is at least its age / `fineness` wide, and at most twice that."""

    finest_ms: int
    fineness: int
    keep_ms: int

    def width_ms(self, age_ms: int) -> int:
        least = age_ms / self.fineness / self.finest_ms
        return self.finest_ms if least <= 1 else self.finest_ms << ceil(log2(least))

    def max_rows(self) -> int:
        """The number of rows of a query that has an event in every slot."""
        rows, age_ms = 0, 0
        while age_ms < self.keep_ms:
            width_ms = self.width_ms(age_ms + 1)
            # The width is constant up to here.
            until_ms = min(width_ms * self.fineness, self.keep_ms)
            rows += ceil((until_ms - age_ms) / width_ms) + 1
            age_ms = until_ms
        return rows

    def thinned(self, rows: Iterable[Row], now_ms: int) -> list[Row]:
        """The rows in order of time, one for each slot, none older than `keep_ms`."""
        thinned: list[Row] = []
        end_ms = 0
        for row in sorted(rows, key=lambda row: row.measured_at_ms):
            # A fast clock gives rows in the future: they are thinned alike.
            age_ms = abs(now_ms - row.measured_at_ms)
            if age_ms > self.keep_ms:
                continue
            if row.measured_at_ms < end_ms:
                thinned[-1] = thinned[-1].joined(row)
                continue
            width_ms = self.width_ms(age_ms)
            end_ms = (row.measured_at_ms // width_ms + 1) * width_ms
            thinned.append(row)
        return thinned
