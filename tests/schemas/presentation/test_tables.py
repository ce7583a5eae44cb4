"""Tables that fit a width: columns go, numbers stay whole."""

from __future__ import annotations

from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from sparklag_schemas.presentation.tables import Column, FittedTable

COLUMNS = (
    Column("query", "name", 0),
    Column("status", "word", 1),
    Column("lag", "number", 2),
    Column("time lag", "number", 4),
    Column("reason", "text", 3),
)


def rendered(table: FittedTable, width: int) -> list[str]:
    screen = Console(file=StringIO(), width=width, highlight=False)
    screen.print(table)
    assert isinstance(screen.file, StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


@given(
    st.integers(40, 200),
    st.integers(0, 10**18),
    st.text("漢字ab[/]", min_size=1, max_size=300),
    st.text("漢字ab [/]", max_size=300),
)
def test_lines_fit_and_numbers_stay_whole(width: int, lag: int, name: str, reason: str) -> None:
    table = FittedTable(COLUMNS, [(name, "STALL", f"{lag:,}", "12 min", reason)])
    lines = rendered(table, width)
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    headings, _, note = text.partition("not shown in")
    for column, number in (("lag", f"{lag:,}"), ("time lag", "12 min")):
        if number not in headings:
            assert column in note
    assert "STALL" in headings


def test_the_column_of_the_highest_rank_goes_first_and_comes_back_in_its_place() -> None:
    table = FittedTable(COLUMNS, [("orders", "STALL", "126,671", "12 min", "it has stalled")])
    assert rendered(table, 60)[0].split() == ["query", "status", "lag", "time", "lag", "reason"]
    assert rendered(table, 44) == [
        "query   status      lag  reason",
        "orders  STALL   126,671  it has stalled",
        "not shown in 44 columns: time lag",
    ]
    assert rendered(table, 25)[1] == "orders  STALL   126,671"
    assert " ".join(rendered(table, 25)[2:]) == "not shown in 25 columns: time lag, reason"


def test_details_are_below_their_rows() -> None:
    rows = [("a", "OK", "1"), ("b", "STALL", "2")]
    table = FittedTable(COLUMNS[:3], rows, details=["", "no batch has completed for 12 minutes"])
    assert rendered(table, 30) == [
        "query  status  lag",
        "a      OK        1",
        "b      STALL     2",
        "    no batch has completed for",
        "    12 minutes",
    ]
