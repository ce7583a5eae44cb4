"""Tables that fit a width: columns go, numbers stay whole."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from sparklag_schemas import decode_lag_event
from sparklag_schemas.presentation.rows import Summary
from sparklag_schemas.presentation.tables import Column, FittedTable, event_view
from sparklag_service.cli.queries import table

ROOT = Path(__file__).parents[3]
COLUMNS = (
    Column("query", "name", 0),
    Column("status", "word", 1),
    Column("lag", "number", 2),
    Column("time lag", "number", 4),
    Column("reason", "text", 3),
)


def rendered(output: RenderableType, width: int) -> list[str]:
    screen = Console(file=StringIO(), width=width, highlight=False)
    screen.print(output)
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


@given(
    st.integers(40, 200),
    st.integers(0, 10**18),
    st.text("漢字ab[/]", min_size=1, max_size=300),
    st.text("漢字ab [/]", max_size=300),
)
def test_lines_fit_and_numbers_stay_whole(width: int, lag: int, name: str, reason: str) -> None:
    fitted = FittedTable(COLUMNS, [(name, "STALL", f"{lag:,}", "12 min", reason)])
    lines = rendered(fitted, width)
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    headings, _, note = text.partition("not shown in")
    for column, number in (("lag", f"{lag:,}"), ("time lag", "12 min")):
        if number not in headings:
            assert column in note
    assert "STALL" in headings


def test_the_column_of_the_highest_rank_goes_first_and_comes_back_in_its_place() -> None:
    fitted = FittedTable(COLUMNS, [("orders", "STALL", "126,671", "12 min", "it has stalled")])
    assert rendered(fitted, 60)[0].split() == ["query", "status", "lag", "time", "lag", "reason"]
    assert rendered(fitted, 44) == [
        "query   status      lag  reason",
        "orders  STALL   126,671  it has stalled",
        "not shown in 44 columns: time lag",
    ]
    assert rendered(fitted, 25)[1] == "orders  STALL   126,671"
    assert " ".join(rendered(fitted, 25)[2:]) == "not shown in 25 columns: time lag, reason"


SAMPLES = ROOT / "tests/samples"
EVENT = decode_lag_event((SAMPLES / "lag_event.json").read_bytes())
QUERIES = msgspec.json.decode((SAMPLES / "summaries.json").read_bytes(), type=list[Summary])
LAG = event_view(EVENT, EVENT.measured_at + 600)


@pytest.mark.parametrize(
    ("document", "command", "output", "width"),
    [
        ("README.md", "lag orders", LAG, 80),
        ("docs/user/first-lag.md", "lag orders", LAG, 80),
        ("docs/user/terminal.md", "queries", table(QUERIES, EVENT.measured_at), 60),
    ],
)
def test_a_document_has_the_lines_that_a_command_writes(
    document: str, command: str, output: RenderableType, width: int
) -> None:
    text = (ROOT / document).read_text()
    (lines,) = re.findall(rf"^\$ sparklag {command}\n((?:[^$`].*\n)+?)(?:…$|```)", text, re.M)
    assert lines in "\n".join([*rendered(output, width), ""])
