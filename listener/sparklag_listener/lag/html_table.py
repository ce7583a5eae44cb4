"""Lag as HTML for notebooks: no scripts, styles inline, readable on light and dark. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, get_args

from sparklag_schemas import LagEvent
from sparklag_schemas.formatting import Mark, ago, catch_up, mark, oldest, records, trend
from sparklag_schemas.printable import printable

_MAX_ROWS: Final = 50
_MAX_NAME: Final = 80
_MAX_REASON: Final = 300
_WORST_FIRST: Final[tuple[Mark, ...]] = get_args(Mark)
_COLORS: Final[dict[Mark, str]] = {"bad": "#d64545", "warn": "#b58105", "ok": "#2f9e58"}
_SYMBOLS: Final[dict[Mark, str]] = {"bad": "✖", "warn": "▲", "ok": "●"}
_HEADINGS: Final = (
    *("query", "status", "lag", "oldest", "trend", "caught up in", "last seen", "reason"),
)
_NUMBERS: Final = {"lag", "oldest", "trend", "caught up in"}
_LONG: Final = {"query", "reason"}
_BORDER: Final = "border-bottom:1px solid rgba(128,128,128,.35)"


def lag_table(events: Sequence[LagEvent], now_ms: int) -> str:
    """A row for each query, the worst status first."""
    if not events:
        return paragraph("no lag is published yet of the queries that are observed")
    ranked = sorted(events, key=lambda event: _WORST_FIRST.index(mark(event.status)))
    head = "".join(_cell("th", name, escape(name)) for name in _HEADINGS)
    rows = "".join(f"<tr>{_row(event, now_ms)}</tr>" for event in ranked[:_MAX_ROWS])
    table = (
        '<table style="border-collapse:collapse;background:none;color:inherit;font:inherit">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
    if len(events) > _MAX_ROWS:
        table += paragraph(f"{len(events) - _MAX_ROWS:,} more queries; lags() has them all")
    return table


def paragraph(text: str) -> str:
    """A line of any text."""
    return f'<div style="opacity:.8">{escape(printable(text, 1_000))}</div>'


def _row(event: LagEvent, now_ms: int) -> str:
    level = mark(event.status)
    status = f"{_SYMBOLS[level]} {escape(printable(event.status, _MAX_NAME))}"
    texts: Iterable[str] = (
        records(event.total_lag),
        oldest(event.total_lag, event.max_time_lag_s),
        trend(event.lag_trend),
        catch_up(event.catch_up_s, event.catch_up_reason),
        ago(event.observed_at, now_ms),
        printable(event.reason or "", _MAX_REASON),
    )
    cells = [
        f"<bdi>{escape(printable(event.display_name, _MAX_NAME))}</bdi>",
        f'<span style="color:{_COLORS[level]};font-weight:bold">{status}</span>',
        *map(escape, texts),
    ]
    return "".join(_cell("td", name, cell) for name, cell in zip(_HEADINGS, cells, strict=True))


def _cell(tag: str, heading: str, content: str) -> str:
    """`content` is HTML."""
    align = "right" if heading in _NUMBERS else "left"
    wrap = "normal" if heading in _LONG else "nowrap"
    style = f"text-align:{align};white-space:{wrap};padding:2px 8px;{_BORDER}"
    return f'<{tag} style="{style}">{content}</{tag}>'
