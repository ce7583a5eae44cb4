"""How fast the history of lag takes in `consumer-lag`, rolls it up, and reports.

The ingest query against a bare Spark copy of the same topic to Parquet, in the same session and in
turn: the same rows and columns, by `from_json`, `explode` and a write, and no more. Then the report
against a start of the same Spark session that reads nothing. `SPARKLAG_BENCH_EVENTS` is how many
events there are.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, explode, from_json
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.comparison import Row, in_turn, say, times
from sparklag_jobs.demo.streams import create_topics
from sparklag_jobs.history.events import kafka_options
from sparklag_jobs.history.lag_history import build_session, create_tables
from sparklag_jobs.history.partition_rows import ingest
from sparklag_jobs.history.rollups import STEPS_S, roll_ups
from sparklag_jobs.history.tables import (
    EVENT_FIELDS,
    PARTITION_FIELDS,
    Tables,
    event_schema,
    open_tables,
)
from sparklag_schemas import LagEvent, PartitionLag, Settings, TopicLag, encode
from sparklag_schemas.messages.topics import lag_topic
from sparklag_schemas.settings import ClusterAccess
from tests.local_kafka import LocalKafka

EVENTS: Final = int(os.environ.get("SPARKLAG_BENCH_EVENTS", "200000"))
PARTITIONS_EACH: Final = 50
RATIO: Final = 1.2
REPORT_BUDGET_S: Final = 10.0

_QUERIES: Final = 100
_ROUNDS: Final = 2
_REPORTS: Final = 3
_WARM_UP_EVENTS: Final = 5_000
_START_MS: Final = 1_790_000_000_000
_HEARTBEAT_MS: Final = 10_000
_TOPIC: Final = "consumer-lag"
_WARM_UP_TOPIC: Final = "warm-up"
_START_ALONE: Final = """
import sys
from sparklag_jobs.history.tables import open_tables
from sparklag_jobs.report.lag_report import build_session
build_session(open_tables("parquet", sys.argv[1])).stop()
"""
"""A process that starts the report's session, and ends it."""


def run() -> list[Row]:
    """Rows for the ingest, the roll-ups and the report."""
    folder = Path(tempfile.mkdtemp(prefix="sparklag-lag-history-"))
    try:
        with LocalKafka() as broker:
            for topic, count in ((_WARM_UP_TOPIC, _WARM_UP_EVENTS), (_TOPIC, EVENTS)):
                say(f"lag history: producing {count:,} events × {PARTITIONS_EACH} partitions")
                asyncio.run(create_topics(broker.bootstrap_servers, [lag_topic(topic, 12, 1)]))
                _produce(broker.bootstrap_servers, topic, count)
            return _measured(broker.bootstrap_servers, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(servers: str, folder: Path) -> list[Row]:
    tables = open_tables("parquet", str(folder / "history"))
    spark = build_session(tables)
    try:
        runs = _Runs(spark, servers, folder)
        runs.topic = _WARM_UP_TOPIC
        for _ in range(2):
            runs.ours()
            runs.bare()
        runs.topic = _TOPIC
        ours_s, bare_s = in_turn(_ROUNDS, runs.ours, runs.bare)
        rolled = [_rolled(spark, runs.newest, name) for name in STEPS_S]
    finally:
        spark.stop()
    return [_compared(ours_s, bare_s), *rolled, _reported(runs.newest)]


def _compared(ours_s: Sequence[float], bare_s: Sequence[float]) -> Row:
    ratio = median(ours_s) / median(bare_s)
    records = EVENTS * PARTITIONS_EACH
    return Row(
        f"lag history, {records:,} partition records: ingest",
        f"{median(ours_s):.1f} s, {records / median(ours_s):,.0f} records/s",
        f"{median(bare_s):.1f} s, from_json and a write of the same rows",
        times(ratio),
        f"≤ {times(RATIO)}",
        ratio <= RATIO,
    )


class _Runs:
    """Both sides, each into a folder of its own every time."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.topic = _TOPIC
        self._spark, self._folder = spark, folder
        self._options = kafka_options(ClusterAccess(servers, Settings().kafka))
        self._number = 0
        self.newest: Tables = open_tables("parquet", str(folder / "none"))

    def ours(self) -> list[float]:
        """Seconds of the job's ingest query."""
        self.newest = open_tables("parquet", str(self._new_folder()))
        create_tables(self._spark, self.newest)
        return [
            _seconds(
                ingest(
                    self._spark,
                    self.newest,
                    kafka_options=self._options,
                    lag_topic=self.topic,
                    thresholds={},
                )
            )
        ]

    def bare(self) -> list[float]:
        """Seconds of the copy."""
        folder = self._new_folder()
        copy = self._rows().writeStream.format("parquet").option("path", str(folder / "copy"))
        return [_seconds(copy.option("checkpointLocation", str(folder / "checkpoint")))]

    def _rows(self) -> DataFrame:
        """The rows of the table, with the columns that are read and not computed."""
        values = (
            self._spark.readStream.format("kafka")
            .options(**self._options)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        event = from_json(col("value").cast("string"), event_schema())
        topics = values.select(event.alias("event")).select("event.*")
        partitions = topics.select("*", explode("topics").alias("of_topic")).select(
            *(name for name in EVENT_FIELDS if name not in ("schema_version", "topics")),
            "of_topic.source",
            "of_topic.topic",
            explode("of_topic.partitions").alias("of_partition"),
        )
        columns = (
            col(f"of_partition.{name}").alias(f"partition_{name}") for name in PARTITION_FIELDS
        )
        return partitions.select("*", *columns).drop("of_partition")

    def _new_folder(self) -> Path:
        self._number += 1
        return self._folder / str(self._number)


def _seconds(writer: DataStreamWriter) -> float:
    began_s = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return time.perf_counter() - began_s


def _rolled(spark: SparkSession, tables: Tables, name: str) -> Row:
    say(f"lag history: rolling up into {name}")
    took_s = _seconds(roll_ups(spark, tables, name, lateness="5 minutes"))
    return Row(f"lag history, roll-up into {name}", f"{took_s:.1f} s", "")


def _reported(tables: Tables) -> Row:
    say("lag history: reporting")
    report = ["-m", "sparklag_jobs.report.lag_report", "--format", "json"]
    report += ["--since", str(_START_MS), "--table", tables.location]
    ours_s, starts_s = in_turn(
        _REPORTS,
        lambda: _process_seconds(report),
        lambda: _process_seconds(["-c", _START_ALONE, tables.location]),
    )
    took_s, start_s = median(ours_s), median(starts_s)
    return Row(
        "lag history: report, Spark's start and all",
        f"{took_s:.1f} s",
        f"{start_s:.1f} s, Spark's start alone",
        times(took_s / start_s),
        f"≤ {REPORT_BUDGET_S:g} s",
        took_s <= REPORT_BUDGET_S,
    )


def _process_seconds(arguments: Sequence[str]) -> list[float]:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return [time.perf_counter() - began_s]


def _produce(servers: str, topic: str, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "zstd",  # as the service does
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    chance = random.Random(50)
    for number in range(count):
        event = _event(number, chance)
        while True:
            try:
                producer.produce(topic, encode(event), event.query_id.encode())
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not all events were taken")


def _event(number: int, chance: random.Random) -> LagEvent:
    query, beat = number % _QUERIES, number // _QUERIES
    at_ms = _START_MS + beat * _HEARTBEAT_MS + query
    partitions = [_partition(one, beat, chance.randrange(2_000)) for one in range(PARTITIONS_EACH)]
    lags = [one.lag or 0 for one in partitions]
    return LagEvent(
        event_id=str(uuid.UUID(int=chance.getrandbits(128))),
        query_id=str(uuid.UUID(int=query)),
        run_id=str(uuid.UUID(int=query + _QUERIES)),
        query=f"query-{query}",
        batch_id=beat,
        cause="progress",
        measured_by="service",
        status="OK" if chance.random() > 0.02 else "WARN",
        observed_at=at_ms,
        processed_at=at_ms - 50,
        measured_at=at_ms,
        total_lag=sum(lags),
        max_lag=max(lags),
        max_time_lag_s=max(lags) / 100,
        input_rate=5_000.0 + chance.random() * 100,
        processed_rate=5_000.0,
        batch_rate=9_000.0,
        topics=[
            TopicLag(topic=f"topic-{query}", source=0, total_lag=sum(lags), partitions=partitions)
        ],
    )


def _partition(number: int, beat: int, lag: int) -> PartitionLag:
    latest = 2_000 + 1_000 * beat + number
    return PartitionLag(
        partition=number,
        processed_offset=latest - lag,
        latest_offset=latest,
        earliest_offset=0,
        lag=lag,
        time_lag_s=lag / 100,
        time_lag_method="sampled",
        status="OK",
    )
