"""A handle's end: whoever closes it, however often, from wherever; and what it counts."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from sparklag_listener import ObserverHandle
from sparklag_listener.driver_pipeline import DriverPipeline
from tests.listener.conftest import Driver, listeners
from tests.logged import logged
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NOBODY_THERE = "127.0.0.1:9"
CLOSE_S = 60.0
"""Closing takes 5 s at most; a busy machine more."""


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sparklag"]


def test_all_threads_that_close_return_once_all_is_published(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    assert listeners(driver.spark) == 1
    query = driver.start()
    query.processAllAvailable()
    query.stop()
    published_at_return: list[int] = []

    def close() -> None:
        handle.close(CLOSE_S)
        published_at_return.append(handle.stats().published)

    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * CLOSE_S)
        assert not thread.is_alive()
    observations = driver.published.observations(query.id)
    assert published_at_return == [len(observations)] * 8
    assert observations[-1].cause == "terminated"
    assert driver.at_end()(observations)
    assert (handle.stats().queued, handle.stats().dropped) == (0, 0)
    assert handle.closed
    assert (our_threads(), listeners(driver.spark)) == ([], 0)
    handle.close()


def test_closed_inside_a_batch_the_query_goes_on(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    query = driver.start(write=lambda batch, batch_id: handle.close())
    query.processAllAvailable()
    driver.send()
    query.processAllAvailable()
    assert query.exception() is None
    assert query.isActive
    assert handle.closed
    driver.published.await_cause(query.id, "started")


def test_without_kafka_closing_is_bounded(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    handle = driver.observe(NOBODY_THERE)
    query = driver.start()
    query.processAllAvailable()
    wait_for(lambda: handle.stats().failed > 0, "a failure is counted")
    assert handle.stats().queued >= 1
    assert "connection refused" in str(handle.stats().last_error)
    handle.close(timeout_s=2)
    assert query.exception() is None
    stats = handle.stats()
    assert stats.queued == 0
    assert stats.dropped >= 1
    assert stats.published == 0
    output = [line for line in logged(caplog) if "publish" in line]
    assert len(output) == 2
    assert "cannot publish" in output[0]
    assert f"closed with {stats.dropped} observations not published" in output[1]


def test_closing_with_no_time_at_all_still_ends_it(driver: Driver) -> None:
    handle = driver.observe(NOBODY_THERE)
    driver.start().processAllAvailable()
    handle.close(timeout_s=0)
    wait_for(lambda: our_threads() == [], "its loop has ended")
    wait_for(lambda: listeners(driver.spark) == 0, "its listener is gone")


def test_queries_survive_a_failed_callback(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, mended = DriverPipeline.receive, threading.Event()

    def fail_on_progress(pipeline: DriverPipeline, event: Any) -> None:
        if type(event).__name__ == "Progressed" and not mended.is_set():
            raise ZeroDivisionError("inside the callback")
        receive(pipeline, event)

    monkeypatch.setattr(DriverPipeline, "receive", fail_on_progress)
    handle = driver.observe(driver.servers)
    query = driver.start()
    query.processAllAvailable()
    wait_for(lambda: handle.stats().failed > 0, "the failure is counted")
    assert "ZeroDivisionError: inside the callback" in str(handle.stats().last_error)
    assert query.exception() is None
    mended.set()
    driver.send()
    query.processAllAvailable()
    driver.published.await_cause(query.id, "progress")


def test_a_broken_listener_leaves_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spark: Any, listener: Any) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("sparklag_listener.classic.session.add_listener", refuse)
    with pytest.raises(TypeError):
        driver.observe(driver.servers)
    assert our_threads() == []
    monkeypatch.undo()
    assert isinstance(driver.observe(driver.servers), ObserverHandle)
