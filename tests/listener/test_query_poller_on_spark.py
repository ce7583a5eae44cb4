"""A real Spark that says too little: what it leaves out is asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import window

from sparklag_listener import observe
from sparklag_listener.classic.queries import ClassicQueries
from sparklag_schemas import Observation
from tests import samples
from tests.listener.conftest import Driver
from tests.listener.driver_process import DriverProcess
from tests.listener.driver_process import driver as driver_process
from tests.listener.drivers import read_kafka, start_query
from tests.listener.offsets_topic import OffsetsTopic
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def causes(observations: Sequence[Observation]) -> list[str]:
    return [observation.cause for observation in observations]


def said_of_refreshes(observations: Sequence[Observation]) -> list[str | None]:
    """What the query does."""
    return [each.activity for each in observations if each.cause == "refresh"]


def in_order(observations: Sequence[Observation]) -> None:
    """Neither position nor time of observation goes back, and nothing comes after an end."""
    batches = [-1 if each.batch_id is None else each.batch_id for each in observations]
    assert batches == sorted(batches)
    times = [observation.observed_at for observation in observations]
    assert times == sorted(times)
    assert "terminated" not in causes(observations)[:-1]


def test_a_batch_that_takes_long_says_that_its_query_runs(driver: Driver) -> None:
    handle = driver.observe(driver.servers, heartbeat_s=0.5)
    hold, held, go_on = threading.Event(), threading.Event(), threading.Event()

    def wait(batch: Any, batch_id: int) -> None:
        if hold.is_set():
            held.set()
            go_on.wait(200)

    writer = read_kafka(driver.spark, driver.servers, subscribe=driver.topic).writeStream
    query = driver.keep(
        writer.foreachBatch(wait)
        .queryName("slow")
        .option("checkpointLocation", str(driver.checkpoints / "query"))
        .start()
    )
    query.processAllAvailable()
    position = {driver.topic: driver.client.end_offsets(driver.topic)}
    hold.set()
    try:
        driver.send()
        assert held.wait(200)
        before = len(driver.published.observations(query.id))
        seen = driver.published.until(
            query.id,
            lambda seen: causes(seen[before:]).count("refresh") >= 4,
            "four refreshes in one batch",
        )
    finally:
        go_on.set()
    for observation in seen:
        if observation.cause == "refresh":
            assert (observation.query, observation.run_id) == ("slow", query.runId)
            assert observation.batch is None
    assert seen[-1].activity == "running"
    assert None not in said_of_refreshes(seen[before:])
    assert seen[-1].sources[0].processed == position
    query.processAllAvailable()
    query.stop()
    driver.published.await_cause(query.id, "terminated")
    handle.close()
    in_order(driver.published.observations(query.id))
    stats = handle.stats()
    assert (stats.failed, stats.dropped) == (0, 0)


@pytest.mark.parametrize("method", ["listener", "poll"])
def test_a_query_that_has_read_all_waits(driver: Driver, method: Any) -> None:
    driver.observe(driver.servers, method=method, heartbeat_s=0.3, refresh_interval_s=0.2)
    query = driver.start()
    query.processAllAvailable()
    seen = driver.published.until(
        query.id,
        lambda seen: seen[-1].batch_id == 0 and said_of_refreshes(seen)[-1:] == ["waiting"],
        "it waits",
    )
    assert {each.activity for each in seen if each.cause == "idle"} <= {None}


def test_a_query_that_waits_for_its_trigger_waits_whatever_there_is_to_read(
    driver: Driver,
) -> None:
    driver.observe(driver.servers, heartbeat_s=0.3)
    frame = read_kafka(driver.spark, driver.servers, subscribe=driver.topic)
    # Spark begins batches at whole multiples: with "1 hour" the next one would come on the hour.
    query = driver.keep(
        start_query(frame, driver.checkpoints / "query", processingTime="1000 days")
    )
    driver.published.await_cause(query.id, "progress")
    driver.send()
    before = len(driver.published.observations(query.id))
    seen = driver.published.until(
        query.id, lambda seen: said_of_refreshes(seen[before:])[-2:] == ["waiting"] * 2, "it waits"
    )
    assert sum((seen[-1].sources[0].processed or {})[driver.topic].values()) == 10


def test_a_query_that_is_held_back_waits(driver: Driver) -> None:
    driver.observe(driver.servers, heartbeat_s=0.3)
    frame = read_kafka(
        *(driver.spark, driver.servers),
        subscribe=driver.topic,
        minOffsetsPerTrigger="100",
        maxTriggerDelay="1h",
    )
    query = driver.keep(start_query(frame, driver.checkpoints / "query"))
    # It takes the first batch as it is, and holds what comes then.
    driver.published.await_cause(query.id, "progress")
    driver.send(20)
    before = len(driver.published.observations(query.id))
    seen = driver.published.until(
        query.id, lambda seen: said_of_refreshes(seen[before:])[-2:] == ["waiting"] * 2, "it waits"
    )
    assert sum((seen[-1].sources[0].processed or {})[driver.topic].values()) == 10


def test_a_batch_by_sparks_own_account_says_what_limits_it_and_its_state(driver: Driver) -> None:
    driver.observe(driver.servers)
    frame = (
        read_kafka(
            *(driver.spark, driver.servers), subscribe=driver.topic, maxOffsetsPerTrigger="4"
        )
        .withWatermark("timestamp", "1 second")
        .groupBy(window("timestamp", "10 seconds"))
        .count()
    )
    writer = frame.writeStream.format("noop").outputMode("update")
    query = driver.keep(
        writer.option("checkpointLocation", str(driver.checkpoints / "query")).start()
    )
    end = {driver.topic: driver.client.end_offsets(driver.topic)}
    seen = driver.published.until(
        query.id, lambda seen: seen and seen[-1].sources[0].processed == end, "the end"
    )
    batches = [each.batch for each in seen if each.batch is not None and each.batch.rows]
    limited = [one.rate_limited for one in batches]
    assert limited == [True] * (len(batches) - 1) + [False]
    assert len(batches) > 1
    for one in batches:
        assert one.state_rows is not None
        assert one.state_rows > 0
        assert one.state_memory_bytes is not None
        assert one.max_event_time_at is not None
        assert abs(one.max_event_time_at - one.started_at) < 3_600_000
    watermarks = [one.watermark_at for one in batches]
    assert watermarks[0] is None
    assert watermarks[-1] == max(one.max_event_time_at or 0 for one in batches[:-1]) - 1_000


def test_a_session_is_asked_for_its_own_queries_only(driver: Driver) -> None:
    elsewhere = OffsetsTopic(driver.client, f"{driver.topic}-elsewhere")
    with observe(
        driver.spark.newSession(),
        driver.servers,
        offsets_topic=elsewhere.name,
        topic_partitions=1,
        heartbeat_s=0.2,
    ) as other:
        driver.observe(driver.servers, heartbeat_s=0.2)
        query = driver.start()
        driver.published.await_cause(query.id, "refresh")
        assert other.stats().published == 0
        assert other.stats().queued == 0


def test_a_query_started_again_under_another_name_has_that_name(driver: Driver) -> None:
    driver.observe(driver.servers)
    first = driver.start(name="orders")
    first.processAllAvailable()
    first.stop()
    second = driver.start(name="orders-2")
    assert second.id == first.id
    driver.send()
    second.processAllAvailable()
    second.stop()
    seen = driver.published.until(
        first.id, lambda seen: causes(seen).count("terminated") == 2, "two ends"
    )
    names = {observation.run_id: observation.query for observation in seen}
    assert names == {first.runId: "orders", second.runId: "orders-2"}


def test_a_query_started_again_without_new_data_has_its_position(driver: Driver) -> None:
    first = driver.start()
    first.processAllAvailable()
    first.stop()
    handle = driver.observe(driver.servers, heartbeat_s=2.0)
    second = driver.start()
    wanted = {driver.topic: driver.client.end_offsets(driver.topic)}
    seen = driver.published.until(
        second.id, lambda seen: seen and seen[-1].sources[0].processed == wanted, "its position"
    )
    (saved,) = samples.committed_offsets(driver.checkpoints / "query", seen[-1].batch_id)
    committed = {int(number): end for number, end in saved[driver.topic].items()}
    said = [(one.cause, one.batch_id, one.sources[0].processed) for one in seen]
    assert {driver.topic: committed} == wanted, said
    assert "progress" not in causes(seen)
    assert handle.stats().recovered == 0, "none of its events is missing"


def test_assigned_partitions_are_told(driver: Driver) -> None:
    driver.observe(driver.servers)
    query = driver.start(assign=json.dumps({driver.topic: [1]}))
    (source,) = driver.published.await_cause(query.id, "progress").sources
    assert source.assigned == {driver.topic: [1]}
    assert list((source.processed or {})[driver.topic]) == [1]


def test_what_a_session_answers_is_what_spark_says_of_its_queries(driver: Driver) -> None:
    queries = ClassicQueries(driver.spark)
    assert queries.list_active().queries == ()
    query = driver.start()
    query.processAllAvailable()
    wait_for(lambda: "addBatch" not in query.recentProgress[-1]["durationMs"], "it is idle")
    ran = [each for each in query.recentProgress if "addBatch" in each["durationMs"]][-1]
    (active,) = queries.list_active().queries
    assert (active.query_id, active.run_id, active.name) == (query.id, query.runId, "orders")
    assert active.batch_id == ran["batchId"]
    progress = queries.last_progress(active.run_id, None)
    assert active.activity is None, "it was not asked"
    assert queries.list_active(with_activity={query.runId}).queries[0].activity == "waiting"
    assert progress is not None
    assert json.loads(progress.text)["batchId"] == ran["batchId"]
    assert json.loads(progress.text)["timestamp"] == ran["timestamp"]
    assert queries.last_progress(active.run_id, active.batch_id) is None
    assert queries.last_progress("no such run", None) is None
    assert queries.is_active(active.run_id)
    query.stop()
    snapshot = queries.list_active(retain={active.run_id})
    assert (snapshot.queries, snapshot.is_session_stopped) == ((), False)
    assert not queries.is_active(active.run_id)
    assert queries.last_progress(active.run_id, None) is not None, "it is kept"
    assert queries.termination(active.query_id, active.run_id).exception is None
    assert queries.list_active().queries == ()
    assert queries.last_progress(active.run_id, None) is None, "it is forgotten"


def test_events_the_listener_bus_lost_are_found(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver_process(second_client, "loses_events", tmp_path, module="losing") as process:
        assert int(process.value("recovered")) >= 3, process.output()
        assert process.value("failed") == "0", process.output()
        assert process.ends() == 0, process.output()
        at_end = {process.topic: second_client.end_offsets(process.topic)}
        names = ("going on", "stopped", "failing")
        seen = {name: process.published.observations(process.value(name)) for name in names}
        for name in names:
            in_order(seen[name])
            assert seen[name][0].cause == "started"
            assert {each.query for each in seen[name]} == {name}
        assert seen["going on"][-1].sources[0].processed == at_end
        assert seen["going on"][-1].cause != "terminated"
        assert seen["stopped"][-1].cause == "terminated"
        assert seen["stopped"][-1].sources[0].processed == at_end
        assert seen["stopped"][-1].exception is None
        assert seen["failing"][-1].cause == "terminated"
        assert "this batch breaks" in str(seen["failing"][-1].exception)
        assert "S3CRET" not in process.published.all_text()
        assert sum(at_end[process.topic].values()) == 26
        processed = seen["failing"][-1].sources[0].processed
        assert processed is not None
        assert sum(processed[process.topic].values()) == 20, "of its first batch"
        ours = [line for line in process.lines if "sparklag: " in line]
        assert len(ours) == 1, process.output()
        assert "listener bus lost an event" in ours[0]


def test_a_driver_that_is_killed_says_nothing_more_and_its_last_word_is_right(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver_process(second_client, "loses_its_life", tmp_path, module="losing") as process:
        process.says("read all")
        query_id = query_of(process)
        process.published.until(
            query_id, lambda seen: set(causes(seen)) & {"idle", "refresh"}, "it goes on"
        )
        process.kill()
        said = process.published.observations(query_id)
        assert process.last() == said[-1]
        assert said[-1].cause in ("progress", "idle", "refresh")
        in_order(said)


def test_a_driver_whose_jvm_is_killed_goes_on_and_claims_nothing(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver_process(second_client, "loses_its_jvm", tmp_path, module="losing") as process:
        assert process.value("closed") == "True", process.output()
        assert process.value("failed") == "0 None", process.output()
        process.ends()
        process.made_no_noise()
        assert process.last().cause in ("progress", "idle", "refresh")


def test_a_driver_that_stops_its_session_says_that_its_queries_ended_and_begins_anew(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver_process(second_client, "loses_its_session", tmp_path, module="losing") as process:
        assert process.value("failed") == "0", process.output()
        assert process.ends() == 0, process.output()
        first = process.published.observations(process.value("first"))
        second = process.published.observations(process.value("second"))
        in_order(first)
        assert first[-1].cause == "terminated"
        assert causes(second)[0] == "started"
        assert "terminated" not in causes(second)[:-1]


def query_of(process: DriverProcess) -> str:
    """The query whose checkpoint it is."""
    return str(json.loads((process.checkpoint / "metadata").read_text())["id"])
