"""The callbacks: each event handed over as a value, nothing ever raised into Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from sparklag_listener.classic.listener import Py4jListener
from sparklag_listener.events.query_events import Idled, Progressed, QueryEvent, Started, Terminated
from tests.listener.fakes import FailingEvent, FakeEvent

CALLBACKS = ["onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated"]


class Heard:
    """What a listener handed over, and what it complained of."""

    def __init__(self) -> None:
        self.events: list[QueryEvent] = []
        self.errors: list[BaseException] = []
        self.listener = Py4jListener(None, self.events.append, self.errors.append)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def one(heard: Heard) -> Any:
    assert heard.errors == []
    (event,) = heard.events
    assert abs(event.at_ms - time.time() * 1000) < 60_000
    return event


def test_started_carries_the_ids_and_the_name(heard: Heard) -> None:
    heard.listener.onQueryStarted(FakeEvent())
    event = one(heard)
    assert event == Started("query", "run", "orders", event.at_ms)


def test_a_query_without_a_name_has_none(heard: Heard) -> None:
    heard.listener.onQueryStarted(FakeEvent(query_name=None))
    assert one(heard).name is None


def test_progress_carries_sparks_own_text(heard: Heard) -> None:
    heard.listener.onQueryProgress(FakeEvent(progress_text='{"id":"query"}'))
    event = one(heard)
    assert event == Progressed('{"id":"query"}', event.at_ms)


def test_idle_carries_the_ids(heard: Heard) -> None:
    heard.listener.onQueryIdle(FakeEvent())
    event = one(heard)
    assert event == Idled("query", "run", event.at_ms)


def test_terminated_carries_the_exceptions_text(heard: Heard) -> None:
    heard.listener.onQueryTerminated(FakeEvent(error="java.lang.Exception: no"))
    event = one(heard)
    assert event == Terminated("query", "run", "java.lang.Exception: no", event.at_ms)


def test_a_query_that_was_stopped_has_no_exception(heard: Heard) -> None:
    heard.listener.onQueryTerminated(FakeEvent(error=None))
    assert one(heard).exception is None


def test_a_long_exception_is_cut(heard: Heard) -> None:
    heard.listener.onQueryTerminated(FakeEvent(error="it broke\n" + "frame\n" * 10_000))
    assert len(one(heard).exception) == 8_000


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize(
    "make_error",
    [
        lambda: Py4JNetworkError("the JVM is gone"),
        lambda: ConnectionRefusedError("the JVM is gone"),
        lambda: TypeError("'JavaPackage' object is not callable"),
    ],
)
def test_an_event_that_fails_is_told_and_not_raised_into_spark(
    heard: Heard, callback: str, make_error: Callable[[], Exception]
) -> None:
    getattr(heard.listener, callback)(FailingEvent(make_error))
    assert heard.events == []
    (error,) = heard.errors
    assert isinstance(error, type(make_error()))
    # And the next event is taken as if nothing had been.
    getattr(heard.listener, callback)(FakeEvent())
    assert len(heard.events) == 1


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_handle_that_is_closed_is_no_error_for_spark(callback: str) -> None:
    errors: list[BaseException] = []

    def refuse(event: QueryEvent) -> None:
        raise RuntimeError("Event loop is closed")

    getattr(Py4jListener(None, refuse, errors.append), callback)(FakeEvent())
    assert len(errors) == 1


def test_it_implements_sparks_own_interface_whole() -> None:
    assert "org.apache.spark.sql.streaming.PythonStreamingQueryListener" in (
        Py4jListener.Java.implements
    )
    assert all(callable(getattr(Py4jListener, callback)) for callback in CALLBACKS)
