"""Makes samples anew: `python -m tests.samples.make_samples FOLDER`.

Runs small queries with the installed Spark on a broker of its own, and writes their progress and
checkpoints in the layout of this folder.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.listener.drivers import build_session, read_kafka
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

DEADLINE_S = 120.0
SCENARIOS: list[Callable[[Maker], None]] = []


def scenario(function: Callable[[Maker], None]) -> Callable[[Maker], None]:
    """One sample, named as its function; what follows on it (a restart) is in the same one."""
    SCENARIOS.append(function)
    return function


class Recorder(StreamingQueryListener):
    """Keeps the events of the query that runs; there is one at a time."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.others: set[str] = set()
        self.progress: list[str] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.progress.append(event.progress.json)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self.others.add("idle")

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.others.add("terminated")


class Maker:
    def __init__(self, spark: SparkSession, kafka: LocalKafka, folder: Path) -> None:
        self._spark = spark
        self._client = SecondClient(kafka.bootstrap_servers)
        self._folder = folder
        self._recorder = Recorder()
        self._checkpoints = Path(tempfile.mkdtemp(prefix="sparklag-samples-"))
        spark.streams.addListener(self._recorder)

    def create(self, topic: str, partitions: int = 2) -> None:
        self._client.create(topic, partitions)

    def send(self, topic: str, to_each: int = 5, partitions: int = 2) -> None:
        values = [b"%d" % number for number in range(to_each)]
        for partition in range(partitions):
            self._client.produce(topic, values, partition=partition)

    def read(self, **options: str) -> DataFrame:
        return read_kafka(self._spark, self._client.bootstrap_servers, **options)

    def rate(self) -> DataFrame:
        return self._spark.readStream.format("rate").option("rowsPerSecond", 5).load()

    @contextmanager
    def running(
        self, sample: str, frame: DataFrame, *, checkpoint: str | None = None, **trigger: Any
    ) -> Iterator[StreamingQuery]:
        writer = frame.writeStream.format("noop")
        if trigger:
            writer = writer.trigger(**trigger)
        with self.writing(sample, writer, checkpoint=checkpoint) as query:
            yield query

    @contextmanager
    def writing(
        self, sample: str, writer: DataStreamWriter, *, checkpoint: str | None = None
    ) -> Iterator[StreamingQuery]:
        self._recorder.clear()
        location = self._checkpoints / (checkpoint or sample)
        query = writer.queryName(sample).option("checkpointLocation", str(location)).start()
        try:
            yield query
        finally:
            query.stop()
        self.until(lambda: "terminated" in self._recorder.others, "terminated")
        self._write(sample, location)

    def has_progress(self, count: int) -> None:
        self.until(lambda: len(self._recorder.progress) >= count, f"{count} progress events")

    def is_idle(self) -> None:
        self.until(lambda: "idle" in self._recorder.others, "an idle event")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, what, DEADLINE_S)

    def forget_last_commit(self, checkpoint: str) -> None:
        """As if the driver had died before it wrote its last commit."""
        commits = self._checkpoints / checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def keep_checkpoint(self, name: str, sample: str) -> None:
        target = self._folder / "checkpoints" / sample
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(
            self._checkpoints / name, target, ignore=shutil.ignore_patterns("state", "__tmp_path*")
        )

    def close(self) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _write(self, sample: str, location: Path) -> None:
        folder = self._folder / "progress"
        folder.mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(self._recorder.progress):
            (folder / f"{sample}.progress{number}.json").write_text(text, encoding="utf-8")
        self.keep_checkpoint(location.name, location.name)
        print(f"{sample}: {len(self._recorder.progress)} progress events")


@scenario
def single_kafka(maker: Maker) -> None:
    maker.create("s1")
    maker.send("s1")
    frame = maker.read(subscribe="s1")
    with maker.running("single_kafka", frame):
        maker.has_progress(1)
        maker.send("s1", 3)
        maker.has_progress(2)
        maker.is_idle()
    with maker.running("single_kafka_restart_nodata", frame, checkpoint="single_kafka"):
        maker.is_idle()
    maker.send("s1", 2)
    with maker.running("single_kafka_restart_newdata", frame, checkpoint="single_kafka"):
        maker.has_progress(1)
    maker.forget_last_commit("single_kafka")
    maker.keep_checkpoint("single_kafka", "single_kafka_uncommitted_last")
    with maker.running("single_kafka_replay", frame, checkpoint="single_kafka"):
        maker.has_progress(1)


@scenario
def limited(maker: Maker) -> None:
    maker.create("lim")
    maker.send("lim", 20)
    with maker.running("limited", maker.read(subscribe="lim", maxOffsetsPerTrigger="10")):
        maker.has_progress(4)


@scenario
def available_now(maker: Maker) -> None:
    maker.create("an")
    maker.send("an", 15)
    frame = maker.read(subscribe="an", maxOffsetsPerTrigger="10")
    for sample in ("available_now", "available_now_again_nodata"):
        with maker.running(sample, frame, checkpoint="available_now", availableNow=True) as query:
            query.awaitTermination(int(DEADLINE_S))


@scenario
def continuous(maker: Maker) -> None:
    maker.create("cont")
    maker.send("cont")
    with maker.running("continuous", maker.read(subscribe="cont"), continuous="1 second"):
        commits = maker._checkpoints / "continuous" / "commits"
        maker.until(lambda: commits.is_dir() and (commits / "1").exists(), "continuous commit")


@scenario
def batch_fails(maker: Maker) -> None:
    maker.create("bf")
    maker.send("bf")

    def fail_second(batch: DataFrame, batch_id: int) -> None:
        batch.count()
        if batch_id == 1:
            raise ValueError("the second batch fails")

    writer = maker.read(subscribe="bf").writeStream.foreachBatch(fail_second)
    with maker.writing("batch_fails", writer) as query:
        maker.has_progress(1)
        maker.send("bf")
        maker.until(lambda: not query.isActive, "failure")


@scenario
def subscribe_pattern(maker: Maker) -> None:
    for topic in ("pat-a", "pat-b"):
        maker.create(topic)
        maker.send(topic)
    frame = maker.read(subscribePattern="pat-.*", **{"kafka.metadata.max.age.ms": "500"})
    with maker.running("subscribe_pattern", frame):
        maker.has_progress(1)
        maker.create("pat-c", 1)
        maker.send("pat-c", 4, partitions=1)
        maker.has_progress(2)


@scenario
def assign(maker: Maker) -> None:
    maker.create("as", 3)
    maker.send("as", partitions=3)
    with maker.running("assign", maker.read(assign='{"as":[0,2]}')):
        maker.has_progress(1)


@scenario
def union_two_kafka(maker: Maker) -> None:
    for topic in ("u1", "u2"):
        maker.create(topic)
        maker.send(topic)
    frame = maker.read(subscribe="u1").union(maker.read(subscribe="u2"))
    with maker.running("union_two_kafka", frame):
        maker.has_progress(1)
        maker.send("u2", 3)
        maker.has_progress(2)


@scenario
def rate_plus_kafka(maker: Maker) -> None:
    maker.create("ur")
    maker.send("ur")
    records = maker.read(subscribe="ur").selectExpr("timestamp", "CAST(value AS STRING) AS value")
    ticks = maker.rate().selectExpr("timestamp", "CAST(value AS STRING) AS value")
    with maker.running("rate_plus_kafka", ticks.union(records)):
        maker.has_progress(3)


@scenario
def rate_only(maker: Maker) -> None:
    with maker.running("rate_only", maker.rate()):
        maker.has_progress(2)


@scenario
def stateful_watermark(maker: Maker) -> None:
    maker.create("sw")
    maker.send("sw")
    counted = (
        maker.read(subscribe="sw")
        .withWatermark("timestamp", "0 seconds")
        .groupBy("timestamp")
        .count()
    )
    with maker.running("stateful_watermark", counted):
        maker.has_progress(2)
        maker.send("sw", 2)
        maker.has_progress(4)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with LocalKafka() as kafka:
        settings = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.noDataProgressEventInterval": "1000",
        }
        spark = build_session(settings)
        maker = Maker(spark, kafka, folder)
        try:
            for make in SCENARIOS:
                make(maker)
        finally:
            maker.close()
            spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.samples.make_samples FOLDER")
    main(Path(sys.argv[1]))
