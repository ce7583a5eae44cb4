"""A row of a query's history, and how it is packed. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import isnan, nan
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
    """A slot of time. None: not known. `max_…` are the highest in it; the others, the last."""

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


def row(
    measured_at_ms: int,
    total_lag: int | None,
    max_time_lag_s: float | None,
    input_rate: float | None,
    processed_rate: float | None,
    status: str,
) -> Row:
    """What one event says. A status that this version does not know counts as UNKNOWN."""
    number = _NUMBER_OF_STATUS.get(status, _UNKNOWN)
    return Row(
        measured_at_ms,
        total_lag,
        total_lag,
        max_time_lag_s,
        input_rate,
        processed_rate,
        _STATUSES[number],
        1 << number,
    )


class Totals(Struct, frozen=True, kw_only=True, gc=False):
    """Of a lag event, what the history keeps: the partitions are skipped, not decoded."""

    query_id: Name
    measured_at: EpochMs
    status: OpenStatus
    total_lag: Count | None = None
    max_time_lag_s: DurationS | None = None
    input_rate: SignedRate | None = None
    processed_rate: SignedRate | None = None


def row_of(said: LagEvent | Totals) -> Row:
    """What one event says."""
    return row(
        said.measured_at,
        said.total_lag,
        said.max_time_lag_s,
        said.input_rate,
        said.processed_rate,
        said.status,
    )


def pack(packed: Row) -> bytes:
    """In `ROW_BYTES` bytes; ages and rates to 7 digits."""
    return _ROW.pack(
        packed.measured_at_ms,
        _UNKNOWN_LAG if packed.total_lag is None else packed.total_lag,
        _UNKNOWN_LAG if packed.max_total_lag is None else packed.max_total_lag,
        nan if packed.max_time_lag_s is None else packed.max_time_lag_s,
        nan if packed.input_rate is None else packed.input_rate,
        nan if packed.processed_rate is None else packed.processed_rate,
        packed.status_bits,
        _NUMBER_OF_STATUS[packed.status],
    )


def unpack(buffer: bytes | bytearray) -> Iterator[Row]:
    """The rows in it. Ages and rates have more digits than are known: see `in_known_digits`."""
    for at_ms, lag, max_lag, age_s, came, went, bits, status in _ROW.iter_unpack(buffer):
        yield Row(
            at_ms,
            None if lag == _UNKNOWN_LAG else lag,
            None if max_lag == _UNKNOWN_LAG else max_lag,
            _known(age_s),
            _known(came),
            _known(went),
            _STATUSES[status],
            bits,
        )


def in_known_digits(number: float | None) -> float | None:
    """An age or a rate of a row that was packed."""
    return None if number is None else float(f"{number:.6g}")


def _known(number: float) -> float | None:
    return None if isnan(number) else number
