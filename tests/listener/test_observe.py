"""`observe` on real Spark: what its queries do arrives on the topic, to the record."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sparklag_listener import AlreadyObserved, observe
from sparklag_listener.classic.py4j_text import ProgressReader
from sparklag_schemas import Observation, SourcePosition
from tests import samples
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka, start_query
from tests.listener.java_events import progress_event
from tests.logged import logged
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def only_source(observation: Observation) -> SourcePosition:
    (source,) = observation.sources
    return source


def at_end(driver: Driver, topic: str | None = None) -> Callable[[Sequence[Observation]], bool]:
    """Whether the newest observation stands at the end of the topic, as another client sees it."""
    end = driver.client.end_offsets(topic or driver.topic)

    def holds(observations: Sequence[Observation]) -> bool:
        if not observations:
            return False
        processed = only_source(observations[-1]).processed or {}
        return processed.get(topic or driver.topic) == end

    return holds


def test_a_querys_whole_life_arrives_keyed_and_to_the_record(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    query = driver.start()
    driver.published.until(query.id, at_end(driver), "the end of the topic")
    driver.send(7)
    driver.published.until(query.id, at_end(driver), "the new end of the topic")
    driver.published.await_cause(query.id, "idle")
    query.stop()
    driver.published.await_cause(query.id, "terminated")

    observations = driver.published.observations(query.id)
    causes = [observation.cause for observation in observations]
    assert causes[0] == "started"
    assert causes[-1] == "terminated"
    # A busy machine is slow enough for a heartbeat between two of them.
    assert set(causes) - {"refresh"} == {"started", "progress", "idle", "terminated"}
    checkpoint = driver.checkpoints / "query"
    for observation in observations:
        assert observation.query_id == query.id
        assert observation.run_id == query.runId
        assert observation.query == "orders"
        assert observation.exception is None
        assert observation.checkpoint_location == f"file:{checkpoint}"
        if observation.batch_id is not None:
            (saved,) = samples.committed_offsets(checkpoint, observation.batch_id)
            assert only_source(observation).processed == {
                driver.topic: {int(number): end for number, end in saved[driver.topic].items()}
            }
    assert only_source(observations[-1]).processed == only_source(observations[-2]).processed
    for message in driver.published.messages(query.id):
        headers = dict(message.headers() or [])
        said = json.loads(message.value() or b"")
        assert headers["ce_id"] == said["observation_id"].encode()
        assert headers["ce_type"] == b"sparklag.observation.v1"
        assert headers["ce_subject"] == str(query.id).encode()
    wait_for(lambda: handle.stats().queued == 0, "nothing waits")
    stats = handle.stats()
    assert stats.published == len(observations)
    assert stats.observed == sum(cause != "refresh" for cause in causes)
    assert (stats.dropped, stats.failed, stats.ignored, stats.last_error) == (0, 0, 0, None)


def test_a_query_that_fails_says_why(driver: Driver, breaks: Callable[..., None]) -> None:
    driver.observe(driver.servers)
    writer = read_kafka(driver.spark, driver.servers, subscribe=driver.topic).writeStream
    query = driver.keep(
        writer.foreachBatch(breaks)
        .option("checkpointLocation", str(driver.checkpoints / "query"))
        .start()
    )
    observation = driver.published.await_cause(query.id, "terminated")
    assert "this batch breaks" in str(observation.exception)
    assert only_source(observation).processed is None


def test_a_query_that_runs_already_is_picked_up_with_its_position(driver: Driver) -> None:
    query = driver.start()
    query.processAllAvailable()
    handle = driver.observe(driver.servers)
    observations = driver.published.until(
        query.id,
        lambda seen: at_end(driver)(seen) and seen[-1].checkpoint_location is not None,
        "its position, and its checkpoint",
    )
    # Its last progress may be on Spark's bus still, and come before Spark is polled.
    assert observations[0].cause in ("started", "progress")
    driver.send()
    driver.published.until(query.id, at_end(driver), "its next position")
    assert handle.stats().failed == 0


def test_bootstrap_servers_are_found_from_the_query(driver: Driver) -> None:
    driver.observe()
    query = driver.start()
    driver.published.until(query.id, at_end(driver), "the end of the topic")


def test_twice_on_one_session_is_one_handle_and_each_event_is_said_once(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    assert driver.observe(driver.servers) is handle
    # PySpark makes another object for the same session of the JVM.
    active = SparkSession.getActiveSession()
    assert active is not None
    same: dict[str, Any] = {"offsets_topic": driver.published.name, "topic_partitions": 1}
    assert observe(active, driver.servers, **same) is handle
    query = driver.start()
    driver.published.until(query.id, at_end(driver), "the end of the topic")
    causes = [o.cause for o in driver.published.observations(query.id)]
    assert causes.count("started") == 1
    assert driver.spark._jsparkSession.streams().listListeners().__len__() == 1
    handle.close()
    assert driver.spark._jsparkSession.streams().listListeners().__len__() == 0
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


def test_one_line_says_what_is_observed_and_where_it_goes(
    driver: Driver, caplog: pytest.LogCaptureFixture, tmp_path: Path
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


def test_a_session_beside_it_has_a_handle_of_its_own(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    with observe(
        driver.spark.newSession(), driver.servers, offsets_topic=driver.published.name
    ) as other:
        assert other is not handle
    assert other.closed
    assert not handle.closed


@pytest.mark.parametrize(
    ("options", "topics", "pattern", "isolation"),
    [
        ({"subscribe": "{topic}, {topic}-b"}, ["{topic}", "{topic}-b"], None, "read_uncommitted"),
        ({"subscribePattern": "{topic}(-b)?$"}, None, "{topic}(-b)?$", "read_uncommitted"),
        ({"assign": '{{"{topic}":[0,1]}}'}, ["{topic}"], None, "read_uncommitted"),
        ({"SUBSCRIBE": "{topic}", "Kafka.Isolation.Level": "read_committed"}, ["{topic}"], None,
         "read_committed"),
    ],
)  # fmt: skip
def test_what_a_query_reads_and_how_is_found_from_itself(
    driver: Driver,
    options: dict[str, str],
    topics: list[str] | None,
    pattern: str | None,
    isolation: str,
) -> None:
    driver.client.create(f"{driver.topic}-b")
    driver.observe()
    named = {name: value.format(topic=driver.topic) for name, value in options.items()}
    frame = read_kafka(driver.spark, driver.servers, **named)
    query = driver.keep(start_query(frame, driver.checkpoints / "query"))
    query.processAllAvailable()
    source = only_source(driver.published.await_cause(query.id, "progress"))
    assert source.topics == (topics and [topic.format(topic=driver.topic) for topic in topics])
    assert source.topic_pattern == (pattern and pattern.format(topic=driver.topic))
    assert source.isolation_level == isolation
    assert source.bootstrap_servers == driver.servers


def test_sources_are_told_apart_and_those_that_are_not_kafka_are_left_out(driver: Driver) -> None:
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
    query = driver.keep(start_query(frame, driver.checkpoints / "query"))

    def complete(observations: Sequence[Observation]) -> bool:
        return bool(observations) and all(s.processed for s in observations[-1].sources)

    found = driver.published.until(query.id, complete, "both positions")[-1].sources
    assert [next(iter(source.processed or {})) for source in found] == [other, driver.topic]
    assert [source.isolation_level for source in found] == ["read_committed", "read_uncommitted"]
    assert [source.source for source in found] == [1, 2]


def test_a_query_that_reads_no_kafka_is_ignored_and_counted(driver: Driver) -> None:
    handle = driver.observe(driver.servers)
    rate = driver.spark.readStream.format("rate").load()
    query = driver.keep(start_query(rate, driver.checkpoints / "rate"))
    wait_for(lambda: handle.stats().ignored >= 2, "two events are ignored")
    assert driver.published.observations(query.id) == []
    assert handle.stats().failed == 0


def test_no_secret_of_a_query_leaves_the_driver(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    # Py4J's own debug log shows what this test tells Spark.
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "sparklag")
    handle = driver.observe(driver.servers)
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
    options = {
        "subscribe": driver.topic,
        "kafka.sasl.jaas.config": jaas + 'password="S3CRET";',
        "kafka.ssl.keystore.password": "S3CRET",
        "kafka.ssl.key.password": "S3CRET",
    }
    # One that runs, and one that fails on its options.
    running = driver.start("running", "running", **options)
    driver.published.until(running.id, at_end(driver), "the end of the topic")
    wrong = {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.location": "/no/such/file"}
    failing = driver.start("failing", "failing", **{**options, **wrong})
    terminated = driver.published.await_cause(failing.id, "terminated")
    assert terminated.exception
    assert "S3CRET" not in driver.published.all_text()
    assert "S3CRET" not in caplog.text
    assert "S3CRET" not in repr(handle.stats())


def test_started_again_at_once_the_earlier_end_is_not_taken_for_its_own(driver: Driver) -> None:
    driver.observe(driver.servers)
    first = driver.start()
    first.processAllAvailable()
    first.stop()
    second = driver.start()
    assert second.id == first.id
    driver.send()
    second.processAllAvailable()
    observations = driver.published.until(
        second.id,
        lambda seen: at_end(driver)(seen) and seen[-1].cause in ("progress", "idle"),
        "the end of the topic",
    )
    began = next(n for n, o in enumerate(observations) if o.run_id == second.runId)
    for observation in observations[began:]:
        assert observation.run_id == second.runId
        assert observation.cause != "terminated"
        assert only_source(observation).topics == [driver.topic]


def test_an_available_now_query_is_described_however_short_it_is(driver: Driver) -> None:
    handle = driver.observe()
    frame = read_kafka(driver.spark, driver.servers, subscribe=driver.topic)
    ids = set()
    for _ in range(5):
        query = start_query(frame, driver.checkpoints / "query", availableNow=True)
        ids.add(query.id)
        assert query.awaitTermination(120)
    (query_id,) = ids
    # An end that comes after the next start says nothing any more.
    observations = driver.published.until(
        query_id,
        lambda seen: (
            [o.cause for o in seen].count("started") == 5 and seen[-1].cause == "terminated"
        ),
        "five starts, and the last one's end",
    )
    assert all(only_source(o).topics == [driver.topic] for o in observations)
    assert handle.stats().ignored == 0


def test_a_continuous_query_says_that_it_runs_and_what_it_reads(driver: Driver) -> None:
    driver.observe()
    frame = read_kafka(driver.spark, driver.servers, subscribe=driver.topic)
    query = driver.keep(start_query(frame, driver.checkpoints / "query", continuous="1 second"))
    started = driver.published.await_cause(query.id, "started")
    assert only_source(started).topics == [driver.topic]
    assert only_source(started).processed is None
    query.stop()
    driver.published.await_cause(query.id, "terminated")


def test_an_event_above_8_kib_arrives_whole(driver: Driver) -> None:
    wide = driver.client.create(f"{driver.topic}-wide", 500)
    driver.observe(driver.servers)
    query = driver.start(subscribe=wide, maxOffsetsPerTrigger="1000")
    driver.published.await_cause(query.id, "progress")
    # The second event of a size is the first that is taken in slices.
    driver.client.produce(wide, [b"more"], partition=499)
    query.processAllAvailable()
    assert len(query._jsq.lastProgress().json()) > 8 * 1024
    observations = driver.published.until(query.id, at_end(driver, wide), "all partitions")
    processed = only_source(observations[-1]).processed or {}
    assert processed[wide] == {number: int(number == 499) for number in range(500)}


def test_text_taken_in_slices_is_sparks_own(spark: SparkSession) -> None:
    short, long = (progress_event(spark, f"progress_cost_{n}p") for n in (1, 2000))
    reader = ProgressReader(spark._jvm, "progress", "json")
    # How one is taken is decided by the one before: each follows each.
    for event in (short, long, long, short, short, long):
        assert reader.read(event) == event.progress().json()
    of_progress = ProgressReader(spark._jvm, "json")
    for event in (short, long, long, short):
        assert of_progress.read(event.progress()) == event.progress().json()


def test_where_text_cannot_be_sliced_it_is_taken_whole(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(reader: ProgressReader, event: Any) -> None:
        raise Py4JError("no access")

    monkeypatch.setattr(ProgressReader, "_compose", refuse)
    long = progress_event(spark, "progress_cost_2000p")
    reader = ProgressReader(spark._jvm, "progress", "json")
    for _ in range(3):
        assert reader.read(long) == long.progress().json()
