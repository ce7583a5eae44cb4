"""Lag as HTML: whatever is in a name or a reason, it stays text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import msgspec

from sparklag_listener.lag.html_table import lag_table, paragraph
from tests.messages import lag_event

NOW_MS = 1_790_000_010_200
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=y>\u202egnp\x1b[31m" + "x" * 5_000


class Table(HTMLParser):
    """The tags, their attributes, and the text of each cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1][-1] += data


def test_a_row_says_how_far_behind_a_query_is() -> None:
    event = lag_event(max_time_lag_s=1.8, lag_trend=-5.0, catch_up_s=13.0)
    heading, row = Table(lag_table([event], NOW_MS)).rows
    assert dict(zip(heading, row, strict=True)) == {
        "query": "orders",
        "status": "● OK",
        "lag": "65",
        "oldest": "1.8 s",
        "trend": "-5.0/s",
        "caught up in": "13 s",
        "last seen": "10 s ago",
        "reason": "",
    }


def test_what_is_unknown_is_not_shown_as_zero() -> None:
    event = lag_event(status="UNKNOWN", total_lag=None, max_lag=None, reason="no broker answers")
    _, row = Table(lag_table([event], NOW_MS)).rows
    assert row[1:6] == ["▲ UNKNOWN", "unknown", "unknown", "unknown", "unknown"]
    assert row[-1] == "no broker answers"


def test_hostile_names_statuses_and_reasons_stay_text() -> None:
    event = lag_event(query=HOSTILE, reason=HOSTILE, status=HOSTILE[:100])
    html = lag_table([event], NOW_MS) + paragraph(HOSTILE)
    table = Table(html)
    assert table.tags == {"table", "thead", "tbody", "tr", "th", "td", "bdi", "span", "div"}
    assert table.attributes == {"style"}
    assert table.rows[1][0].startswith(r"</td><script>alert(1)</script><img src=x onerror=y>\u202e")
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert len(html) < 5_000


def test_the_worst_come_first_and_no_more_than_fit_a_cell() -> None:
    events = [lag_event(query_id=f"q{number}", query=f"q{number}") for number in range(60)]
    events[7] = msgspec.structs.replace(events[7], status="WARN")
    events[9] = msgspec.structs.replace(events[9], status="STOP")
    html = lag_table(events, NOW_MS)
    rows = Table(html).rows[1:]
    assert [row[0] for row in rows[:3]] == ["q9", "q7", "q0"]
    assert len(rows) == 50
    assert "10 more queries" in html


def test_no_query_is_said_in_words() -> None:
    assert "no lag is published yet" in lag_table([], NOW_MS)
