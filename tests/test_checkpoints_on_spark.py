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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    normal_location,
    read_checkpoint,
)
from sparklag_schemas import Offsets
from tests.hdfs_cluster import HdfsCluster
from tests.listener.drivers import read_kafka
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_SPARK_S = 240.0
"""A Spark query on a busy machine."""


class Follower:
    """Looks at a checkpoint all the time; keeps every position it was told."""

    def __init__(self, reader: CheckpointReader) -> None:
        self._reader = reader
        self.told: list[CheckpointPosition] = []
        self.failed: list[Exception] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    @contextmanager
    def following(self, folder: Path) -> Iterator[Follower]:
        """From when there is something to follow."""
        wait_for((folder / "metadata").exists, "the query has a checkpoint", _SPARK_S)
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
        assert not self.failed

    def until(self, condition: Callable[[CheckpointPosition], bool], what: str) -> None:
        wait_for(lambda: bool(self.told) and condition(self.told[-1]), what, _SPARK_S)

    def _follow(self) -> None:
        while not self._stop.wait(0.02):
            try:
                position = self._reader.poll()
            except Exception as error:
                self.failed.append(error)
                return
            if position is not None:
                self.told.append(position)


class Scene:
    """A topic, and a folder for one checkpoint."""

    def __init__(self, spark: SparkSession, client: SecondClient, topic: str, folder: Path) -> None:
        self.spark = spark
        self.client = client
        # Continuous processing holds a core for each, and the session has one.
        self.topic = client.create(topic, 1)
        # Spark does not escape it, and neither do we.
        self.folder = folder / "check point%20"

    def send(self, count: int) -> None:
        self.client.produce(self.topic, [b"x"] * count)

    def frame(self, **options: str) -> DataFrame:
        return read_kafka(
            self.spark, self.client.bootstrap_servers, subscribe=self.topic, **options
        )

    @contextmanager
    def running(self, writer: DataStreamWriter) -> Iterator[StreamingQuery]:
        query = writer.option("checkpointLocation", str(self.folder)).start()
        try:
            yield query
        finally:
            query.stop()

    def follower(self) -> Follower:
        return Follower(CheckpointStore({}, 10.0).reader(str(self.folder)))

    def reached(self) -> Offsets:
        """The end of the topic by another client: what a query without a limit reads up to."""
        return {self.topic: self.client.end_offsets(self.topic)}


@pytest.fixture
def scene(
    spark: SparkSession,
    kafka: LocalKafka,
    second_client: SecondClient,
    topic_name: str,
    tmp_path: Path,
) -> Scene:
    return Scene(spark, second_client, topic_name, tmp_path)


def processed(position: CheckpointPosition) -> Offsets | None:
    (source,) = position.sources
    return source.processed


def only_goes_on(told: list[CheckpointPosition]) -> bool:
    """Neither batch nor any partition ever goes back, and all is of one query."""
    assert len({position.query_id for position in told}) == 1
    for before, after in pairwise(told):
        assert (after.batch_id or 0) >= (before.batch_id or 0)
        for topic, partitions in ((processed(before) if before.sources else None) or {}).items():
            for number, offset in partitions.items():
                later = processed(after)
                assert later is not None
                assert later[topic][number] >= offset
    return True


def test_a_long_batch_is_seen_planned_while_it_runs_and_then_processed(scene: Scene) -> None:
    release = threading.Event()

    def hold_second(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            assert release.wait(_SPARK_S)

    scene.send(5)
    first = scene.reached()
    follower = scene.follower()
    with scene.running(scene.frame().writeStream.foreachBatch(hold_second)) as query:
        with follower.following(scene.folder):
            follower.until(lambda p: p.batch_id == 0, "the first batch is committed")
            assert processed(follower.told[-1]) == first
            scene.send(3)
            second = scene.reached()
            follower.until(lambda p: p.planned_batch_id == 1, "the second batch is planned")
            (source,) = follower.told[-1].sources
            assert (source.processed, source.planned) == (first, second)
            assert query.lastProgress is not None
            assert query.lastProgress["batchId"] == 0
            release.set()
            follower.until(lambda p: p.batch_id == 1, "the second batch is committed")
            assert processed(follower.told[-1]) == second
            assert follower.told[-1].query_id == query.id
    assert only_goes_on(follower.told)


def test_what_spark_calls_the_location_is_where_it_is(scene: Scene) -> None:
    scene.send(1)
    with scene.running(scene.frame().writeStream.format("noop")) as query:
        query.processAllAvailable()
        execution = scene.spark._jsparkSession.streams().get(query.id).streamingQuery()
        said = execution.resolvedCheckpointRoot()
    assert normal_location(said) == str(scene.folder)
    assert processed(read_checkpoint(CheckpointStore({}, 10.0), said)) == scene.reached()


@pytest.mark.slow
def test_available_now_ends_where_the_topic_ended(scene: Scene) -> None:
    scene.send(40)
    ends = scene.reached()
    follower = scene.follower()
    writer = scene.frame(maxOffsetsPerTrigger="10").writeStream.format("noop")
    with scene.running(writer.trigger(availableNow=True)) as query:
        with follower.following(scene.folder):
            assert query.awaitTermination(int(_SPARK_S))
            follower.until(lambda p: p.batch_id == 3, "all four batches are committed")
        last = query.lastProgress
    assert only_goes_on(follower.told)
    position = read_checkpoint(CheckpointStore({}, 10.0), str(scene.folder))
    assert processed(position) == ends
    assert (position.batch_id, position.planned_batch_id) == (3, None)
    assert last is not None
    assert last["batchId"] == 3


def test_continuous_processing_is_followed_by_its_checkpoint_alone(scene: Scene) -> None:
    scene.send(5)
    follower = scene.follower()
    writer = scene.frame().writeStream.format("noop").trigger(continuous="1 second")
    with scene.running(writer) as query:
        with follower.following(scene.folder):
            follower.until(
                lambda p: bool(p.sources) and processed(p) == scene.reached(), "all is read"
            )
            scene.send(7)
            follower.until(lambda p: processed(p) == scene.reached(), "what came later is read")
            epoch = follower.told[-1].batch_id
            assert epoch is not None
            follower.until(lambda p: (p.batch_id or 0) > epoch, "an epoch without data")
            assert processed(follower.told[-1]) == scene.reached()
        # Spark itself says nothing of it.
        assert query.lastProgress is None
    assert only_goes_on(follower.told)


@pytest.mark.slow
def test_asynchronous_progress_has_holes_and_is_followed_all_the_same(scene: Scene) -> None:
    scene.send(5)
    out = scene.client.create(f"{scene.topic}-out", 1)
    follower = scene.follower()
    writer = (
        scene.frame()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", scene.client.bootstrap_servers)
        .option("topic", out)
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "1500")
    )

    def numbers() -> list[int]:
        names = (file.name for file in (scene.folder / "commits").iterdir())
        return sorted(int(name) for name in names if name.isdigit())

    def has_holes() -> bool:
        scene.send(1)
        written = numbers()
        return len(written) > 3 and written[-1] - written[-2] > 1

    with scene.running(writer):
        with follower.following(scene.folder):
            follower.until(lambda p: p.batch_id == 0, "the first batch is committed")
            wait_for(has_holes, "batches are left out of the log", _SPARK_S)

            def all_read() -> bool:
                # What is not in the log is written with a later batch, which needs data.
                written, sent = follower.told[-1], scene.reached()
                if processed(written) == sent:
                    return True
                if time.monotonic() > quiet_s[0]:
                    scene.send(1)
                    quiet_s[0] = time.monotonic() + 4
                return False

            quiet_s = [time.monotonic() + 4]
            wait_for(all_read, "all is read", _SPARK_S)
            known = follower.told[-1]
    assert only_goes_on(follower.told)
    # Another client counts what came out: never less than the checkpoint says was processed.
    written = sum(scene.client.end_offsets(out).values())
    said = processed(known)
    assert said is not None
    assert sum(said[scene.topic].values()) <= written
    assert known.batch_id is not None
    assert len(numbers()) <= known.batch_id


@pytest.mark.slow
def test_a_query_that_keeps_its_checkpoint_in_hdfs_is_followed_there(
    scene: Scene, hdfs: HdfsCluster
) -> None:
    location = f"hdfs://{hdfs.name_node}/spark/{uuid.uuid4().hex}"
    store = CheckpointStore(hdfs.storage(), 60.0)
    scene.send(5)
    writer = scene.frame().writeStream.format("noop").option("checkpointLocation", location)
    query = writer.start()
    try:
        query.processAllAvailable()
        reader = store.reader(location)
        position = reader.poll()
        assert position is not None
        assert (position.query_id, processed(position)) == (query.id, scene.reached())
        scene.send(4)
        query.processAllAvailable()
        position = reader.poll()
        assert position is not None
        assert processed(position) == scene.reached()
    finally:
        query.stop()
