"""`GET /`: a row for each query, those that need attention first."""

from __future__ import annotations

import html
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from sparklag_schemas import LagEvent
from sparklag_schemas.formatting import MARKS, catch_up, mark, oldest, records, trend
from sparklag_schemas.printable import printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.paths import path_segment
from sparklag_service.view.lag_text import causes

_NO_ROWS: Final = '<tr><td colspan="7">No query has been observed yet.</td></tr>'


def add_page(app: FastAPI, backend: Backend) -> None:
    """The route."""

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        template = files("sparklag_service.rest").joinpath("index.html").read_text(encoding="utf-8")
        table = rows((entry.event for entry in backend.view), epoch_ms())
        return HTMLResponse(template.replace("{rows}", table))


def rows(events: Iterable[LagEvent], now_ms: int) -> str:
    """The table's body as HTML."""
    listed = sorted((event for event in events if event.superseded_by is None), key=_order)
    return "".join(_row(event, now_ms) for event in listed) or _NO_ROWS


def _order(event: LagEvent) -> tuple[int, str, str]:
    return MARKS.index(mark(event.status)), event.display_name, event.query_id


def _row(event: LagEvent, now_ms: int) -> str:
    return (
        f'<tr><td><a href="lag/{path_segment(event.query_id)}">'
        f"{_escape(event.display_name)}</a></td>"
        f'<td class="{mark(event.status)}">{_escape(event.status)}</td>'
        f"<td>{records(event.total_lag)}</td>"
        f"<td>{oldest(event.total_lag, event.max_time_lag_s)}</td>"
        f"<td>{trend(event.lag_trend)}</td>"
        f"<td>{_catch_up(event)}</td>"
        f"<td>{_why(event, now_ms)}</td></tr>"
    )


def _catch_up(event: LagEvent) -> str:
    text = catch_up(event.catch_up_s, event.catch_up_reason)
    if event.catch_up_reason is None:
        return text
    return f'<abbr title="{_escape(event.catch_up_reason)}">{text}</abbr>'


def _why(event: LagEvent, now_ms: int) -> str:
    """Its reason; of a query that lags and is not healthy, the causes too."""
    why = _escape(event.reason or "")
    if not event.total_lag or mark(event.status) == "ok":
        return why
    all_causes = _escape("; ".join(causes(event, now_ms)))
    return f"{why}<br><small>{all_causes}</small>" if all_causes else why


def _escape(text: str) -> str:
    return html.escape(printable(text, len(text)))
