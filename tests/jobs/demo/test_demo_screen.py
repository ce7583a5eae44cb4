"""What the demo prints, and what it knows of a query."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from typer.testing import CliRunner

import sparklag
from sparklag_jobs.demo import __main__ as demo
from sparklag_jobs.demo import order_producer, order_totals
from sparklag_jobs.demo.processes import QueryLag
from sparklag_jobs.demo.screen import (
    Screen,
    broker_usage,
    lag_picture,
    next_steps,
    own_command,
    own_python,
    plain_line,
)
from sparklag_schemas import Status
from sparklag_schemas.messages.lag_event import LagEvent
from sparklag_service.cli import app
from tests.jobs.lag_events import lag_event


def _is_taken(arguments: list[str]) -> bool:
    name, *rest = arguments
    if name == "demo":
        # A program of its own, which this would start.
        return bool(demo._arguments(rest).kafka_only)
    return CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("text", [next_steps("COMMAND"), broker_usage("b:9092", "COMMAND", "PY")])
def test_every_command_is_one_that_there_is(text: str) -> None:
    commands = re.findall(r"COMMAND (.+)$", text, re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        assert _is_taken(shlex.split(command)), command
    assert not _is_taken(["serve", "--bootstrap-server", "b:9092"])


def test_the_lines_for_the_driver_are_its_import_and_its_call() -> None:
    text = next_steps(".venv/bin/sparklag")
    lines = [*text.splitlines(), *broker_usage("127.0.0.1:29092", "venv", "venv").splitlines()]
    assert max(map(len, lines)) <= 80
    assert f"import {sparklag.__name__}\n" in text
    assert f"handle = sparklag.{sparklag.observe.__name__}(spark)" in text
    assert "sparklag-run spark-submit" in text


@pytest.mark.parametrize("program", [order_producer, order_totals])
def test_a_program_beside_the_broker_takes_its_address(program: ModuleType) -> None:
    name = program.__name__
    (arguments,) = re.findall(rf"PY -m {name} \\\n +(.+)$", broker_usage("b:9092", "", "PY"), re.M)
    parsed = program._arguments(shlex.split(arguments))
    assert parsed.bootstrap_servers == "b:9092"


def test_a_program_is_named_as_the_reader_can_type_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    folder = Path(sys.executable).parent
    monkeypatch.chdir(folder.parent)
    assert own_command() == f"{folder.name}/sparklag"
    assert own_python() == f"{folder.name}/{Path(sys.executable).name}"
    monkeypatch.setenv("PATH", str(folder))
    assert own_command() == "sparklag"


ADDRESSES = {
    "the page": "http://127.0.0.1:8085/",
    "the lag, over REST": "curl http://127.0.0.1:8085/lag/orders",
    "the lag events": "sparklag tail --bootstrap-servers 127.0.0.1:29092",
}
WHY = "the query failed: [USER_RAISED_EXCEPTION] invoice 1a-320 has the amount -14529 cents"


def _lag(name: str, event: LagEvent | None) -> QueryLag:
    lag = QueryLag(name, started_at=100.0)
    if event is not None:
        lag.add(event, now=101.0)
    return lag


def _lags() -> list[QueryLag]:
    failed = lag_event(query="invoices", lag=1_234_567, status="FAILED", reason=WHY)
    return [
        _lag("orders", lag_event(lag=1234, processed=5000, at=3000)),
        _lag("payments", None),
        _lag("invoices", failed),
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60)])
def test_a_row_for_each_query_and_the_addresses_fit_the_terminal(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(lag_picture(_lags(), 4000, ADDRESSES))
    shown = console.export_text().splitlines()
    assert len(shown) < height
    assert all(len(line.rstrip()) <= width for line in shown)
    for query, *cells in (
        ("orders", "OK", "1,234", "1,234 in orders[0]"),
        ("payments", "starting"),
        ("invoices", "FAILED", "1,234,567", "1,234,567 in orders[0]"),
    ):
        (row,) = [line for line in shown if line.startswith(f"{query} ") and ": the" not in line]
        assert all(cell in row for cell in cells), row
    assert WHY in " ".join(" ".join(shown).split())
    for text in ADDRESSES.values():
        assert any(text in line for line in shown), shown
    assert shown[-1] == "Ctrl-C ends everything"


def test_a_query_name_neither_marks_up_nor_controls_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=80, record=True, force_terminal=True)
    name = "[red]x[/red]\x1b[2J"
    console.print(lag_picture([_lag(name, lag_event(query=name))], 4000, {}))
    shown = console.export_text()
    assert "[red]x[/red]" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b" not in plain_line(lag_event(query=name))


def test_a_file_gets_lines_of_the_lags_that_are_known_and_not_each_of_them() -> None:
    text = io.StringIO()
    screen = Screen(Console(file=text, width=80), started_at=0.0)
    unknown = _lag("payments", lag_event(query="payments", lag=None, status="UNKNOWN"))
    with screen.live:
        screen.announce("The page", ADDRESSES["the page"])
        screen.show([unknown], 4000, ADDRESSES)
        for lag in (5, 6):
            screen.show([_lag("orders", lag_event(lag=lag)), unknown], 4000, ADDRESSES)
        failed = lag_event(query="invoices", status="FAILED", reason=WHY)
        screen._last_lines_at = 1e-9
        screen.show([_lag("invoices", failed)], 4000, ADDRESSES)
    page, *addresses, lag_line, failed_line = text.getvalue().splitlines()
    assert page.endswith(" s  The page: http://127.0.0.1:8085/")
    assert [line.partition(" s  ")[2] for line in addresses] == [
        f"{a}: {b}" for a, b in ADDRESSES.items()
    ]
    assert " s  orders    OK       lag       5  " in lag_line
    assert lag_line.endswith("by partition 0:5 1:0")
    assert failed_line.endswith(f"  {WHY}")


def test_a_terminal_gets_the_address_of_the_page_in_a_frame() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, force_interactive=True)
    Screen(console, started_at=0.0).announce("The page", ADDRESSES["the page"])
    assert "http://127.0.0.1:8085/" in text.getvalue()
    assert len(text.getvalue().splitlines()) == 5


def _state() -> QueryLag:
    return QueryLag(query="orders", started_at=100.0)


def test_only_an_event_with_a_lag_counts_as_its_first() -> None:
    state = _state()
    state.add(lag_event(lag=None, at=2), now=102)
    assert state.first_lag_s is None
    assert "orders: the service answered with no lag" in state.summary()
    state.add(lag_event(lag=8, at=3), now=104.5)
    state.add(lag_event(lag=3, at=4), now=105)
    assert state.first_lag_s == pytest.approx(4.5)
    assert (state.highest_lag, state.events) == (8, 3)
    assert state.summary() == ("orders: first lag after 4.5 s, 3 lag events, highest 8, last 3")


def test_each_failure_counts_once_however_often_it_is_read() -> None:
    state = _state()
    statuses: list[Status] = ["OK", "FAILED", "FAILED", "OK", "FAILED"]
    for at, status in enumerate(statuses, 1):
        state.add(lag_event(at=at, status=status), now=100 + at)
    assert state.failures == 2
    assert state.summary().endswith("last 30, failures 2")


def test_the_same_event_again_does_not_count() -> None:
    state = _state()
    for now in (101, 102):
        state.add(lag_event(lag=8, at=3), now=now)
    assert (state.highest_lag, state.first_lag_s, state.events) == (8, 1, 1)


def test_an_earlier_runs_events_do_not_count() -> None:
    state = QueryLag(query="orders", started_at=100.0, since_ms=1000)
    state.add(lag_event(lag=9, at=999), now=101)
    assert state.event is None
    state.add(lag_event(lag=8, at=1000), now=102)
    assert state.highest_lag == 8
