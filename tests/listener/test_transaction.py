"""Results and offsets in one transaction, from inside foreachBatch on real Spark."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from sqlalchemy import Engine, create_engine, text

from sparklag_listener import (
    NotInBatch,
    UnsupportedSession,
    keep_offsets,
    prepare_store,
    starting_offsets,
    stored_offsets,
)
from sparklag_offsets.errors import NoKafkaOffsets
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka
from tests.waiting import DEADLINE_S, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class Results:
    """A database with one result for each batch: how many records it had."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self.engine: Engine = create_engine(self.url)
        self.refusals: list[str] = []
        prepare_store(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE results (batch_id INTEGER, count INTEGER)"))

    def write(self, batch: DataFrame, batch_id: int) -> None:
        with self.engine.begin() as connection:
            try:
                is_new = keep_offsets(connection, batch, batch_id)
            except Exception as error:
                self.refusals.append(f"{type(error).__name__}: {error}")
                raise
            if is_new:
                insert = text("INSERT INTO results VALUES (:batch_id, :count)")
                connection.execute(insert, {"batch_id": batch_id, "count": batch.count()})

    def refusal(self) -> str:
        assert "\n" not in self.refusals[-1]
        return self.refusals[-1]

    def written(self) -> list[tuple[int, int]]:
        with self.engine.connect() as connection:
            result = connection.execute(text("SELECT batch_id, count FROM results ORDER BY rowid"))
            return [(batch_id, count) for batch_id, count in result]

    def records(self) -> list[Any]:
        wanted = "SELECT * FROM sparklag_batches ORDER BY query_key, generation, batch_id"
        with self.engine.connect() as connection:
            return list(connection.execute(text(wanted)))


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    made = Results(tmp_path / "results.db")
    yield made
    made.engine.dispose()


def read_all(query: StreamingQuery) -> None:
    query.processAllAvailable()
    query.stop()


def fails(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as failure:
        query.processAllAvailable()
    return str(failure.value)


def uncommit(driver: Driver, batch_id: int) -> None:
    """Simulate a driver that died before Spark committed the batch."""
    for name in (str(batch_id), f".{batch_id}.crc"):
        (driver.checkpoints / "query" / "commits" / name).unlink()


def test_each_batch_is_recorded_with_its_results(driver: Driver, results: Results) -> None:
    query = driver.start(write=results.write)
    query.processAllAvailable()
    driver.send(6)
    read_all(query)
    assert results.written() == [(0, 10), (1, 6)]
    first, second = results.records()
    assert (first.batch_id, second.batch_id) == (0, 1)
    assert (first.run_id, second.run_id) == (query.runId, query.runId)
    ((source, topic, topic_id, brokers, ranges, assigned),) = json.loads(second.ranges)
    assert (source, topic, brokers, assigned) == (0, driver.topic, driver.servers, False)
    assert topic_id is not None
    assert {number: until for number, _, until in ranges} == driver.client.end_offsets(topic)
    assert sum(until - begins for _, begins, until in ranges) == 6
    # The first begins where the source did.
    assert [begins for _, begins, _ in json.loads(first.ranges)[0][4]] == [0, 0]


def test_an_uncommitted_batch_is_not_written_again(driver: Driver, results: Results) -> None:
    read_all(driver.start(write=results.write))
    uncommit(driver, 0)
    driver.send(6)
    read_all(driver.start(write=results.write))
    assert results.written() == [(0, 10), (1, 6)]


def test_a_new_checkpoint_goes_on_where_the_results_end(driver: Driver, results: Results) -> None:
    read_all(driver.start(write=results.write))
    driver.send(6)
    where = starting_offsets("orders", store=results.url)
    read_all(driver.start("another", write=results.write, startingOffsets=where))
    assert results.written() == [(0, 10), (0, 6)]


def test_one_of_two_drivers_and_checkpoints_is_refused(driver: Driver, results: Results) -> None:
    read_all(driver.start(write=results.write))
    shutil.copytree(driver.checkpoints / "query", driver.checkpoints / "copy")
    driver.send(6)
    read_all(driver.start(write=results.write))
    driver.send(3)
    assert "BatchConflict" in fails(driver.start("copy", write=results.write))
    assert "batch 1 is recorded already, by run" in results.refusal()
    assert results.written() == [(0, 10), (1, 6)]


def test_another_batch_id_than_the_running_one_is_refused(driver: Driver, results: Results) -> None:
    query = driver.start(write=lambda batch, batch_id: results.write(batch, batch_id + 1))
    fails(query)
    assert results.refusals == ["NotInBatch: keep_offsets() is called with batch 1 within batch 0"]


def test_outside_a_batch_it_reports_where_it_belongs(results: Results, spark: SparkSession) -> None:
    with results.engine.begin() as connection:
        with pytest.raises(NotInBatch, match="within foreachBatch's function"):
            keep_offsets(connection, spark.range(1), 0)
        with pytest.raises(UnsupportedSession, match=r"foreachBatch is called with, got .*\.int"):
            keep_offsets(connection, 1, 0)  # type: ignore[arg-type]  # what the test is about


@pytest.mark.slow
def test_a_thread_of_ones_own_does_not_know_the_batch(driver: Driver, results: Results) -> None:
    def write_elsewhere(batch: DataFrame, batch_id: int) -> None:
        def call() -> None:
            with pytest.raises(NotInBatch):
                results.write(batch, batch_id)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    read_all(driver.start(write=write_elsewhere))
    assert results.refusals[0].startswith("NotInBatch: ")


@pytest.mark.slow
def test_a_query_without_kafka_has_no_offsets_to_keep(
    driver: Driver, results: Results, spark: SparkSession
) -> None:
    frame = spark.readStream.format("rate").load()
    query = driver.start(frame=frame, write=results.write)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(int(DEADLINE_S))
    assert results.refusals[0].startswith(f"{NoKafkaOffsets.__name__}: query orders: batch ")


@pytest.mark.slow
def test_of_two_sources_those_of_kafka_are_kept(driver: Driver, results: Results) -> None:
    other = driver.client.create(f"{driver.topic}-other", 1)
    driver.send(4, other)
    frame = read_kafka(driver.spark, driver.servers, subscribe=driver.topic).select("value")
    frame = frame.union(
        driver.spark.readStream.format("rate")
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BINARY)")
    )
    frame = frame.union(read_kafka(driver.spark, driver.servers, subscribe=other).select("value"))
    query = driver.start(frame=frame, write=results.write)
    wait_for(lambda: bool(results.written()) or not query.isActive, "a batch is written")
    query.stop()
    assert query.exception() is None
    kept = json.loads(results.records()[0].ranges)
    assert [(source, topic) for source, topic, *_ in kept] == [(0, driver.topic), (2, other)]


@pytest.mark.slow
def test_a_kafka_that_does_not_answer_does_not_hold_a_batch_up(
    driver: Driver, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = 0

    async def hang(*arguments: object) -> dict[str, str]:
        nonlocal requested
        requested += 1
        await asyncio.sleep(3600)
        return {}

    # A broker that accepts the connection and never answers does so.
    monkeypatch.setattr("sparklag_offsets.topic_ids.read_topic_ids", hang)
    monkeypatch.setenv("SPARKLAG_METADATA_INTERVAL_S", "600")
    stored_offsets._process_settings.cache_clear()
    query = driver.start(write=results.write)
    query.processAllAvailable()
    driver.send(6)
    read_all(query)
    stored_offsets._process_settings.cache_clear()
    assert [count for _, count in results.written()] == [10, 6]
    assert requested == 1, "it was requested a moment ago"
    assert all(json.loads(record.ranges)[0][2] is None for record in results.records())
