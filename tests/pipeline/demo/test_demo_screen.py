"""What a person sees, as text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparklag_pipeline.demo.screen import Screen, lag_picture, plain_line
from tests.pipeline.lag_events import lag_event

ADDRESSES = {
    "the lag, over REST": "curl http://127.0.0.1:8085/lag/orders",
    "the lag events": "sparklag tail --bootstrap-servers 127.0.0.1:29092",
}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60)])
def test_the_lag_and_the_addresses_fit_the_terminal(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(lag_picture(lag_event(lag=1234, processed=5000, at=3000), 4000, ADDRESSES))
    seen = console.export_text().splitlines()

    assert len(seen) < height
    for text in ("orders  OK", "1,234 records", "6,234", *ADDRESSES.values()):
        assert any(text in line for line in seen), seen
    assert seen[-1] == "Ctrl-C ends everything"


def test_a_file_gets_lines_and_not_each_lag() -> None:
    text = io.StringIO()
    screen = Screen(Console(file=text, width=80), started_at=0.0)
    with screen.live:
        screen.report("Kafka: one broker on this machine")
        for lag in (5, 6):
            screen.show(lag_event(lag=lag), 4000, ADDRESSES)

    kafka, lag_line = text.getvalue().splitlines()
    assert kafka.endswith(" s  Kafka: one broker on this machine")
    assert lag_line.endswith("by partition 0:5 1:0")


def test_a_line_says_all_that_a_log_needs() -> None:
    line = plain_line(lag_event(lag=1234))
    assert line.startswith("orders  OK")
    assert "1,234" in line
    assert line.endswith("by partition 0:1,234 1:0")
