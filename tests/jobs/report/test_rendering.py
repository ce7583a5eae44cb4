"""The report as JSON, HTML and in a terminal."""

from __future__ import annotations

import io
import json
import re
from argparse import Namespace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from sparklag_jobs.history.rollups import WorstPartition
from sparklag_jobs.report.lag_report import _write, as_json
from sparklag_jobs.report.page import as_html
from sparklag_jobs.report.query_report import QueryReport, query_reports
from sparklag_jobs.report.screen import print_report
from tests.jobs.report.rolled import MINUTE_MS, START_MS, dark, hour, minute
from tests.service.cli.terminals import large_numbers

NASTY = '<script>alert("x")</script>'
UNTIL_MS = START_MS + 180 * MINUTE_MS
VOID = {"meta"}


@pytest.fixture
def reports() -> list[QueryReport]:
    worst = (WorstPartition(0, NASTY, 3, 70, 9.0),)
    minutes = [
        minute(number, query=NASTY, worst=worst, within_target_s=0.0 if 20 < number < 60 else 60.0)
        for number in range(180)
        if not 100 < number < 110
    ]
    hours = [
        hour(number, query=NASTY, input_rate=90.0 + number, batch_rate=100.0) for number in range(9)
    ]
    return query_reports([*minutes, dark(5, query_id="dark", query=None)], hours)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "xlink:href")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_remains_alone_and_shows_names_as_text(reports: list[QueryReport]) -> None:
    html = as_html(reports, START_MS, UNTIL_MS)
    page = _Page()
    page.feed(html)
    assert page.open == []
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    assert page.links == ["#q0", "#q1"]
    assert "url(" not in html
    assert "@import" not in html
    assert NASTY in page.text
    assert page.tags.count("svg") == 2 * 1
    # The episode in both charts; each line in two parts, because of the hole.
    assert html.count('class="missed"') == 2
    assert page.tags.count("polyline") == 4
    assert "prefers-color-scheme: dark" in html


def test_the_document_names_every_number_and_leaves_out_none(reports: list[QueryReport]) -> None:
    result = json.loads(as_json(reports, START_MS, UNTIL_MS))
    assert (result["format_version"], result["since"], result["until"]) == (
        "1.0",
        START_MS,
        UNTIL_MS,
    )
    bad, unknown = result["queries"]
    assert bad["episodes"] == [
        {
            "from": START_MS + 21 * MINUTE_MS,
            "to": START_MS + 60 * MINUTE_MS,
            "duration_s": 2340.0,
            "max_lag": 4,
            "max_time_lag_s": 0.4,
        }
    ]
    assert bad["lag"] == {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0}
    assert bad["worst_partitions"][0]["topic"] == NASTY
    assert bad["capacity"]["utilisation"] == pytest.approx(0.98)
    assert unknown.keys() == bad.keys()
    assert [unknown[name] for name in ("share_within_target", "lag", "processed")] == [None] * 3


def printed(reports: list[QueryReport], width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, highlight=False)
    print_report(screen, reports, START_MS, UNTIL_MS)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_all_within_its_width(reports: list[QueryReport], width: int) -> None:
    lines = printed(reports, width)
    assert max(map(len, lines)) <= width
    assert "queries, the worst first" in " ".join(lines[:2])
    assert all(any(text in line for line in lines) for text in ("39 min", "1×"))
    assert any("98%, passed" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_a_number_whole_or_names_its_column(width: int) -> None:
    high = (0.0, 126_671.0, 126_671.0, 654_321.0)
    worst = (WorstPartition(0, "t" * 249, 3, 126_671, 9.0),)
    minutes = [
        minute(n, query=f"{'q' * 60}{n}", query_id=str(n), lag=high, processed=234_567, worst=worst)
        for n in range(3)
    ]
    text = " ".join(printed(query_reports(minutes, []), width))
    assert text.count("654,321") >= 3
    assert large_numbers(text) <= {"126,671", "654,321", "234,567"}
    for heading, number in (("lag p95", "126,671"), ("processed", "234,567")):
        assert number in text or re.search(f"not shown in .*{heading}", text)


def test_a_file_has_every_column_and_query(reports: list[QueryReport], tmp_path: Path) -> None:
    named = [replace(report, query="q" * 400) for report in reports]
    output = tmp_path / "report.txt"
    _write(named, START_MS, UNTIL_MS, Namespace(format="table", output=output))
    text = output.read_text()
    assert "not shown" not in text
    assert "\x1b" not in text
    # In three tables, of which one has the query with an episode alone.
    assert text.count("q" * 400) == 5
    (worst,) = (line for line in text.splitlines() if "98%, passed" in line)
    assert worst.rstrip().endswith(f"70 in {NASTY}[3]")
