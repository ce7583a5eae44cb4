"""The history of log ends, and the ages of records that follow from it."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_service.enrichment.log_end_history import LatestOffset, LogEndHistory

DAY_S = 86_400


def _row(times: LogEndHistory, at_s: float, *ends: int | None, interval_s: float = 1.0) -> None:
    read = [None if end is None else LatestOffset(end, at_s) for end in ends]
    times.append(at_s, read, interval_s)


def _history(*rows: list[int]) -> LogEndHistory:
    """Rows of log ends, one each second from 100 s on."""
    times = LogEndHistory()
    for second, ends in enumerate(rows):
        _row(times, 100.0 + second, *ends)
    return times


class Arrival(NamedTuple):
    after_s: float | None
    before_s: float
    at_s: float


def _arrival(
    times: LogEndHistory, offset: int, end: int, now_s: float, partition: int = 0
) -> Arrival:
    latest = LatestOffset(end, now_s)
    result = times.bracket(partition, offset, latest)
    at_s = result.arrived_s(partition, offset, latest)
    return Arrival(result.older_s, result.newer_s, result.newer_s if at_s is None else at_s)


def test_a_record_came_between_the_last_row_without_it_and_the_first_with_it() -> None:
    times = _history([10], [10], [14], [20])

    assert _arrival(times, 10, 20, 104.0) == Arrival(101.0, 102.0, 101.125)
    assert _arrival(times, 13, 20, 104.0) == Arrival(101.0, 102.0, 101.875)
    assert _arrival(times, 14, 20, 104.0).before_s == 103.0


def test_the_only_record_of_a_row_came_in_its_middle() -> None:
    times = _history([10], [11])
    assert _arrival(times, 10, 11, 102.0).at_s == 100.5


def test_a_record_newer_than_the_last_row_came_before_the_end_that_shows_it() -> None:
    times = _history([10])
    result = _arrival(times, 10, 12, 100.8)
    assert (result.after_s, result.before_s) == (100.0, 100.8)
    assert result.at_s == pytest.approx(100.2)


def test_a_record_from_before_the_first_row_is_at_least_as_old_as_that() -> None:
    times = _history([10], [12])
    assert _arrival(times, 9, 12, 102.0) == Arrival(None, 100.0, 100.0)
    assert _arrival(LogEndHistory(), 9, 12, 102.0) == Arrival(None, 102.0, 102.0)


def test_what_was_not_read_does_not_count_as_unchanged() -> None:
    """Its leader was away from 101 to 103: the record may have come at any time between."""
    times = _history([10, 5])
    stale = LatestOffset(10, 100.0)
    times.append(101.0, [stale, LatestOffset(5, 101.0)], 1.0)
    times.append(102.0, [None, LatestOffset(6, 102.0)], 1.0)
    _row(times, 103.0, 12, 7)

    assert _arrival(times, 11, 12, 104.0) == Arrival(100.0, 103.0, 102.25)
    assert _arrival(times, 5, 7, 104.0, partition=1).after_s == 101.0


def test_a_log_that_became_shorter_has_no_past() -> None:
    times = _history([10, 10], [20, 20], [15, 30], [25, 40])

    assert _arrival(times, 12, 25, 104.0) == Arrival(None, 102.0, 102.0)
    assert _arrival(times, 16, 25, 104.0).after_s == 102.0
    assert _arrival(times, 12, 40, 104.0, partition=1).after_s == 100.0


def test_a_partition_that_was_added_has_no_past_before_that() -> None:
    times = _history([10], [11, 3], [12, 5])
    assert _arrival(times, 0, 5, 103.0, partition=1) == Arrival(None, 101.0, 101.0)
    assert _arrival(times, 4, 5, 103.0, partition=1).after_s == 101.0


def test_a_topic_with_fewer_partitions_in_a_row_keeps_what_it_knew_of_the_others() -> None:
    times = _history([10, 3], [11], [12, 5])
    assert _arrival(times, 3, 5, 103.0, partition=1).after_s == 100.0


def test_a_row_that_is_not_newer_is_left_out() -> None:
    times = _history([10])
    _row(times, 100.0, 99)
    _row(times, 99.0, 99)
    assert len(times) == 1


def test_inserted_rows_fill_the_past() -> None:
    times = _history([10, 10], [12, 12])
    times.insert(40.0, {0: 4, 1: 10})
    times.insert(70.0, {0: 8})

    assert _arrival(times, 5, 12, 102.0).after_s == 40.0
    assert _arrival(times, 5, 12, 102.0).before_s == 70.0
    assert _arrival(times, 10, 12, 102.0, partition=1).after_s == 100.0
    assert _arrival(times, 9, 12, 102.0, partition=1) == Arrival(None, 40.0, 40.0)


def test_what_contradicts_what_was_read_is_not_believed() -> None:
    times = _history([10], [12])
    times.insert(100.5, {0: 11})
    times.insert(100.6, {0: 9})
    times.insert(40.0, {0: 11})
    assert _arrival(times, 10, 12, 102.0) == Arrival(100.0, 100.5, 100.25)
    assert _arrival(times, 9, 12, 102.0) == Arrival(None, 100.0, 100.0)


def test_two_rows_bound_every_record_between_them() -> None:
    times = _history([10, 50, 0], [20, 60], [30, 70, 5])
    now = [LatestOffset(end, 103.0) for end in (40, 80, 9)]

    between = times.bracket(0, 15, now[0])
    assert between.arrived_s(1, 55, now[1]) == 100.55
    assert between.arrived_s(0, 20, now[0]) is None
    assert between.arrived_s(2, 0, now[2]) is None
    newest = times.bracket(0, 35, now[0])
    assert newest.arrived_s(1, 75, now[1]) == 102.55
    assert newest.arrived_s(2, 5, LatestOffset(9, 104.0)) is None
    first = times.bracket(0, 5, now[0])
    assert first.arrived_s(1, 49, now[1]) == 100.0
    assert first.arrived_s(1, 50, now[1]) is None


def test_a_day_is_some_two_hundred_rows_no_farther_apart_than_a_share_of_their_age() -> None:
    times = LogEndHistory()
    for second in range(0, DAY_S + 1, 2):
        _row(times, float(second), second, interval_s=2.0)
    kept = [float(second) for second in times._times]

    assert len(kept) < 260
    assert kept[0] == 0.0
    for older, newer in pairwise(kept):
        # Thinned every 32 rows: what was right then is right later.
        assert newer - older <= max(2.0, 0.05 * (DAY_S - newer)), (older, newer)


def test_what_is_older_than_a_day_goes() -> None:
    times = LogEndHistory(keep_s=100.0)
    for second in range(400):
        _row(times, float(second), second)
    assert _arrival(times, 200, 400, 400.0).after_s is None
    assert _arrival(times, 350, 400, 400.0).after_s is not None


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 60.0),
            st.lists(st.one_of(st.none(), st.integers(0, 40)), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=80,
    ),
    st.integers(0, 2),
    st.data(),
)
def test_it_reports_what_a_search_through_all_that_was_read_reports(
    steps: list[tuple[float, list[int | None]]], partition: int, data: st.DataObject
) -> None:
    """Nothing thinned away, whatever was read when: the answer is the narrowest there is."""
    times = LogEndHistory(spacing=0.0)
    ends = [0, 0, 0]
    now_s = 0.0
    read: list[tuple[float, int]] = []
    for pause_s, gained in steps:
        now_s += pause_s
        row: list[LatestOffset | None] = [None] * 3
        for number, more in enumerate(gained):
            if more is not None:
                ends[number] += more
                row[number] = LatestOffset(ends[number], now_s)
                if number == partition:
                    read.append((now_s, ends[number]))
        times.append(now_s, row, 0.0)
    end = ends[partition] + 1
    offset = data.draw(st.integers(0, end - 1))

    result = _arrival(times, offset, end, now_s + 1, partition)

    read.append((now_s + 1, end))
    assert result.before_s == min(at_s for at_s, was in read if was > offset)
    assert result.after_s == max((at_s for at_s, was in read if was <= offset), default=None)
    assert (result.after_s or result.before_s) <= result.at_s <= result.before_s
