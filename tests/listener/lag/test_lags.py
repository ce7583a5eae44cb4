"""The lag of several queries as a notebook shows it."""

from __future__ import annotations

import threading
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import nbformat
import pytest
from nbclient import NotebookClient

from sparklag_listener.lag import lags
from sparklag_listener.lag.lags import Lags, LiveTable, kernel_shell, lag_html, lag_table, paragraph
from sparklag_schemas import SparklagError
from sparklag_schemas.presentation import sentences
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.waiting import wait_for

NOW_MS = 1_790_000_010_200
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=y>\u202egnp\x1b[31m" + "x" * 5_000


class Table(HTMLParser):
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


def test_a_row_reports_how_far_behind_a_query_is() -> None:
    event = lag_event(max_time_lag_s=1.8, lag_trend=-5.0, catch_up_s=13.0)
    heading, row = Table(lag_table([event], NOW_MS)).rows
    assert dict(zip(heading, row, strict=True)) == {
        "query": "orders",
        "status": "● OK",
        "lag": "65",
        "time lag": "1.8 s",
        "trend": "-5.0/s",
        "catch-up": "13 s",
        "last measured": "10 s ago",
        "reason": "",
    }


def test_what_is_unknown_is_not_shown_as_zero() -> None:
    event = lag_event(status="UNKNOWN", total_lag=None, max_lag=None, reason="no broker answers")
    _, row = Table(lag_table([event], NOW_MS)).rows
    assert row[1:6] == ["▲ UNKNOWN", "unknown", "unknown", "unknown", "unknown"]
    assert row[-1] == "no broker answers"


def test_hostile_names_statuses_and_reasons_stay_text() -> None:
    event = lag_event(query=HOSTILE, reason=HOSTILE, status=HOSTILE[:100])
    html = lag_table([event], NOW_MS) + paragraph(HOSTILE) + sentences.html(event)
    table = Table(html)
    assert table.tags == {"table", "thead", "tbody", "tr", "th", "td", "bdi", "span", "div", "pre"}
    assert table.attributes == {"style"}
    assert table.rows[1][0].startswith(r"</td><script>alert(1)</script><img src=x onerror=y>\u202e")
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert len(html) < 10_000


def test_the_worst_come_first_and_no_more_than_fit_a_cell() -> None:
    events = [lag_event(query_id=f"q{number}", query=f"q{number}") for number in range(60)]
    events[7] = msgspec.structs.replace(events[7], status="WARN")
    events[9] = msgspec.structs.replace(events[9], status="STOP")
    html = lag_table(events, NOW_MS)
    rows = Table(html).rows[1:]
    assert [row[0] for row in rows[:3]] == ["q9", "q7", "q0"]
    assert len(rows) == 50
    assert "10 more queries" in html


def test_a_table_without_queries_reports_so() -> None:
    assert "no lag is published yet" in lag_table([], NOW_MS)


CELL_S = 300
"""A Spark driver on a busy machine."""
OBSERVE = """
import sys
from urllib.request import urlopen
from sparklag_listener import observe
from tests.listener.drivers import build_session, read_kafka, start_query
from tests.waiting import wait_for

spark = build_session({{"spark.ui.enabled": "true"}})
handle = observe(
    spark, {servers!r}, embedded=True, http_port=0, lag_topic={lag_topic!r}, heartbeat_s=2
)
frame = read_kafka(spark, {servers!r}, subscribe={topic!r})
query = start_query(frame, {checkpoint!r}, "orders <b>")
wait_for(lambda: any(event.total_lag == 0 for event in handle.lags()), "it has caught up")
event = handle.lag("orders <b>")
assert event.spark_ui_url == spark.sparkContext.uiWebUrl
with urlopen(f"{{event.spark_ui_url}}/StreamingQuery/statistics/?id={{event.run_id}}") as page:
    assert b"Streaming Query Statistics" in page.read()
handle
"""
STOP = """
updates = []
publisher = get_ipython().display_pub
publish = publisher.publish

def publish_and_keep(data, *arguments, update=False, **named):
    if update:
        updates.append(data["text/html"])
    return publish(data, *arguments, update=update, **named)

publisher.publish = publish_and_keep
query.stop()
wait_for(lambda: any("FINISHED" in html for html in updates), "the table shows its end")
handle.close()
wait_for(lambda: any("not refreshed any more" in html for html in updates), "it is done")
publisher.publish = publish
"""


def test_in_a_real_kernel_a_lag_is_shown_in_sentences() -> None:
    source = """
from sparklag_listener.lag.lags import show_in_notebooks
from tests.messages import lag_event
show_in_notebooks()
lag_event(query="orders <b>")
"""
    v4: Any = nbformat.v4  # it has no types
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=CELL_S, kernel_name="python3").execute(
        cwd=str(Path(__file__).parents[3])
    )
    (output,) = notebook.cells[0].outputs
    assert output.data["text/html"].startswith("<pre>orders &lt;b&gt;  OK")


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
def test_in_a_real_kernel_the_handle_is_a_table_that_follows_the_query(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    second_client.create(topic_name, 2)
    second_client.produce(topic_name, [b"1", b"2", b"3"])
    observe = OBSERVE.format(
        servers=kafka.bootstrap_servers,
        topic=topic_name,
        lag_topic=f"{topic_name}-lag",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    v4: Any = nbformat.v4  # it has no types
    cells = [v4.new_code_cell(source) for source in (observe, STOP)]
    notebook = v4.new_notebook(cells=cells)
    shown: list[str] = []

    def keep_first(cell: Any, cell_index: int, **_: Any) -> None:
        if cell_index == 0:
            shown.extend(output.data["text/html"] for output in tables(cell))

    client = NotebookClient(
        notebook, timeout=CELL_S, kernel_name="python3", on_cell_executed=keep_first
    )
    client.execute(cwd=str(Path(__file__).parents[3]))
    (first,), (last,) = shown, [output.data for output in tables(notebook.cells[0])]
    assert "<bdi>orders &lt;b&gt;</bdi>" in first
    assert "● OK" in first
    assert "<bdi>orders &lt;b&gt;</bdi>" in last["text/html"]
    assert "● FINISHED" in last["text/html"]
    assert "not refreshed any more: the handle is closed" in last["text/html"]
    assert last["text/plain"].startswith("<ObserverHandle: closed application")
    assert tables(notebook.cells[1]) == []


def tables(cell: Any) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == "display_data"]


class FakeHandle:
    def __init__(self) -> None:
        self.closed = False
        self.error: Exception | None = None

    def read(self) -> Lags | None:
        if self.error is not None:
            raise self.error
        return None if self.closed else Lags([lag_event()])

    def __repr__(self) -> str:
        return "<a fake & handle>"


class FakeEvents:
    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def register(self, event: str, callback: Any) -> None:
        assert event == "post_run_cell"
        self.callbacks.append(callback)

    def unregister(self, event: str, callback: Any) -> None:
        self.callbacks.remove(callback)


class Shown:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outputs: list[str] = []
        self.fail: Exception | None = None
        monkeypatch.setattr(lags, "INTERVAL_S", 0.01)
        monkeypatch.setattr("IPython.display.display", self.display)
        self.handle, self.events = FakeHandle(), FakeEvents()
        self.table = LiveTable(
            self.handle.__repr__, self.handle.read, SimpleNamespace(events=self.events)
        )

    def display(self, data: Any, **options: Any) -> Any:
        self.outputs.append(data["text/html"])
        return SimpleNamespace(update=self.update)

    def update(self, data: Any, **options: Any) -> None:
        if self.fail is not None:
            raise self.fail
        self.outputs.append(data["text/html"])

    def is_done(self) -> bool:
        return not any(thread.name == "sparklag-table" for thread in threading.enumerate())

    def refreshes(self) -> None:
        received = len(self.outputs)
        wait_for(lambda: len(self.outputs) > received + 1, "it is refreshed")

    def ends(self) -> str:
        wait_for(self.is_done, "its thread has ended")
        assert self.events.callbacks == []
        return self.outputs[-1]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return Shown(monkeypatch)


def test_it_ends_where_the_kernel_is_interrupted_and_not_with_another_error(shown: Shown) -> None:
    shown.table.show()
    (callback,) = shown.events.callbacks
    callback(SimpleNamespace(error_in_exec=ValueError()))
    callback(SimpleNamespace(error_in_exec=None))
    shown.refreshes()
    callback(SimpleNamespace(error_in_exec=KeyboardInterrupt()))
    assert "the kernel was interrupted" in shown.ends()


def test_it_ends_after_its_time(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lags, "MAX_LIVE_S", 0.0)
    shown.table.show()
    assert "display it again" in shown.ends()


def test_an_error_of_reading_is_a_line_and_the_next_refresh_may_succeed(shown: Shown) -> None:
    shown.table.show()
    shown.handle.error = SparklagError("no <service>\x1b there")
    wait_for(lambda: r"no &lt;service&gt;\x1b there" in shown.outputs[-1], "the error is shown")
    shown.handle.error = None
    wait_for(lambda: "<bdi>orders</bdi>" in shown.outputs[-1], "the table is back")
    shown.table.stop("it is displayed again")
    assert "it is displayed again" in shown.ends()


@pytest.mark.parametrize("part", ["reading", "updating"])
def test_an_unexpected_error_ends_it_with_a_line_in_the_log(
    shown: Shown, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    shown.table.show()
    if part == "reading":
        shown.handle.error = ZeroDivisionError("unexpected")
    else:
        shown.fail = ZeroDivisionError("unexpected")
    shown.ends()
    assert "a table is not refreshed any more: ZeroDivisionError('unexpected')" in caplog.text


def test_a_closed_handle_is_shown_once(shown: Shown) -> None:
    shown.handle.closed = True
    shown.table.show()
    assert shown.is_done()
    assert shown.outputs == [lag_html(repr(shown.handle), shown.handle.read)]
    assert "&lt;a fake &amp; handle&gt;" in shown.outputs[0]


def test_outside_of_a_notebook_it_leaves_the_display_to_repr() -> None:
    with pytest.raises(NotImplementedError):
        kernel_shell()
