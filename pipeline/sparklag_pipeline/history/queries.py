"""The streaming queries of the history, not yet started: the ingest and the roll-ups."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import (
    col,
    current_timestamp,
    explode,
    expr,
    from_json,
    lit,
    unix_millis,
    window,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_pipeline.history import partition_rows as rows
from sparklag_pipeline.history import rollups
from sparklag_pipeline.history.batch_log import count_unreadable
from sparklag_pipeline.history.events import NO_AVRO, WriterSchemas, events
from sparklag_pipeline.history.tables import Tables
from sparklag_schemas.settings import Thresholds

INGEST: Final = "lag-history"

# Kafka's default of 1 MiB is some 70 events of wide queries: a task would wait after each fetch.
_FETCH: Final = {"kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}

log = logging.getLogger(__name__)


def ingest(
    spark: SparkSession,
    tables: Tables,
    *,
    kafka_options: Mapping[str, str],
    lag_topic: str,
    thresholds: Mapping[str, Thresholds],
    avro: WriterSchemas = NO_AVRO,
) -> DataStreamWriter:
    """The query that appends `consumer-lag` to `partitions`, from the topic's start."""
    kafka_rows = (
        spark.readStream.format("kafka")
        .options(**{**_FETCH, **kafka_options})
        .option("subscribe", lag_topic)
        .option("startingOffsets", "earliest")
        # Records that retention deleted while the job was down must not stop it for good.
        .option("failOnDataLoss", "false")
        .load()
    )
    new_rows = rows.partition_rows(count_unreadable(events(kafka_rows, avro)), thresholds)
    # Kafka's source makes a task, and so a file, of each partition of the topic.
    new_rows = new_rows.coalesce(spark.sparkContext.defaultParallelism)
    return tables.append(new_rows, rows.NAME, "day").queryName(INGEST)


def roll_ups(spark: SparkSession, tables: Tables, name: str, *, lateness: str) -> DataStreamWriter:
    """The query that writes the roll-up `name` of closed windows: the newest event is `lateness`
    (an interval of Spark's) after their end.

    The stream only determines which windows are closed; their rows are read from the table then. A
    batch writes to partitions of its own, which the same batch replaces after a kill.
    """
    measured = tables.read_stream(spark, rows.NAME, rows.COLUMNS)
    step = f"{rollups.STEPS_S[name]} seconds"
    closed = (
        # A clock that is ahead must not close the windows of other queries too early.
        measured.where(
            col("first")
            & (col("measured_at") <= current_timestamp() + expr(f"interval {lateness}"))
        )
        .select("measured_at")
        .withWatermark("measured_at", lateness)
        .groupBy(window("measured_at", step))
        .count()
        .select(col("window.start").alias("window_start"))
    )
    return (
        closed.writeStream.outputMode("append")
        .option("checkpointLocation", tables.checkpoint(name))
        .queryName(f"{INGEST}-{name}")
        .foreachBatch(_Writer(tables, name))
    )


def start_once(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query that takes all there is, closes windows, and ends."""
    return writer.trigger(availableNow=True).start()


@dataclass(frozen=True)
class _Writer:
    tables: Tables
    name: str

    def __call__(self, windows: DataFrame, batch_id: int) -> None:
        spark = windows.sparkSession
        starts_ms = [row[0] for row in windows.select(unix_millis("window_start")).collect()]
        if not starts_ms:
            return
        step_s = rollups.STEPS_S[self.name]
        measured = rollups.read_for(
            self.tables.read(spark, rows.NAME, rows.COLUMNS),
            min(starts_ms),
            max(starts_ms) + step_s * 1000,
        )
        # Collected: the stream's own rows would be computed again for each use. As JSON, because
        # rows from Python would take a Python worker, and as many literals a large plan.
        closed = spark.range(1).select(
            explode(from_json(lit(json.dumps(starts_ms)), "array<bigint>")).alias("start_ms")
        )
        closed = closed.select(expr("timestamp_millis(start_ms)").alias("window_start"))
        rolled = rollups.roll_up(measured, closed, step_s).withColumn(
            "batch", lit(batch_id).cast("bigint")
        )
        # One file for each day, as there are few rows; the computation is not held to one core.
        self.tables.replace(rolled.repartition(1), self.name, "day", "batch")
        log.info("%s: %d windows in batch %d", self.name, len(starts_ms), batch_id)
