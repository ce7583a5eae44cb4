"""`observe` without a listener, on real Spark: what its queries do is found by asking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklag_listener import ListenerError, NoListener
from sparklag_schemas import Observation
from tests import samples
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka, start_query
from tests.logged import logged

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def listeners(spark: SparkSession) -> int:
    return len(spark._jsparkSession.streams().listListeners())


def at_end(driver: Driver) -> Callable[[Sequence[Observation]], bool]:
    end = {driver.topic: driver.client.end_offsets(driver.topic)}
    return lambda seen: bool(seen) and seen[-1].sources[0].processed == end


def test_a_querys_whole_life_is_found_by_asking(driver: Driver) -> None:
    running = driver.start("running", "running")
    running.processAllAvailable()
    handle = driver.observe(driver.servers, method="poll", refresh_interval_s=0.2, heartbeat_s=1.0)
    assert handle.method == "poll"
    again = driver.observe(driver.servers, method="poll", refresh_interval_s=0.2, heartbeat_s=1.0)
    assert again is handle
    assert listeners(driver.spark) == 0
    query = driver.start()
    for started in (running, query):
        driver.published.until(started.id, at_end(driver), "the end of the topic")
    driver.send(7)
    for started in (running, query):
        driver.published.until(started.id, at_end(driver), "the new end of the topic")
    driver.published.await_cause(query.id, "refresh")
    query.stop()
    driver.published.await_cause(query.id, "terminated")
    seen = driver.published.observations(query.id)
    causes = [each.cause for each in seen]
    assert (causes[0], causes[-1]) == ("started", "terminated")
    assert causes.count("started") == causes.count("terminated") == 1
    assert seen[-1].exception is None
    checkpoint = driver.checkpoints / "query"
    for each in seen:
        assert (each.origin, each.query, each.run_id) == ("poll", "orders", query.runId)
        assert each.checkpoint_location == f"file:{checkpoint}"
        assert each.sources[0].bootstrap_servers == driver.servers
        if each.batch_id is not None:
            (saved,) = samples.committed_offsets(checkpoint, each.batch_id)
            assert each.sources[0].processed == {
                driver.topic: {int(number): end for number, end in saved[driver.topic].items()}
            }
    handle.close()
    stats = handle.stats()
    assert (stats.failed, stats.dropped, stats.recovered) == (0, 0, 0), stats
    assert stats.observed >= 6


def test_closing_asks_a_last_time(driver: Driver) -> None:
    query = driver.start()
    query.processAllAvailable()
    handle = driver.observe(driver.servers, method="poll", refresh_interval_s=300)
    driver.published.until(query.id, at_end(driver), "the end of the topic")
    driver.send()
    query.processAllAvailable()
    query.stop()
    # A driver's five seconds are too few beside busy processes.
    handle.close(timeout_s=60)
    last = driver.published.observations(query.id)[-1]
    assert last.cause == "terminated"
    assert at_end(driver)([last])


def test_polled_a_query_that_fails_says_why(driver: Driver, breaks: Callable[..., None]) -> None:
    # No brokers are given: its description says them.
    driver.observe(method="poll", refresh_interval_s=0.2)
    query = driver.start()
    driver.published.await_cause(query.id, "progress")
    query.stop()
    writer = read_kafka(driver.spark, driver.servers, subscribe=driver.topic).writeStream
    failing = driver.keep(
        writer.foreachBatch(lambda batch, batch_id: breaks(batch, batch_id) if batch_id else None)
        .option("checkpointLocation", str(driver.checkpoints / "failing"))
        .start()
    )
    driver.published.await_cause(failing.id, "progress")
    driver.send()
    ended = driver.published.await_cause(failing.id, "terminated")
    assert "this batch breaks" in str(ended.exception)
    assert sum((ended.sources[0].processed or {})[driver.topic].values()) == 10


@pytest.mark.parametrize("method", ["listener", "poll"])
def test_a_continuous_query_says_that_it_goes_on(driver: Driver, method: Any) -> None:
    handle = driver.observe(method=method, refresh_interval_s=0.2, heartbeat_s=0.5)
    assert handle.method == method
    frame = read_kafka(driver.spark, driver.servers, subscribe=driver.topic)
    query = driver.keep(start_query(frame, driver.checkpoints / "query", continuous="1 second"))
    seen = driver.published.until(
        query.id, lambda seen: [o.cause for o in seen].count("refresh") > 1, "two refreshes"
    )
    assert seen[0].cause == "started"
    assert seen[-1].sources[0].topics == [driver.topic]
    assert seen[-1].sources[0].processed is None
    assert {each.activity for each in seen} == {None}, "it does not say what it does"
    query.stop()
    driver.published.await_cause(query.id, "terminated")
    assert handle.stats().failed == 0


def test_where_no_port_can_be_opened_for_callbacks_it_polls_and_says_why(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = driver.spark.sparkContext._gateway
    assert gateway is not None
    # The one of this JVM is open already, for other tests.
    monkeypatch.setitem(gateway.__dict__, "_callback_server", None)
    # An address that is no machine's (RFC 5737): the system refuses to listen there.
    monkeypatch.setattr(gateway.callback_server_parameters, "address", "192.0.2.1")
    caplog.set_level(logging.WARNING, "sparklag")
    with pytest.raises(NoListener, match="Cannot assign requested address") as raised:
        driver.observe(driver.servers, method="listener")
    assert isinstance(raised.value, ListenerError)
    assert "\n" not in str(raised.value)
    handle = driver.observe(driver.servers, refresh_interval_s=0.2)
    assert handle.method == "poll"
    (told,) = logged(caplog)
    assert "polling Spark every 0.2 s instead" in told
    assert "Cannot assign requested address" in told
    query = driver.start()
    driver.published.until(query.id, at_end(driver), "the end of the topic")
