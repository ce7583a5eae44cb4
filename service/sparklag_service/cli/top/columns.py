"""The columns of `sparklag top`, and the lag of queries over time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len

from sparklag_schemas.messages.enumerations import Mark
from sparklag_schemas.presentation.rows import CELLS, Summary, severity
from sparklag_schemas.text.formatting import span

STEP_S: Final = 60
"""The time of one character of the sparkline."""
STEPS: Final = 60
_STEP_MS: Final = STEP_S * 1000
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "?"


class LagHistory:
    """The highest total lag in each minute of the last hour."""

    def __init__(self) -> None:
        self._highest: dict[int, int | None] = {}

    def add(self, measured_at_ms: int, lag: int | None) -> None:
        """Add a measurement. None: unknown."""
        step = measured_at_ms // _STEP_MS
        highest = self._highest.get(step)
        self._highest[step] = highest if lag is None else max(lag, highest or 0)
        newest = max(self._highest)
        for old in [step for step in self._highest if step <= newest - STEPS]:
            del self._highest[old]

    def highest(self, now_ms: int, steps: int = STEPS) -> int | None:
        """The highest lag in the last `steps`. None: unknown in all."""
        now = now_ms // _STEP_MS
        lags = (lag for step, lag in self._highest.items() if now - steps < step <= now)
        return max((lag for lag in lags if lag is not None), default=None)

    def sparkline(self, now_ms: int, steps: int = STEPS) -> str:
        """A character for each of the last `steps`, in proportion to the highest. Lowest block: no
        lag; `?`: the lag was unknown; blank: not measured."""
        top = self.highest(now_ms, steps)
        now = now_ms // _STEP_MS
        return "".join(
            _character(self._highest[step], top) if step in self._highest else " "
            for step in range(now - steps + 1, now + 1)
        )


def _character(lag: int | None, top: int | None) -> str:
    if lag is None or top is None:
        return _UNKNOWN
    if lag == 0:
        return _BLOCKS[0]
    return _BLOCKS[max(1, round(lag / top * (len(_BLOCKS) - 1)))]


TREND_STEPS: Final = 12
MARK_SIGNS: Final[dict[Mark, str]] = {"bad": "!!", "warn": "!", "ok": ""}
"""The worst first. Signs besides colours, which a terminal may lack."""
_READABLE_REASON: Final = 30
_GAP: Final = 1
SELECTION_WIDTH: Final = 4
"""Cells of the signs before the columns: for the selected row, and for the status."""


class Column(NamedTuple):
    """A heading, and a function that returns the text of a query at a time (epoch milliseconds)."""

    heading: str
    text: Callable[[Summary, LagHistory, int], str]
    is_number: bool = True
    """Numbers are aligned right and never shortened."""


class Placed(NamedTuple):
    column: Column
    width: int


def _running(query: Summary) -> str:
    batch = query.running_batch
    if batch is None:
        return {"running": "runs", "waiting": "waits"}.get(query.activity or "", "")
    text = span((batch.observed_at - batch.started_at) / 1000)
    return f"{text}, {batch.tasks_done:,}/{batch.tasks_total:,}" if batch.tasks_total else text


def _headroom(query: Summary) -> str:
    if query.min_headroom_s is not None:
        return span(query.min_headroom_s)
    if query.min_headroom_records is not None:
        return f"{query.min_headroom_records:,} rec"
    return "" if query.total_lag == 0 else "unknown"


def _column(heading: str, is_number: bool = True) -> Column:
    text = CELLS[heading]
    return Column(heading, lambda query, _, now_ms: text(query, now_ms), is_number)


NAME: Final = _column("query", is_number=False)
STATUS: Final = _column("status", is_number=False)
LAG: Final = _column("lag")
TIME_LAG: Final = _column("time lag")
SPARKLINE: Final = Column(
    f"lag, {TREND_STEPS * STEP_S // 60} min",
    lambda _, history, now_ms: history.sparkline(now_ms, TREND_STEPS),
)
REASON: Final = _column("reason", is_number=False)
TREND: Final = _column("trend")
CATCH_UP: Final = _column("catch-up")
HEADROOM: Final = Column("headroom", lambda query, _, __: _headroom(query))
BATCH: Final = Column("running batch", lambda query, _, __: _running(query))
MEASURED: Final = _column("last measured")
APPLICATION: Final = _column("application", is_number=False)
_SHOWN: Final = (
    *(NAME, APPLICATION, STATUS, LAG, TIME_LAG, SPARKLINE, TREND, CATCH_UP, HEADROOM, BATCH),
    *(MEASURED, REASON),
)
"""The order from left to right."""
COLUMNS: Final = (
    *(NAME, STATUS, LAG, TIME_LAG, SPARKLINE, REASON, CATCH_UP, MEASURED, BATCH, HEADROOM, TREND),
    APPLICATION,
)
"""The order of importance: the last columns are dropped first."""
_LEAST: Final = {NAME: 16, STATUS: 9, REASON: 12}
"""Columns whose longer texts are shortened to these cells before a column is dropped."""
_GROWTH: Final = ((NAME, 24), (REASON, _READABLE_REASON), (NAME, 40))
"""Columns that get the rest of the width, in this order."""


def widths_of(queries: Sequence[Summary], now_ms: int) -> dict[Column, int]:
    """The width of each column's heading or longest text, in cells."""
    no_history = LagHistory()
    return {
        column: max(
            [len(column.heading)]
            + [cell_len(column.text(query, no_history, now_ms)) for query in queries]
        )
        for column in COLUMNS
    }


def placed_columns(total_width: int, widths: Mapping[Column, int]) -> list[Placed]:
    """The columns that fit, chosen by importance, from left to right.

    Numbers get the width they need; names and the reason share the rest.
    """
    least = {column: min(width, _LEAST.get(column, width)) for column, width in widths.items()}
    free = total_width - SELECTION_WIDTH + _GAP
    shown: dict[Column, int] = {}
    for column in COLUMNS:
        # A readable reason is more useful than the columns after it.
        reserved = min(widths[REASON], _READABLE_REASON) - least[REASON] if REASON in shown else 0
        if free - reserved < least[column] + _GAP and shown:
            break
        shown[column] = least[column]
        free -= least[column] + _GAP
    free = max(0, free)
    for column, most in (*_GROWTH, (REASON, total_width)):
        if column in shown:
            more = min(free, min(widths[column], most) - shown[column])
            shown[column] += more
            free -= more
    return [Placed(column, shown[column]) for column in _SHOWN if column in shown]


_Key = tuple[object, ...]


def _unknown_first(value: float | None) -> tuple[bool, float]:
    return (value is not None, -(value or 0))


def _time_lag_key(query: Summary) -> _Key:
    return _unknown_first(0 if query.total_lag == 0 else query.max_time_lag_s)


def _headroom_key(query: Summary) -> _Key:
    if query.min_headroom_s is not None:
        return (1, query.min_headroom_s)
    if query.total_lag == 0:
        return (3,)
    return (0 if query.min_headroom_records is None else 2,)


ORDERS: Final[dict[str, Callable[[Summary], _Key]]] = {
    "worst": lambda query: (
        *(severity(query.status), *_time_lag_key(query), *_unknown_first(query.total_lag)),
    ),
    "lag": lambda query: _unknown_first(query.total_lag),
    "time lag": _time_lag_key,
    "trend": lambda query: _unknown_first(query.lag_trend),
    "catch-up": lambda query: _unknown_first(0 if query.total_lag == 0 else query.catch_up_s),
    "headroom": _headroom_key,
    "query": lambda query: (query.display_name.casefold(),),
}
"""Sort keys by column name, and by `worst`. The lowest key comes first."""
