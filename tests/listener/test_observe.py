"""`observe` on real Spark: what its queries do arrives on the topic, to the record."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sparklag_listener import AlreadyObserved, observe
from sparklag_listener.events.kafka_source import WHOLE_NAMES
from sparklag_schemas import Observation, SourcePosition
from tests.listener.conftest import Driver, break_batch, listeners
from tests.listener.drivers import read_kafka
from tests.listener.offsets_topic import causes, in_order
from tests.logged import logged
from tests.waiting import DEADLINE_S, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CLOSE_S = 60.0


def only_source(observation: Observation) -> SourcePosition:
    (source,) = observation.sources
    return source


@pytest.mark.parametrize("method", ["listener", "poll"])
def test_a_querys_whole_life_arrives_keyed_and_to_the_record(driver: Driver, method: Any) -> None:
    running = driver.start("running", "running")
    running.processAllAvailable()
    settings: dict[str, Any] = {"method": method, "refresh_interval_s": 0.2, "heartbeat_s": 1.0}
    handle = driver.observe(driver.servers, **settings)
    assert handle.method == method
    assert driver.observe(driver.servers, **settings) is handle
    assert listeners(driver.spark) == (method == "listener")
    query = driver.start()
    for _ in range(2):
        for started in (running, query):
            driver.published.until(started.id, driver.at_end(), "the end of the topic")
        driver.send(7)
    if method == "listener":
        # Comes more often than the heartbeat, which alone has the activity.
        driver.published.await_cause(query.id, "idle")
    else:
        driver.published.until(
            query.id, lambda received: "waiting" in [each.activity for each in received], "it waits"
        )
    driver.published.until(query.id, driver.at_end(), "the new end of the topic")
    query.stop()
    driver.published.await_cause(query.id, "terminated")
    handle.close(CLOSE_S)
    observations = driver.published.observations(query.id)
    in_order(observations)
    all_causes = causes(observations)
    assert (all_causes[0], all_causes[-1]) == ("started", "terminated")
    assert all_causes.count("started") == 1
    assert "progress" in all_causes
    for observation in observations:
        assert (observation.query, observation.run_id) == ("orders", query.runId)
        assert observation.origin == method
        assert observation.exception is None
        assert observation.activity is None or observation.cause == "refresh"
        assert observation.checkpoint_location == f"file:{driver.checkpoints / 'query'}"
        assert only_source(observation).bootstrap_servers == driver.servers
        if observation.batch_id is not None:
            assert only_source(observation).processed == driver.committed(observation.batch_id)
    assert only_source(observations[-1]).processed == only_source(observations[-2]).processed
    for message in driver.published.messages(query.id):
        headers = dict(message.headers() or [])
        printed = json.loads(message.value() or b"")
        assert headers["ce_id"] == printed["observation_id"].encode()
        assert headers["ce_type"] == b"sparklag.observation.v1"
        assert headers["ce_subject"] == str(query.id).encode()
    of_running = driver.published.observations(running.id)
    # Its last progress may be on Spark's bus still, and come before Spark is polled.
    assert of_running[0].cause in ("started", "progress")
    assert of_running[-1].checkpoint_location == f"file:{driver.checkpoints / 'running'}"
    stats = handle.stats()
    assert stats.published == len(observations) + len(of_running)
    assert (stats.queued, stats.dropped, stats.failed) == (0, 0, 0), stats
    assert method == "listener" or stats.recovered == 0


def test_a_second_call_returns_the_same_handle_until_that_is_closed(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    # PySpark makes another object for the same session of the JVM.
    active = SparkSession.getActiveSession()
    assert active is not None
    same: dict[str, Any] = {"offsets_topic": driver.published.name, "topic_partitions": 1}
    assert observe(active, driver.servers, **same) is handle
    assert listeners(driver.spark) == 1
    handle.close()
    assert listeners(driver.spark) == 0
    again = driver.observe(driver.servers)
    assert again is not handle
    assert not again.closed


def test_a_second_call_with_other_arguments_names_them_and_no_values(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    with pytest.raises(AlreadyObserved, match=r"with another cluster, store: close\(\) its"):
        driver.observe(driver.servers, store="sqlite:///S3CRET.db", cluster="S3CRET")
    with pytest.raises(AlreadyObserved, match="another bootstrap_servers:") as raised:
        driver.observe("user:S3CRET@broker:9092")
    assert "S3CRET" not in str(raised.value)
    assert not handle.closed
    assert driver.observe(driver.servers) is handle


def test_a_session_beside_it_has_a_handle_and_queries_of_its_own(driver: Driver) -> None:
    with observe(
        driver.spark.newSession(),
        driver.servers,
        offsets_topic=f"{driver.topic}-elsewhere",
        topic_partitions=1,
        heartbeat_s=0.2,
    ) as other:
        handle = driver.observe(driver.servers, heartbeat_s=0.2)
        assert other is not handle
        query = driver.start()
        driver.published.await_cause(query.id, "refresh")
        assert (other.stats().published, other.stats().queued) == (0, 0)
    assert other.closed
    assert not handle.closed


def test_one_line_reports_what_is_observed_and_where_it_goes(
    driver: Driver,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.INFO, "sparklag")
    context = driver.spark.sparkContext
    application = f"observing application {context.appName} ({context.applicationId})"
    topic = f"publishing to topic {driver.published.name}"
    driver.observe(driver.servers).close()
    assert logged(caplog) == [
        f"sparklag: {application}, method listener; {topic} on {driver.servers}"
    ]
    caplog.clear()
    driver.observe(store=f"sqlite:///{tmp_path}/offsets.db", method="poll").close()
    where = f"{topic} on the brokers of its queries, recording to sqlite:///{tmp_path}/offsets.db"
    assert logged(caplog) == [f"sparklag: {application}, method poll; {where}"]
    # As in a program that configures no logs.
    monkeypatch.setattr(logging.getLogger("sparklag"), "propagate", False)
    driver.observe(driver.servers).close()
    assert f"sparklag: {application}, method listener; {topic}" in capsys.readouterr().err


def test_sources_are_kept_apart_and_those_without_kafka_are_left_out(driver: Driver) -> None:
    other = driver.client.create(f"{driver.topic}-b", 1)
    driver.send(3, other)
    driver.observe()
    spark = driver.spark
    frames = [
        spark.readStream.format("rate").load().selectExpr("CAST(timestamp AS STRING) AS value"),
        read_kafka(spark, driver.servers, subscribe=other, **{
            "kafka.isolation.level": "read_committed"}),
        read_kafka(spark, driver.servers, subscribe=driver.topic),
    ]  # fmt: skip
    text = [frame.selectExpr("CAST(value AS STRING) AS value") for frame in frames]
    frame = text[0].union(text[1]).union(text[2])
    query = driver.start(frame=frame)
    received = driver.published.until(
        query.id, lambda received: all(s.processed for s in received[-1].sources), "both positions"
    )
    result = received[-1].sources
    assert [next(iter(source.processed or {})) for source in result] == [other, driver.topic]
    assert [source.isolation_level for source in result] == ["read_committed", "read_uncommitted"]
    assert [source.source for source in result] == [1, 2]


def test_a_query_that_reads_no_kafka_is_ignored_and_counted(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    rate = driver.spark.readStream.format("rate").load()
    query = driver.start(frame=rate)
    wait_for(lambda: handle.stats().ignored >= 2, "two events are ignored")
    assert driver.published.observations(query.id) == []
    assert handle.stats().failed == 0


def test_no_secret_leaves_the_driver(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    # Py4J's own debug log shows what this test sends to Spark.
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "sparklag")
    handle = driver.observe(driver.servers)
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
    options: dict[str, Any] = {
        "kafka.sasl.jaas.config": jaas + 'password="S3CRET";',
        "kafka.ssl.keystore.password": "S3CRET",
        "kafka.ssl.key.password": "S3CRET",
    }
    # One that runs, and one that fails on its options.
    running = driver.start("running", "running", **options)
    driver.published.until(running.id, driver.at_end(), "the end of the topic")
    wrong: dict[str, Any] = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.location": "/no/such/file",
    }
    failing = driver.start("failing", "failing", **options, **wrong)
    terminated = driver.published.await_cause(failing.id, "terminated")
    assert terminated.exception
    assert "S3CRET" not in driver.published.all_text()
    assert "S3CRET" not in caplog.text
    assert "S3CRET" not in repr(handle.stats())


@pytest.mark.parametrize("method", ["listener", pytest.param("poll", marks=pytest.mark.slow)])
def test_a_failed_query_reports_why(driver: Driver, method: Any) -> None:
    driver.observe(method=method, refresh_interval_s=0.2)
    query = driver.start(
        write=lambda batch, batch_id: break_batch(batch, batch_id) if batch_id else None
    )
    driver.published.await_cause(query.id, "progress")
    driver.send()
    ended = driver.published.await_cause(query.id, "terminated")
    assert "this batch breaks" in str(ended.exception)
    assert sum((only_source(ended).processed or {})[driver.topic].values()) == 10
    assert "S3CRET" not in driver.published.all_text()


def test_what_queries_read_and_how_is_detected_from_themselves(driver: Driver) -> None:
    topic = driver.topic
    both = [topic, driver.client.create(f"{topic}-b")]
    plain: dict[str, Any] = {"bootstrap_servers": driver.servers}
    whole = {WHOLE_NAMES: " TRUE"}  # then Spark reads only the first topic
    cases: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"subscribe": ", ".join(both)}, {"topics": both}),
        ({"subscribePattern": f"{topic}(-b)?$"}, {"topic_pattern": f"{topic}(-b)?$"}),
        ({"assign": json.dumps({topic: [1]})}, {"topics": [topic], "assigned": {topic: [1]}}),
        (
            {"SUBSCRIBE": topic, "Kafka.Isolation.Level": "read_committed"},
            {"topics": [topic], "isolation_level": "read_committed"},
        ),
        ({"format": "KAFKA", "Subscribe": f" {topic} ,"}, {"topics": [topic]}),
        (
            {"format": "org.apache.spark.sql.kafka010.KafkaSourceProvider", "subscribe": topic},
            {"topics": [topic]},
        ),
        ({"subscribePattern": f" {topic} ", **whole}, {"topic_pattern": rf"\A(?:{topic})\z"}),
    ]
    driver.observe()
    for number, (options, expected) in enumerate(cases):
        driver.spark.conf.set(WHOLE_NAMES, options.pop(WHOLE_NAMES, "false"))
        frame = read_kafka(driver.spark, driver.servers, **options)
        query = driver.start(f"query-{number}", f"orders-{number}", frame)
        source = only_source(driver.published.await_cause(query.id, "progress"))
        assert source.processed is not None
        assert set(source.processed[topic]) == ({1} if "assign" in options else {0, 1})
        assert options.get("subscribePattern") != f" {topic} " or set(source.processed) == {topic}
        wanted = {"isolation_level": "read_uncommitted", **plain, **expected}
        assert replace(source, processed=None, began=None) == SourcePosition(source=0, **wanted)
        query.stop()


def test_an_available_now_query_is_described_however_short_it_is(driver: Driver) -> None:
    handle = driver.observe()
    queries = [driver.start(trigger={"availableNow": True})]
    while queries[-1].awaitTermination(int(DEADLINE_S)) and len(queries) < 3:
        queries.append(driver.start(trigger={"availableNow": True}))
    # An end that comes after the next start is ignored.
    observations = driver.published.until(
        queries[0].id,
        lambda received: (
            causes(received).count("started") == 3 and received[-1].cause == "terminated"
        ),
        "three starts, and the last one's end",
    )
    assert all(only_source(o).topics == [driver.topic] for o in observations)
    assert handle.stats().ignored == 0
