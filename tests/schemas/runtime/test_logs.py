"""Records that repeat are limited, and those left out are counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sparklag_schemas.runtime import logs
from sparklag_schemas.runtime.logs import RepeatLimit, log_fields
from tests.waiting import wait_for


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


class Limited:
    def __init__(self, window_s: float) -> None:
        self.limit = RepeatLimit(window_s)
        self.handler = Kept()
        self.handler.addFilter(self.limit)
        self.log = logging.getLogger("sparklag_service.flood")
        self.log.addHandler(self.handler)


for_an_hour = pytest.mark.parametrize("limited", [3_600], indirect=True)


@pytest.fixture
def limited(request: pytest.FixtureRequest) -> Iterator[Limited]:
    """A limited logger with a window of half a second, or of the parameter."""
    made = Limited(getattr(request, "param", 0.5))
    yield made
    made.log.removeHandler(made.handler)


def test_a_flood_is_limited_and_the_rest_is_counted_when_its_window_ends(limited: Limited) -> None:
    for number in range(100):
        limited.log.warning("cannot read %d", number, extra=log_fields("q1", "away"))
    assert limited.handler.texts() == [f"cannot read {number}" for number in range(5)]
    wait_for(lambda: len(limited.handler.records) > 5, "the number, with nothing else logged")
    (last,) = limited.handler.records[5:]
    assert last.getMessage() == "… 95 more like this: cannot read 0"
    assert (last.name, last.levelno) == (limited.log.name, logging.WARNING)
    result = {name: getattr(last, name) for name in ("query_id", "reason", "repeated")}
    assert result == {"query_id": "q1", "reason": "away", "repeated": 95}


def test_another_query_template_or_logger_is_not_limited_with_it(limited: Limited) -> None:
    for number in range(20):
        limited.log.warning("cannot read", extra=log_fields(f"q{number}"))
        limited.log.warning(f"template {number}")  # noqa: G004  # each is another
        limited.log.getChild(str(number)).warning("cannot read")
    assert len(limited.handler.records) == 60


def test_lines_for_debugging_are_not_limited(limited: Limited) -> None:
    limited.log.setLevel(logging.DEBUG)
    for _ in range(20):
        limited.log.debug("read")
    assert len(limited.handler.records) == 20


def test_the_next_window_begins_anew(limited: Limited) -> None:
    for _ in range(7):
        limited.log.warning("away")
    wait_for(lambda: "… 2 more like this: away" in limited.handler.texts(), "the window ends")
    limited.log.warning("away")
    assert limited.handler.texts()[-1] == "away"


@for_an_hour
def test_at_the_end_of_the_process_the_number_so_far_is_logged(limited: Limited) -> None:
    for _ in range(8):
        limited.log.warning("away")
    limited.limit.report_all()
    limited.limit.report_all()
    assert limited.handler.texts() == ["away"] * 5 + ["… 3 more like this: away"]


@for_an_hour
def test_the_windows_are_bounded(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_KEPT", 10)
    for _ in range(6):
        limited.log.warning("away", extra=log_fields("first"))
    for number in range(30):
        limited.log.warning("away", extra=log_fields(f"q{number}"))
    # A window that is dropped is reported.
    assert "… 1 more like this: away" in limited.handler.texts()
    assert len(limited.limit._windows) == 10
