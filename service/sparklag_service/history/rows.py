"""The rows of a query's history: how one is packed, and how old ones are joined. Pure.

A row is a slot of time. The width of a slot is a power of two times the finest, and slots begin at
whole multiples of their width: two neighbours always make one of the next width, whenever that is
done.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from math import ceil, isnan, log2, nan
from typing import Final, NamedTuple, get_args

from msgspec import Struct

from sparklag_schemas import LagEvent, Status
from sparklag_schemas.bounds import Count, DurationS, EpochMs, Name, SignedRate
from sparklag_schemas.enumerations import OpenStatus

_STATUSES: Final[tuple[Status, ...]] = get_args(Status)
_NUMBER_OF_STATUS: Final[dict[str, int]] = {
    status: number for number, status in enumerate(_STATUSES)
}
_UNKNOWN: Final = _NUMBER_OF_STATUS["UNKNOWN"]
_ROW: Final = struct.Struct("<qqqfffHB")
_UNKNOWN_LAG: Final = -1

ROW_BYTES: Final = _ROW.size


class Row(NamedTuple):
    """A slot of time. None: unknown. `max_…` are the highest in it; the others, the last."""

    measured_at_ms: int
    total_lag: int | None
    max_total_lag: int | None
    max_time_lag_s: float | None
    input_rate: float | None
    processed_rate: float | None
    status: Status
    status_bits: int
    """A bit for each status that it had."""

    def joined(self, later: Row) -> Row:
        """Both in one."""
        lags = [lag for lag in (self.max_total_lag, later.max_total_lag) if lag is not None]
        ages_s = [age for age in (self.max_time_lag_s, later.max_time_lag_s) if age is not None]
        return later._replace(
            max_total_lag=max(lags, default=None),
            max_time_lag_s=max(ages_s, default=None),
            status_bits=self.status_bits | later.status_bits,
        )

    @property
    def statuses(self) -> list[Status]:
        """All that it had."""
        return [s for number, s in enumerate(_STATUSES) if self.status_bits >> number & 1]


class Totals(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a lag event that the history stores: the partitions are not decoded."""

    query_id: Name
    measured_at: EpochMs
    status: OpenStatus
    total_lag: Count | None = None
    max_time_lag_s: DurationS | None = None
    input_rate: SignedRate | None = None
    processed_rate: SignedRate | None = None


def row_of(event: LagEvent | Totals) -> Row:
    """Of one event. A status of a newer version counts as UNKNOWN."""
    number = _NUMBER_OF_STATUS.get(event.status, _UNKNOWN)
    return Row(
        event.measured_at,
        event.total_lag,
        event.total_lag,
        event.max_time_lag_s,
        event.input_rate,
        event.processed_rate,
        _STATUSES[number],
        1 << number,
    )


def pack(row: Row) -> bytes:
    """In `ROW_BYTES` bytes; ages and rates to 7 digits."""
    return _ROW.pack(
        row.measured_at_ms,
        _UNKNOWN_LAG if row.total_lag is None else row.total_lag,
        _UNKNOWN_LAG if row.max_total_lag is None else row.max_total_lag,
        nan if row.max_time_lag_s is None else row.max_time_lag_s,
        nan if row.input_rate is None else row.input_rate,
        nan if row.processed_rate is None else row.processed_rate,
        row.status_bits,
        _NUMBER_OF_STATUS[row.status],
    )


def unpack(buffer: bytes | bytearray) -> Iterator[Row]:
    """The rows in it. Ages and rates have spurious digits: see `significant`."""
    for at_ms, lag, max_lag, age_s, input_rate, processed_rate, bits, status in _ROW.iter_unpack(
        buffer
    ):
        yield Row(
            at_ms,
            None if lag == _UNKNOWN_LAG else lag,
            None if max_lag == _UNKNOWN_LAG else max_lag,
            None if isnan(age_s) else age_s,
            None if isnan(input_rate) else input_rate,
            None if isnan(processed_rate) else processed_rate,
            _STATUSES[status],
            bits,
        )


def significant(number: float | None) -> float | None:
    """An age or a rate of a row that was packed, without its spurious digits."""
    return None if number is None else float(f"{number:.6g}")


class Resolution(NamedTuple):
    """A slot is at least its age / `fineness` wide, and at most twice that."""

    finest_ms: int
    fineness: int
    keep_ms: int

    def width_ms(self, age_ms: int) -> int:
        """Of a slot of that age."""
        least = age_ms / self.fineness / self.finest_ms
        return self.finest_ms if least <= 1 else self.finest_ms << ceil(log2(least))

    def max_rows(self) -> int:
        """Of a query that has an event in every slot."""
        rows, age_ms = 0, 0
        while age_ms < self.keep_ms:
            width_ms = self.width_ms(age_ms + 1)
            # That width lasts until here.
            until_ms = min(width_ms * self.fineness, self.keep_ms)
            rows += ceil((until_ms - age_ms) / width_ms) + 1
            age_ms = until_ms
        return rows

    def thinned(self, rows: Iterable[Row], now_ms: int) -> list[Row]:
        """In order of time, one in each slot, without those older than `keep_ms`."""
        thinned: list[Row] = []
        end_ms = 0
        for row in sorted(rows, key=lambda row: row.measured_at_ms):
            # A clock that is ahead puts rows into the future: they are as many.
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
