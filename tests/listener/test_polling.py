"""`observe` without a listener, on real Spark: its queries are observed by polling."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from sparklag_listener import ListenerError, NoListener
from sparklag_listener.events.session import KEPT_PROGRESSES
from tests.listener.conftest import Driver
from tests.listener.offsets_topic import causes
from tests.logged import logged
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_closing_asks_a_last_time(driver: Driver) -> None:
    query = driver.start()
    query.processAllAvailable()
    handle = driver.observe(driver.servers, method="poll", refresh_interval_s=300)
    driver.published.until(query.id, driver.at_end(), "the end of the topic")
    driver.send()
    query.processAllAvailable()
    query.stop()
    # A driver's five seconds are too few beside busy processes.
    handle.close(timeout_s=60)
    received = driver.published.observations(query.id)
    assert received[-1].cause == "terminated"
    assert driver.at_end()(received)


@pytest.mark.parametrize("method", ["listener", pytest.param("poll", marks=pytest.mark.slow)])
def test_a_continuous_query_reports_that_it_goes_on(driver: Driver, method: Any) -> None:
    handle = driver.observe(method=method, refresh_interval_s=0.2, heartbeat_s=0.5)
    assert handle.method == method
    query = driver.start(trigger={"continuous": "1 second"})
    received = driver.published.until(
        query.id, lambda received: causes(received).count("refresh") > 1, "two refreshes"
    )
    assert received[0].cause == "started"
    assert received[-1].sources[0].topics == [driver.topic]
    assert received[-1].sources[0].processed is None
    assert {each.activity for each in received} == {None}, "it does not say what it does"
    query.stop()
    driver.published.await_cause(query.id, "terminated")
    assert handle.stats().failed == 0


def test_where_no_port_can_be_opened_for_callbacks_it_polls_and_reports_why(
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
    (output,) = logged(caplog)
    assert "polling Spark every 0.2 s instead" in output
    assert "Cannot assign requested address" in output
    query = driver.start()
    driver.published.until(query.id, driver.at_end(), "the end of the topic")


@pytest.mark.parametrize("method", ["poll", "listener"])
def test_spark_that_keeps_no_progress_is_named_where_it_is_polled(
    driver: Driver, method: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    handle = driver.observe(method=method, refresh_interval_s=0.2, heartbeat_s=0.5)
    query = driver.start()
    driver.published.until(query.id, driver.at_end(), "the end of the topic")
    assert handle.stats().last_error is None
    driver.spark.conf.set(KEPT_PROGRESSES, "1")
    try:
        driver.send()
        if method == "poll":
            wait_for(lambda: handle.stats().last_error is not None, "it is named")
            expected = f"{KEPT_PROGRESSES} is 1, so polling sees no batch: it takes 2 or more"
            assert re.match(expected, str(handle.stats().last_error))
        else:
            driver.published.until(query.id, driver.at_end(), "the new end of the topic")
        before = len(driver.published.observations(query.id))
        driver.published.until(query.id, lambda received: len(received) > before + 3, "more polls")
    finally:
        driver.spark.conf.unset(KEPT_PROGRESSES)
    assert len(logged(caplog)) == handle.stats().failed == (method == "poll")
