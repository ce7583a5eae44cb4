"""The first page: every query in a row, those that need somebody first. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from sparklag_schemas import LagEvent, Status
from sparklag_service.causes import causes
from sparklag_service.words import catch_up, records, span, trend

_WELL: Final[frozenset[Status]] = frozenset({"OK", "FINISHED"})
_NOT_SURE: Final[frozenset[Status]] = frozenset({"WARN", "UNKNOWN"})
_NO_ROWS: Final = '<tr><td colspan="7">No query has been observed yet.</td></tr>'


def rows(events: Iterable[LagEvent], now_ms: int) -> str:
    """The table's body as HTML."""
    listed = sorted(events, key=lambda event: (_urgency(event), event.display_name, event.query_id))
    return "".join(_row(event, now_ms) for event in listed) or _NO_ROWS


def _urgency(event: LagEvent) -> int:
    return 2 if event.status in _WELL else 1 if event.status in _NOT_SURE else 0


def _row(event: LagEvent, now_ms: int) -> str:
    mark = ("bad", "warn", "ok")[_urgency(event)]
    return (
        f'<tr><td><a href="lag/{html.escape(event.query_id)}">'
        f"{html.escape(event.display_name)}</a></td>"
        f'<td class="{mark}">{event.status}</td>'
        f"<td>{records(event.total_lag)}</td>"
        f"<td>{_oldest(event)}</td>"
        f"<td>{trend(event.lag_trend)}</td>"
        f"<td>{_catch_up(event)}</td>"
        f"<td>{_why(event, now_ms)}</td></tr>"
    )


def _oldest(event: LagEvent) -> str:
    if event.total_lag == 0:
        return ""
    return "unknown" if event.max_time_lag_s is None else span(event.max_time_lag_s)


def _catch_up(event: LagEvent) -> str:
    text = catch_up(event.catch_up_s, event.catch_up_reason)
    if event.catch_up_reason is None:
        return text
    return f'<abbr title="{html.escape(event.catch_up_reason)}">{text}</abbr>'


def _why(event: LagEvent, now_ms: int) -> str:
    """Its reason; of a query that lags and is not well, what holds it back too."""
    why = html.escape(event.reason or "")
    if not event.total_lag or event.status in _WELL:
        return why
    told = html.escape("; ".join(causes(event, now_ms)))
    return f"{why}<br><small>{told}</small>" if told else why
