"""Spark's listener interface in Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from sparklag_listener.classic.listener import STOPPED, Py4jListener
from sparklag_listener.events.event_queue import Idled, Progressed, QueryEvent, Started, Terminated
from tests.listener.fakes import FailingEvent, FakeEvent


@pytest.mark.parametrize(
    ("exception", "is_by_stop"),
    [
        # From 90 calls of `spark.stop()` at random moments, Spark 4.0.0.
        ("SparkException: Job 1 cancelled because SparkContext was shut down", True),
        ("IllegalStateException: Cannot call methods on a stopped SparkContext.", True),
        ("IllegalStateException: SparkContext has been shutdown", True),
        ("SparkException: Job 1 cancelled as part of cancellation of all jobs", False),
        ("SparkException: [INTERNAL_ERROR] The Spark SQL phase planning failed", False),
        ("ValueError: this batch breaks", False),
    ],
)
def test_a_stop_is_recognised_by_its_text(exception: str, is_by_stop: bool) -> None:
    assert bool(STOPPED.search(exception)) == is_by_stop


CALLBACKS = ["onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated"]


class RecordingListener:
    def __init__(self) -> None:
        self.events: list[QueryEvent] = []
        self.errors: list[BaseException] = []
        self.listener = Py4jListener(None, self.events.append, self.errors.append)


@pytest.fixture
def received() -> RecordingListener:
    return RecordingListener()


@pytest.mark.parametrize(
    ("callback", "event", "expected"),
    [
        ("onQueryStarted", FakeEvent(), Started("query", "run", "orders", 0)),
        ("onQueryStarted", FakeEvent(query_name=None), Started("query", "run", None, 0)),
        ("onQueryProgress", FakeEvent(progress_text='{"id":"q"}'), Progressed('{"id":"q"}', 0)),
        ("onQueryIdle", FakeEvent(), Idled("query", "run", 0)),
        ("onQueryTerminated", FakeEvent(error="a: no"), Terminated("query", "run", "a: no", 0)),
        ("onQueryTerminated", FakeEvent(error=None), Terminated("query", "run", None, 0)),
        (
            *("onQueryTerminated", FakeEvent(error="it broke\n" + "x" * 60_000)),
            Terminated("query", "run", "it broke\n" + "x" * 7_991, 0),
        ),
    ],
)
def test_an_event_is_passed_on(
    received: RecordingListener, callback: str, event: FakeEvent, expected: Any
) -> None:
    getattr(received.listener, callback)(event)
    assert received.errors == []
    (given,) = received.events
    assert abs(given.at_ms - time.time() * 1000) < 60_000
    assert replace(given, at_ms=0) == expected


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize(
    "make_error",
    [
        lambda: Py4JNetworkError("the JVM is gone"),
        lambda: ConnectionRefusedError("the JVM is gone"),
        lambda: TypeError("'JavaPackage' object is not callable"),
    ],
)
def test_an_event_that_fails_is_not_raised_into_spark(
    received: RecordingListener, callback: str, make_error: Callable[[], Exception]
) -> None:
    getattr(received.listener, callback)(FailingEvent(make_error))
    assert received.events == []
    (error,) = received.errors
    assert isinstance(error, type(make_error()))
    # And the next event is taken as if nothing had been.
    getattr(received.listener, callback)(FakeEvent())
    assert len(received.events) == 1


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_handle_that_is_closed_is_no_error_for_spark(callback: str) -> None:
    errors: list[BaseException] = []

    def refuse(event: QueryEvent) -> None:
        raise RuntimeError("Event loop is closed")

    getattr(Py4jListener(None, refuse, errors.append), callback)(FakeEvent())
    assert len(errors) == 1
