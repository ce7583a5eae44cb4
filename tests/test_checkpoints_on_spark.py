"""Checkpoints that a real Spark writes, read while it writes them, against what was produced."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    normal_location,
    read_checkpoint,
)
from sparklag_schemas import Offsets
from tests.hdfs_cluster import HdfsCluster
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka, start_query
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_SPARK_S = 240.0
"""A Spark query on a busy machine."""


class Follower:
    def __init__(self, reader: CheckpointReader) -> None:
        self._reader = reader
        self.output: list[CheckpointPosition] = []
        self.failed: list[Exception] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    @contextmanager
    def following(self, folder: Path) -> Iterator[Follower]:
        wait_for((folder / "metadata").exists, "the query has a checkpoint", _SPARK_S)
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
        assert not self.failed

    def until(self, condition: Callable[[CheckpointPosition], bool], what: str) -> None:
        wait_for(lambda: bool(self.output) and condition(self.output[-1]), what, _SPARK_S)

    def _follow(self) -> None:
        while not self._stop.wait(0.02):
            try:
                position = self._reader.poll()
            except Exception as error:
                self.failed.append(error)
                return
            if position is not None:
                self.output.append(position)


@pytest.fixture
def driver(
    spark: SparkSession, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> Iterator[Driver]:
    # Continuous processing holds a core for each partition, and the session has one.
    made = Driver(spark, second_client, second_client.create(topic_name, 1), tmp_path)
    yield made
    made.close()


@pytest.fixture
def folder(driver: Driver) -> Path:
    return driver.checkpoints / "check point%20"


@pytest.fixture
def follower(folder: Path) -> Follower:
    return Follower(CheckpointStore({}, 10.0).reader(str(folder)))


def processed(position: CheckpointPosition) -> Offsets | None:
    (source,) = position.sources
    return source.processed


def only_goes_on(output: list[CheckpointPosition]) -> bool:
    assert len({position.query_id for position in output}) == 1
    for before, after in pairwise(output):
        assert (after.batch_id or 0) >= (before.batch_id or 0)
        for topic, partitions in ((processed(before) if before.sources else None) or {}).items():
            for number, offset in partitions.items():
                later = processed(after)
                assert later is not None
                assert later[topic][number] >= offset
    return True


def test_what_spark_calls_the_location_is_where_it_is(driver: Driver, folder: Path) -> None:
    driver.send(1)
    query = driver.start(folder.name)
    query.processAllAvailable()
    execution = driver.spark._jsparkSession.streams().get(query.id).streamingQuery()
    message = execution.resolvedCheckpointRoot()
    assert normal_location(message) == str(folder)
    assert processed(read_checkpoint(CheckpointStore({}, 10.0), message)) == driver.end()


@pytest.mark.slow
def test_asynchronous_progress_has_holes_and_is_followed_all_the_same(
    driver: Driver, folder: Path, follower: Follower
) -> None:
    driver.send(5)
    out = driver.client.create(f"{driver.topic}-out", 1)
    query = (
        read_kafka(driver.spark, driver.servers, subscribe=driver.topic)
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", driver.servers)
        .option("topic", out)
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "1500")
        .option("checkpointLocation", str(folder))
        .start()
    )

    def numbers() -> list[int]:
        names = (file.name for file in (folder / "commits").iterdir())
        return sorted(int(name) for name in names if name.isdigit())

    def has_holes() -> bool:
        driver.send(1)
        written = numbers()
        return len(written) > 3 and written[-1] - written[-2] > 1

    def all_read() -> bool:
        # What is not in the log is written with a later batch, which needs data.
        written, sent = follower.output[-1], driver.end()
        if processed(written) == sent:
            return True
        if time.monotonic() > quiet_s[0]:
            driver.send(1)
            quiet_s[0] = time.monotonic() + 4
        return False

    try:
        with follower.following(folder):
            follower.until(lambda p: p.batch_id == 0, "the first batch is committed")
            wait_for(has_holes, "batches are left out of the log", _SPARK_S)
            quiet_s = [time.monotonic() + 4]
            wait_for(all_read, "all is read", _SPARK_S)
            known = follower.output[-1]
    finally:
        query.stop()
    assert only_goes_on(follower.output)
    # Another client counts what came out: never less than the checkpoint has as processed.
    written = sum(driver.client.end_offsets(out).values())
    message = processed(known)
    assert message is not None
    assert sum(message[driver.topic].values()) <= written
    assert known.batch_id is not None
    assert len(numbers()) <= known.batch_id


@pytest.mark.slow
def test_a_checkpoint_in_hdfs_is_followed(driver: Driver, hdfs: HdfsCluster) -> None:
    location = f"hdfs://{hdfs.name_node}/spark/{uuid.uuid4().hex}"
    reader = CheckpointStore(hdfs.storage(), 60.0).reader(location)
    query = start_query(
        read_kafka(driver.spark, driver.servers, subscribe=driver.topic), location, None
    )
    try:
        for count in (5, 4):
            driver.send(count)
            query.processAllAvailable()
            position = reader.poll()
            assert position is not None
            assert (position.query_id, processed(position)) == (query.id, driver.end())
    finally:
        query.stop()
