"""The listener that is composed in the JVM: what Python gets of each event, on real Spark."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import pytest
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from sparklag_listener.classic import session
from sparklag_listener.classic.listener import ProgressReader, Py4jListener
from sparklag_listener.classic.session import wrapped
from sparklag_listener.events.event_queue import Progressed, QueryEvent, Started
from tests.listener.java_events import QUERY_ID, RUN_ID, progress_event, started_event

pytestmark = pytest.mark.spark


def refuse(*arguments: object) -> None:
    raise Py4JError("no access")


class RecordingListener:
    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's
        self.events: list[QueryEvent] = []
        self.errors: list[BaseException] = []
        self.listener = Py4jListener(spark._jvm, self.events.append, self.errors.append)
        self.wrapper = wrapped(gateway, self.listener)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_progress_is_passed_as_its_text_short_or_long_or_read_by_commands(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    if not is_allowed:
        monkeypatch.setattr(session, "text_listener", refuse)
    monkeypatch.setattr(Py4jListener, "onQueryProgress" if is_allowed else "accept", None)
    recording = RecordingListener(spark)
    events = [progress_event(spark, f"progress_cost_{n}p") for n in (1, 2000, 2000, 1)]
    for event in events:
        recording.wrapper.onQueryProgress(event)
    assert recording.errors == []
    assert [each.text for each in recording.events if isinstance(each, Progressed)] == [
        event.progress().json() for event in events
    ]


@pytest.mark.parametrize("can_be_sliced", [True, False])
def test_text_that_is_read_in_slices_or_whole_is_sparks_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, can_be_sliced: bool
) -> None:
    if not can_be_sliced:
        monkeypatch.setattr(ProgressReader, "_compose", refuse)
    short, long = (progress_event(spark, f"progress_cost_{n}p") for n in (1, 2000))
    reader = ProgressReader(spark._jvm)
    # How one is taken is decided by the one before: each follows each.
    for event in (short, long, long, short, short, long):
        assert reader.read(event.progress()) == event.progress().json()


def test_text_that_is_not_ascii_is_passed_as_it_is(spark: SparkSession) -> None:
    recording = RecordingListener(spark)
    event = progress_event(spark, "progress_cost_1p", name='Bestellungen\n"ü" \\ 注文 🛒')
    recording.wrapper.onQueryProgress(event)
    (progress,) = recording.events
    assert isinstance(progress, Progressed)
    assert progress.text == event.progress().json()


def test_every_other_event_is_passed_as_it_is(spark: SparkSession) -> None:
    recording = RecordingListener(spark)
    recording.wrapper.onQueryStarted(started_event(spark))
    (started,) = recording.events
    assert started == Started(QUERY_ID, RUN_ID, "orders", started.at_ms)


def test_an_error_in_python_is_reported_and_not_raised_into_spark(spark: SparkSession) -> None:
    recording = RecordingListener(spark)
    recording.listener._on_event = refuse
    recording.wrapper.onQueryProgress(progress_event(spark, "progress_cost_1p"))
    (error,) = recording.errors
    assert str(error) == "no access"


def test_callbacks_of_a_newer_spark_are_ignored_and_logged_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    class Newer(Py4jListener):
        class Java:
            implements: ClassVar = [
                *Py4jListener.Java.implements,
                "java.util.function.BiFunction",
                "java.lang.Runnable",
            ]

    caplog.set_level(logging.DEBUG, "sparklag")
    errors: list[BaseException] = []
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]  # pyspark's
    jvm: Any = spark._jvm
    listener = Newer(jvm, lambda event: None, errors.append)
    values = jvm.java.util.HashMap()
    for name in "ab":
        values.put(name, name)
    values.replaceAll(listener)  # apply(key, value)
    jvm.java.lang.Thread(listener).run()
    listed = jvm.java.util.ArrayList()
    listed.add(listener)
    # The methods of Java's Object are not callbacks.
    assert listed.contains(listener)
    assert not listed.contains(Newer(jvm, lambda event: None, errors.append))
    assert listed.hashCode() == 31 + listener.hashCode()
    assert "Newer object at" in listed.toString()
    assert errors == []
    assert [record.getMessage() for record in caplog.records] == [
        f"sparklag: the callback {name} of this Spark is ignored" for name in ("apply", "run")
    ]
