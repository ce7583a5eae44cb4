"""What a person sees, as text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparklag_pipeline.demo.screen import chart, draw, plain_line
from sparklag_pipeline.demo.state import DemoState
from sparklag_schemas.lag_event import LagEvent
from tests.pipeline.lag_events import lag_event


def _seen(state: DemoState, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(draw(state, 130, 4000, width, height))
    return console.export_text().splitlines()


def _running(*events: LagEvent) -> DemoState:
    state = DemoState(
        query="orders", started_at=100.0, bootstrap_servers="127.0.0.1:9", http_url="U"
    )
    for step in state.steps:
        step.begin(101)
        step.end(102)
    for number, event in enumerate(events):
        state.add(event, now=110.0 + number)
    return state


def test_while_it_starts_one_sees_what_is_waited_for() -> None:
    state = DemoState(query="orders", started_at=100.0)
    state.jars.begin(100)
    state.jars.end(101)
    state.broker.begin(101)

    seen = _seen(state)

    assert "0:30" in seen[0]
    assert any("✓" in line and "Jars" in line and "1 s" in line for line in seen)
    assert any("Kafka" in line and "29 s" in line for line in seen)
    assert any("·" in line and "Producer" in line for line in seen)


def test_the_lag_of_each_partition_is_there_with_its_ages() -> None:
    text = "\n".join(_seen(_running(lag_event(lag=1234, processed=5000, at=3000))))

    assert "query orders  OK" in text
    assert "lag 1,234 records" in text
    for number in ("5,000", "6,234", "1,234"):
        assert number in text
    assert "batch 7, 1.0 s ago" in text
    assert "measured 1.0 s ago" in text
    assert "curl U/lag/orders" in text


def test_what_is_not_known_is_no_zero_and_says_why() -> None:
    state = _running(
        lag_event(lag=9), lag_event(lag=None, at=2, status="UNKNOWN", reason="no leader")
    )
    text = "\n".join(_seen(state))

    assert "lag unknown" in text
    assert "no leader" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 40), (60, 24), (200, 60)])
def test_it_fits_the_terminal(width: int, height: int) -> None:
    state = _running(*(lag_event(lag=lag, at=lag + 1) for lag in range(0, 20000, 500)))

    seen = _seen(state, width, height)

    assert len(seen) <= height
    assert all(len(line) <= width for line in seen)


def test_the_chart_is_as_high_as_the_highest() -> None:
    assert chart([None, 0, 1, 8, 16], 2) == ["    █", "  ▁██"]
    assert chart([None, 0], 2) == ["  ", "  "]
    assert chart([], 3) == ["", "", ""]


def test_a_line_says_all_that_a_log_needs() -> None:
    state = _running(lag_event(lag=1234))
    line = plain_line(state, 112.0)
    assert line.startswith("  12.0 s  orders  OK")
    assert "1,234" in line
    assert line.endswith("by partition 0:1,234 1:0")

    starting = DemoState(query="orders", started_at=100.0)
    starting.spark.begin(100, "Spark starts")
    assert plain_line(starting, 101.0).endswith("starting: Query (Spark starts)")
