"""The lag of real queries by their driver's handle: embedded, from a service, from the topic."""

from __future__ import annotations

import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparklag
from sparklag_jobs.broker.child_process import free_port
from sparklag_listener import (
    HandleClosed,
    Lags,
    LagUnavailable,
    ListenerError,
    ObserverHandle,
    QueryNotFound,
)
from sparklag_schemas import SettingsError, SparklagError
from tests.end_to_end import Topics, service
from tests.listener.conftest import Driver
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.waiting import DEADLINE_S, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def own_topics(topics: Topics) -> dict[str, Any]:
    environment = topics.environment
    return {"offsets_topic": environment["SPARKLAG_OFFSETS_TOPIC"], "lag_topic": topics.lag}


def shows(handle: ObserverHandle, query: str, lag: int) -> bool:
    try:
        return handle.lag(query, timeout_s=DEADLINE_S).total_lag == lag
    except QueryNotFound:
        return False


def start_behind(driver: Driver) -> Any:
    """A query that has processed the ten records, and is to wait long before it reads more."""
    query = driver.start(maxOffsetsPerTrigger="1000", minOffsetsPerTrigger="1000")
    wait_for(lambda: bool(query.recentProgress), "it has read what there was")
    return query


def test_the_embedded_service_answers_from_its_view(driver: Driver) -> None:
    embedded = driver.observe(
        driver.servers, embedded=True, http_port=0, lag_topic=f"{driver.topic}-lag"
    )
    query = start_behind(driver)
    wait_for(lambda: shows(embedded, "orders", 0), "the query has caught up")
    driver.send(7)
    wait_for(lambda: shows(embedded, "orders", 7), "its lag has grown")
    assert embedded.lag(query.id).measured_by == "embedded"
    (event,) = embedded.lags(timeout_s=DEADLINE_S)
    # The Spark of the tests has no UI.
    assert (event.query_id, event.spark_ui_url) == (query.id, None)
    html = embedded._repr_html_()
    assert ">orders<" in html
    assert ">7<" in html
    query.stop()
    wait_for(lambda: embedded.lag("orders").status == "FINISHED", "it has ended")
    assert [event.status for event in embedded.lags(timeout_s=DEADLINE_S)] == ["FINISHED"]


@pytest.mark.slow
def test_a_service_answers_by_rest_where_its_address_is_known_else_the_topic_does(
    driver: Driver, kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    with service(topics, kafka, tmp_path / "service.log") as url:
        by_topic = driver.observe(driver.servers, **own_topics(topics))
        query = start_behind(driver)
        wait_for(lambda: shows(by_topic, "orders", 0), "the topic reports that it has caught up")
        driver.send(7)
        wait_for(lambda: shows(by_topic, query.id, 7), "the topic reports that its lag has grown")
        (event,) = by_topic.lags(timeout_s=DEADLINE_S)
        assert event.measured_by == "service"
        with pytest.raises(QueryNotFound):
            by_topic.lag("never started", timeout_s=DEADLINE_S)
        assert sparklag.lag("orders", timeout_s=DEADLINE_S).query_id == query.id
        by_topic.close()
        # This process observes nothing now: from the topic, then from the service.
        named = partial(sparklag.lag, "orders", timeout_s=DEADLINE_S)
        assert named(driver.servers, lag_topic=topics.lag).total_lag == 7
        assert named(service_url=url).total_lag == 7
        with pytest.raises(SettingsError, match="bootstrap_servers is not set"):
            named()
        by_rest = driver.observe(driver.servers, service_url=url, **own_topics(topics))
        wait_for(lambda: shows(by_rest, "orders", 7), "the service reports the same")
        assert by_rest.lag(query.id[:8], timeout_s=DEADLINE_S).query_id == query.id
        wait_for(lambda: len(by_rest.lags(timeout_s=DEADLINE_S)) == 1, "it is observed anew")
        assert by_rest.lags()[0].query_id == query.id
        with pytest.raises(QueryNotFound):
            by_rest.lag("never started", timeout_s=DEADLINE_S)
    with pytest.raises(LagUnavailable, match=f"{url} does not answer: .*refused"):
        by_rest.lag("orders")


@pytest.mark.parametrize("is_embedded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_with_kafka_away_it_fails_and_the_query_goes_on(driver: Driver, is_embedded: bool) -> None:
    port = free_port()
    handle = driver.observe(f"127.0.0.1:{port}", embedded=is_embedded, http_port=0)
    query = driver.start()
    query.processAllAvailable()
    wait_for(lambda: handle.stats().observed > 0, "it is observed")

    def reports_why() -> bool:
        with pytest.raises(LagUnavailable) as unavailable:
            handle.lags(timeout_s=3.0)
        return "connection refused" in str(unavailable.value)

    wait_for(reports_why, "the cause is named")
    assert "connection refused" in handle._repr_html_()
    assert query.isActive


def test_a_closed_handle_and_a_fork_say_so_at_once(driver: Driver) -> None:
    handle = driver.observe(driver.servers)

    def ask(answers: Any) -> None:
        try:
            handle.lag("orders")
        except SparklagError as error:
            answers.put((type(error).__name__, str(error), repr(handle)))
        os._exit(0)

    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    fork = context.Process(target=ask, args=(answers,))
    fork.start()
    name, text, shown = answers.get()
    fork.join()
    assert (name, "a fork of the observing one" in text) == ("HandleClosed", True)
    assert "closed application" in shown
    handle.close()
    with pytest.raises(HandleClosed, match="this handle is closed"):
        handle.lags()
    assert "closed application" in handle._repr_html_()


def test_what_cannot_be_requested_is_refused_in_a_line(driver: Driver) -> None:
    handle = driver.observe()
    with pytest.raises(LagUnavailable, match="pass bootstrap_servers to observe"):
        handle.lags()
    names: list[Any] = ["", None, 7, "\ud800"]
    for query in names:
        with pytest.raises(ListenerError, match="takes the name or id of a query"):
            handle.lag(query)


def test_it_shows_itself_in_a_line_without_a_secret(driver: Driver) -> None:
    handle = driver.observe("127.0.0.1:9")
    shown = repr(handle)
    assert shown.startswith("<ObserverHandle: observing application sparklag-tests (local-")
    assert f"publishing to topic {driver.published.name} on 127.0.0.1:9; observed 0," in shown
    driver.start().processAllAvailable()
    wait_for(lambda: handle.stats().last_error is not None, "publishing fails")
    assert "last error: 127.0.0.1:9: connection refused" in repr(handle)
    handle._stats.fail("sasl.password=hunter2Planted\n\x1b[31m")
    assert "hunter2Planted" not in repr(handle)
    assert repr(handle).isprintable()
    handle.close(0.5)
    assert repr(handle).startswith("<ObserverHandle: closed application")


# PySpark leaves the socket that rows came through to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("partitions", [False, True])
def test_lags_are_a_frame_of_spark_too_with_unknowns_null_and_empty_without_queries(
    spark: SparkSession, partitions: bool
) -> None:
    full = Lags([lag_event(), lag_event(query_id="b", total_lag=None, processed_at=None)])
    frame = full.to_spark(spark, partitions=partitions)
    first, second = frame.selectExpr("*", "unix_millis(processed_at) AS at_ms").collect()
    assert first["at_ms"] == 1_790_000_000_123
    assert second["processed_at"] is None
    if partitions:
        assert (first["topic"], first["lag"]) == ("orders", 65)
    else:
        assert (first["total_lag"], second["total_lag"]) == (65, None)
    empty = Lags().to_spark(spark, partitions=partitions)
    assert empty.schema == frame.schema
    assert empty.count() == 0
