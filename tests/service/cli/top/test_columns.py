"""The columns of `sparklag top`."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_schemas import RunningBatch
from sparklag_schemas.presentation.rows import Summary
from sparklag_service.cli.top.columns import (
    BATCH,
    CATCH_UP,
    COLUMNS,
    HEADROOM,
    LAG,
    NAME,
    REASON,
    SELECTION_WIDTH,
    SPARKLINE,
    STATUS,
    STEP_S,
    STEPS,
    TIME_LAG,
    Column,
    LagHistory,
    Placed,
    placed_columns,
    widths_of,
)
from sparklag_service.cli.top.state import State
from tests.service.cli.top.summaries import NOW_MS, page, summary

STALLED = summary(
    "payments-to-the-warehouse",
    status="STALL",
    total_lag=1_234_567,
    max_time_lag_s=719.0,
    reason="no batch has been completed for 12 min",
)


def placed(width: int, *queries: Summary) -> list[Placed]:
    return placed_columns(width, widths_of(queries, NOW_MS))


def shown(width: int, *queries: Summary) -> list[Column]:
    return [each.column for each in placed(width, *queries)]


def text(column: Column, **fields: Any) -> str:
    return column.text(summary(**fields), LagHistory(), NOW_MS)


def test_eighty_columns_have_room_for_the_six_that_count() -> None:
    assert shown(80, STALLED) == [NAME, STATUS, LAG, TIME_LAG, SPARKLINE, REASON]


def test_a_wide_terminal_shows_every_column_and_the_whole_reason() -> None:
    widths = {each.column: each.width for each in placed(200, STALLED)}
    assert widths.keys() == {*COLUMNS}
    assert widths[REASON] == len(STALLED.reason or "")
    assert widths[NAME] == len(STALLED.display_name)


@pytest.mark.parametrize("width", range(10, 200))
def test_the_columns_fit_and_no_number_is_cut(width: int) -> None:
    huge = summary("x" * 300, total_lag=2**63 - 1, max_time_lag_s=1e10, reason="y" * 300)
    row = placed(width, STALLED, huge)
    needed = widths_of([STALLED, huge], NOW_MS)
    assert all(each.width >= needed[each.column] for each in row if each.column.is_number)
    used = SELECTION_WIDTH + sum(each.width for each in row) + len(row) - 1
    assert used <= width or [each.column for each in row] == [NAME]


def test_what_is_unknown_is_not_zero() -> None:
    assert text(LAG, total_lag=None) == "unknown"
    assert text(TIME_LAG, max_time_lag_s=None) == "unknown"
    assert text(CATCH_UP) == "unknown"
    assert text(HEADROOM) == "unknown"


def test_a_query_without_lag_has_no_oldest_record_and_loses_nothing() -> None:
    assert text(TIME_LAG, total_lag=0, max_time_lag_s=None) == ""
    assert text(HEADROOM, total_lag=0) == ""


def test_headroom_is_in_seconds_or_in_records_where_retention_does_not_advance() -> None:
    assert text(HEADROOM, min_headroom_s=7_200.0, min_headroom_records=5) == "2.0 h"
    assert text(HEADROOM, min_headroom_records=5_000) == "5,000 rec"


def test_a_running_batch_has_its_duration_and_its_tasks() -> None:
    batch = RunningBatch(
        started_at=NOW_MS - 60_000,
        observed_at=NOW_MS,
        progressed_at=NOW_MS,
        tasks_total=200,
        tasks_done=40,
    )
    assert text(BATCH, running_batch=batch) == "60 s, 40/200"
    assert text(BATCH, activity="waiting") == "waits"
    assert text(BATCH, activity="a word of a later version") == ""


def test_a_query_without_a_name_has_the_beginning_of_its_id() -> None:
    assert text(NAME, query_id="dd8b09d1-0000-4000", query=None) == "dd8b09d1"


QUERIES = [
    summary("behind", total_lag=9_000, max_time_lag_s=9.0),
    summary("healthy", total_lag=0, max_time_lag_s=None, lag_trend=-1.0, catch_up_s=0.0),
    summary("stalled", status="STALL", total_lag=10, max_time_lag_s=60.0, min_headroom_s=5.0),
    summary("unknown", status="UNKNOWN", total_lag=None, max_time_lag_s=None),
    summary("warned", status="WARN", total_lag=100, max_time_lag_s=30.0, lag_trend=7.0),
]


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("worst", ["stalled", "unknown", "warned", "behind", "healthy"]),
        ("lag", ["unknown", "behind", "warned", "stalled", "healthy"]),
        ("time lag", ["unknown", "stalled", "warned", "behind", "healthy"]),
        ("trend", ["behind", "stalled", "unknown", "warned", "healthy"]),
        ("catch-up", ["behind", "stalled", "unknown", "warned", "healthy"]),
        ("headroom", ["behind", "unknown", "warned", "stalled", "healthy"]),
        ("query", ["behind", "healthy", "stalled", "unknown", "warned"]),
    ],
)
def test_the_worst_comes_first_and_unknown_may_be_the_worst(order: str, first: list[str]) -> None:
    state = State("http://a", 2.0, order=order)
    state.fleet.update(page(*QUERIES), NOW_MS)
    listed = state.listed()
    assert [query.query for query in listed] == first
    state.is_reversed = True
    assert state.listed() == listed[::-1]


STEP_MS = STEP_S * 1000


def history(*lags: int | None) -> LagHistory:
    made = LagHistory()
    for number, lag in enumerate(reversed(lags)):
        made.add(NOW_MS - number * STEP_MS, lag)
    return made


def test_a_sparkline_is_in_proportion_to_the_highest_lag() -> None:
    assert history(0, 1, 50, 100).sparkline(NOW_MS, 4) == "▁▂▅█"


def test_a_lag_that_stays_at_zero_is_the_lowest_block() -> None:
    assert history(0, 0, 0).sparkline(NOW_MS, 3) == "▁▁▁"


def test_an_unknown_lag_is_a_question_mark_and_a_time_without_measurement_is_blank() -> None:
    assert history(100, None).sparkline(NOW_MS, 4) == "  █?"
    assert history(None).sparkline(NOW_MS, 2) == " ?"


def test_a_step_has_the_highest_lag_measured_in_it() -> None:
    made = history(10, 5)
    for lag in (20, None, 7):
        made.add(NOW_MS, lag)
    assert made.highest(NOW_MS) == 20
    assert made.sparkline(NOW_MS, 2) == "▅█"


def test_it_moves_with_the_time_and_keeps_an_hour() -> None:
    made = history(*[7] * (2 * STEPS))
    assert made.sparkline(NOW_MS) == "█" * STEPS
    assert made.sparkline(NOW_MS, 2 * STEPS) == " " * STEPS + "█" * STEPS
    assert made.sparkline(NOW_MS + STEP_MS, 2) == "█ "
