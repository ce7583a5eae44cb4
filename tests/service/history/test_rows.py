"""Rows of history: packed, thinned with age, under a ceiling."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_schemas import Batch
from sparklag_schemas.messages.enumerations import OpenStatus
from sparklag_service.history.history import COARSEST, FINEST, Archive
from sparklag_service.history.rows import (
    ROW_BYTES,
    Change,
    Resolution,
    Row,
    RunTotals,
    Totals,
    pack,
    row_of,
    unpack,
)
from tests.messages import lag_event

MB = 1024 * 1024
S, HOUR, DAY = 1_000, 3_600_000, 86_400_000
NOW = 1_790_000_000_000
FINEST_MS = 15 * S


def row(
    measured_at_ms: int,
    lag: int | None,
    age_s: float | None,
    input_rate: float | None,
    processed_rate: float | None,
    status: OpenStatus,
) -> Row:
    return row_of(
        totals(
            measured_at_ms,
            status=status,
            total_lag=lag,
            max_time_lag_s=age_s,
            input_rate=input_rate,
            processed_rate=processed_rate,
        )
    )


def totals(measured_at_ms: int, **fields: Any) -> Totals:
    known: dict[str, Any] = {"query_id": "a", "cause": "refresh", "status": "OK", "total_lag": 5}
    return Totals(measured_at=measured_at_ms, **known | fields)


def at(ago_ms: int, lag: int | None = 5) -> Row:
    return row(NOW - ago_ms, lag, 1.5, 10.0, None, "OK")


@pytest.mark.parametrize("lag", [None, 0, 3, 1 << 62])
def test_what_is_packed_comes_back_and_what_is_not_known_is_not_0(lag: int | None) -> None:
    packed = row(NOW, lag, None, 0.0, None, "STALL")
    assert list(unpack(pack(packed))) == [packed]
    assert len(pack(packed)) == ROW_BYTES


def completed(measured_at_ms: int, duration_ms: int | None, **phases_ms: int) -> Row:
    batch = Batch(started_at=0, rows=1, duration_ms=duration_ms, phases_ms=phases_ms)
    return row_of(lag_event(measured_at=measured_at_ms, batch=batch, cause="progress"))


@pytest.mark.parametrize(
    ("phases_ms", "planning_ms", "processing_ms", "commit_ms"),
    [
        # Of Spark 3.5 to 4.3.
        (
            {
                "triggerExecution": 6984,
                "latestOffset": 1331,
                "getBatch": 51,
                "queryPlanning": 928,
                "addBatch": 3918,
                "walCommit": 93,
                "commitOffsets": 637,
            },
            1331 + 51 + 928,
            3918,
            93 + 637,
        ),
        ({"setOffsetRange": 5, "getOffset": 4, "commitBatch": 3, "walCommit": 2}, 9, 0, 5),
        ({"addedLater": 7}, 0, 0, 0),
    ],
)
def test_a_batch_s_time_is_planning_processing_and_commit_by_the_names_of_spark(
    phases_ms: dict[str, int], planning_ms: int, processing_ms: int, commit_ms: int
) -> None:
    row = completed(NOW, 6987, **phases_ms)
    assert row.batch == (6987, planning_ms, processing_ms, commit_ms)
    assert list(unpack(pack(row))) == [row]


def test_a_batch_whose_duration_spark_does_not_report_is_not_known() -> None:
    assert completed(NOW, None, addBatch=3).batch is None
    whole = completed(NOW, None, addBatch=3, triggerExecution=5)
    assert whole.batch == (5, 0, 3, 0)


def test_only_the_event_that_a_batch_caused_has_it_and_of_joined_rows_the_last() -> None:
    first, last = completed(NOW, 5, addBatch=4), completed(NOW + 2, 7, addBatch=6)
    batch = Batch(started_at=0, rows=1, duration_ms=9, phases_ms={})
    repeated = row_of(lag_event(measured_at=NOW + 1, batch=batch, cause="refresh"))
    assert repeated.batch is None
    assert first.joined(repeated).batch == (5, 0, 4, 0)
    assert first.joined(repeated).joined(last).batch == (7, 0, 6, 0)


def test_a_joined_row_reports_the_last_and_the_highest() -> None:
    joined = (
        row(NOW, 7, 2.0, 1.0, None, "STALL")
        .joined(row(NOW + 1, None, None, 2.0, 3.0, "UNKNOWN"))
        .joined(row(NOW + 2, 4, 0.5, None, 3.0, "OK"))
    )
    assert joined == (NOW + 2, 4, 7, 2.0, None, 3.0, "OK", None)


@given(st.lists(st.integers(0, 2 * DAY)), st.sampled_from([FINEST, 64, COARSEST]))
def test_thinning_loses_no_peak_and_keeps_its_bound(ages_ms: list[int], fineness: int) -> None:
    resolution = Resolution(FINEST_MS, fineness, DAY)
    rows = [at(age_ms, lag) for lag, age_ms in enumerate(ages_ms)]
    thinned = resolution.thinned(rows, NOW)
    kept = [r for r in rows if NOW - r.measured_at_ms <= DAY]
    assert len(thinned) <= min(len(kept), resolution.max_rows())
    assert max((r.max_total_lag or 0 for r in thinned), default=0) == max(
        (r.total_lag or 0 for r in kept), default=0
    )
    assert resolution.thinned(thinned, NOW) == thinned


def test_rows_that_are_thinned_again_and_again_as_they_age_make_no_gap() -> None:
    resolution = Resolution(FINEST_MS, 64, DAY)
    rows = [at(age_ms, age_ms) for age_ms in range(6 * HOUR, 0, -10 * S)]
    for now_ms in range(NOW, NOW + 5 * HOUR, 600 * S):
        rows = resolution.thinned(rows, now_ms)
    width_ms = resolution.width_ms(11 * HOUR)
    slots = [r.measured_at_ms // width_ms for r in rows]
    assert sorted(set(slots)) == list(range(slots[0], slots[-1] + 1))
    assert len(rows) <= resolution.max_rows()


def test_a_day_of_heartbeats_is_kept_at_four_minutes_and_the_last_two_hours_at_the_finest() -> None:
    archive = Archive(MB, FINEST_MS, DAY)
    for age_ms in range(DAY + HOUR, 0, -10 * S):
        archive.add("a", totals(NOW - age_ms), NOW - age_ms)
    rows = archive.rows("a", NOW)
    gaps_ms = [b.measured_at_ms - a.measured_at_ms for a, b in pairwise(rows)]
    assert max(gaps_ms) <= 4 * 60 * S + 10 * S
    assert max(gaps_ms[-400:]) <= 20 * S
    assert NOW - rows[0].measured_at_ms > DAY - 5 * 60 * S


@pytest.mark.parametrize("queries", [3, 30, 150])
def test_for_any_number_of_queries_the_ceiling_holds_and_each_has_its_day(queries: int) -> None:
    archive = Archive(MB, FINEST_MS, DAY)
    for age_ms in range(DAY, 0, -DAY // (45_000 // queries)):
        for query in range(queries):
            archive.add(f"{query}", totals(NOW - age_ms), NOW - age_ms)
        assert archive.held_bytes <= MB
    for query in (0, queries - 1):
        rows = archive.rows(f"{query}", NOW)
        assert len(rows) >= 25
        assert rows[0].measured_at_ms <= NOW - 0.8 * DAY


def test_queries_beyond_what_fits_at_the_coarsest_have_no_history_and_are_reported_so() -> None:
    archive = Archive(MB, FINEST_MS, DAY)
    taken = [archive.add(f"{query}", totals(NOW), NOW) for query in range(2_000)]
    assert archive.held_bytes <= MB
    assert 150 < taken.count(True) < 2_000
    archive.forget("0")
    assert archive.add("2000", totals(NOW), NOW)


def test_a_clock_that_goes_ahead_fills_nothing_up() -> None:
    archive = Archive(MB, FINEST_MS, DAY)
    for second in range(20_000):
        archive.add("a", totals(NOW + second * 60 * S), NOW)
    assert archive.held_bytes < 200_000


def test_a_change_has_its_own_millisecond_in_whatever_order_its_events_come() -> None:
    archive = Archive(MB, FINEST_MS, DAY)
    runs = RunTotals(started_at=NOW - 9_001)
    for since_ms, status in ((8_003, "OK"), (1_002, "STALL"), (8_003, "OK"), (9_000, "UNKNOWN")):
        event = totals(NOW, status=status, status_since=NOW - since_ms, runs=runs)
        archive.add("a", event, NOW)
    assert archive.changes("a") == [
        Change(NOW - 9_001, None),
        Change(NOW - 9_000, "UNKNOWN"),
        Change(NOW - 8_003, "OK"),
        Change(NOW - 1_002, "STALL"),
    ]
    archive.forget_before("a", NOW - 1_002)
    assert archive.changes("a") == [Change(NOW - 1_002, "STALL")]


def test_a_query_that_changes_without_end_keeps_its_last_changes() -> None:
    archive = Archive(MB, FINEST_MS, DAY)
    for second in range(200):
        archive.add("a", totals(NOW, status_since=NOW + second), NOW)
    assert [change.at_ms - NOW for change in archive.changes("a")] == list(range(152, 200))
