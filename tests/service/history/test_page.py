"""The parameters of `GET /lag/{query}/history`."""

from __future__ import annotations

import pytest

from sparklag_service.history.page import TimeRange, changes, time_range
from sparklag_service.history.rows import Change

NOW = 1_790_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("since", "ms"),
    [
        ("1789999000000", 1_789_999_000_000),
        ("15m", NOW - 900_000),
        ("1h30m", NOW - 5_400_000),
        ("2d", NOW - 48 * HOUR),
        ("90s", NOW - 90_000),
        ("2026-09-21T13:46:40Z", 1_789_998_400_000),
        ("2026-09-21T13:46:40.500+00:00", 1_789_998_400_500),
        ("2026-09-21T15:46:40 02:00", 1_789_998_400_000),
        ("2026-09-21T13:46:40", 1_789_998_400_000),
        ("2026-09-21", 1_789_948_800_000),
    ],
)
def test_a_time_is_epoch_milliseconds_iso_8601_or_a_duration_ago(since: str, ms: int) -> None:
    assert time_range(since, None, None, NOW).since_ms == ms


def test_without_parameters_it_is_the_last_hour_in_300_steps() -> None:
    assert time_range(None, None, None, NOW) == (NOW + 1 - HOUR, NOW + 1, 12_000)


@pytest.mark.parametrize(("step", "ms"), [("30", 30_000), ("0.5", 500), ("5m", 300_000)])
def test_a_step_is_seconds_or_a_duration(step: str, ms: int) -> None:
    assert time_range("1h", "5m", step, NOW).step_ms == ms


@pytest.mark.parametrize(
    ("since", "until", "step", "named"),
    [
        ("yesterday", None, None, "since"),
        ("", None, None, "since"),
        ("1h", "soon", None, "until"),
        ("5m", "15m", None, "since"),
        ("1h", None, "0", "step"),
        ("1h", None, "-5", "step"),
        ("1h", None, "nan", "step"),
        ("1h", None, "9" * 400, "step"),
        ("1h", None, "1w", "step"),
        ("9999-99-99", None, None, "since"),
        ("9" * 400 + "d", None, None, "since"),
    ],
)
def test_what_it_cannot_be_is_named(
    since: str | None, until: str | None, step: str | None, named: str
) -> None:
    with pytest.raises(ValueError, match=f"^{named}: "):
        time_range(since, until, step, NOW)


def test_a_range_has_the_changes_in_it_and_invents_none_at_its_beginning() -> None:
    stored = [
        Change(NOW, None),
        Change(NOW + 1, "OK"),
        Change(NOW + 5, "STALL"),
        Change(NOW + 9, "STALL"),
        Change(NOW + 12, "OK"),
    ]
    listed = changes(stored, TimeRange(NOW + 5, NOW + 20, 1))
    assert [(each.at - NOW, each.status, each.before) for each in listed] == [
        (5, "STALL", "OK"),
        (12, "OK", "STALL"),
    ]
    assert changes(stored, TimeRange(NOW + 6, NOW + 10, 1)) == []
