"""The queries that write the lag history, and the log of their batches."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import (
    col,
    count_if,
    current_timestamp,
    explode,
    expr,
    from_json,
    lit,
    pmod,
    struct,
    unix_millis,
    when,
    window,
    xxhash64,
)
from pyspark.sql.functions import min as least
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_jobs.history import partition_rows as rows
from sparklag_jobs.history import rollups
from sparklag_jobs.history.events import NO_AVRO, WriterSchemas, events
from sparklag_jobs.history.tables import Tables
from sparklag_schemas.settings import Thresholds

_METRICS: Final = "unreadable"
_COUNT: Final = "values"
_SAMPLES: Final = 10
_LATE: Final = "numRowsDroppedByWatermark"
log = logging.getLogger(__name__)


def count_unreadable(events: DataFrame) -> DataFrame:
    """The same rows (see `events.events`), with metrics of the unreadable ones in each batch: how
    many there are, and up to ten offsets with the reason."""
    unreadable = col("unreadable").isNotNull()
    # Bounded, whatever comes: at most one sample of each tenth of all offsets.
    tenth = pmod(xxhash64("topic", "partition", "offset"), lit(_SAMPLES))
    sample = struct("topic", "partition", "offset", "unreadable")
    samples = (
        least(when(unreadable & (tenth == number), sample)).alias(f"sample_{number}")
        for number in range(_SAMPLES)
    )
    return events.observe(_METRICS, count_if(unreadable).alias(_COUNT), *samples)


class BatchLog:
    """Logs the progress of one query.

    By polling, not by a listener: Spark drops listeners' events when they come too fast, and keeps
    the progress of the last hundred batches.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._logged = -1

    def update(self) -> None:
        """Log what batches since the last call have left out."""
        newest = self._query.lastProgress
        if newest is None or newest["batchId"] <= self._logged:
            return
        recent = [newest] if newest["batchId"] == self._logged + 1 else self._query.recentProgress
        for progress in recent:
            if progress["batchId"] > self._logged:
                self._logged = progress["batchId"]
                self._log(progress)

    def _log(self, progress: Mapping[str, Any]) -> None:
        metrics = (progress.get("observedMetrics") or {}).get(_METRICS)
        if metrics is not None:
            _log_unreadable(
                progress["batchId"], metrics.asDict() if hasattr(metrics, "asDict") else metrics
            )
        late = sum(operator.get(_LATE, 0) for operator in progress.get("stateOperators") or ())
        if late:
            log.warning(
                "batch %d of %s: events came too late for %d windows or more, and are in none;"
                " table partitions has them",
                progress["batchId"],
                self._query.name,
                late,
            )


def _log_unreadable(batch_id: int, metrics: Mapping[str, Any]) -> None:
    count = metrics.get(_COUNT) or 0
    if not count:
        return
    samples = (metrics.get(f"sample_{number}") for number in range(_SAMPLES))
    shown = sorted(
        (sample["topic"], sample["partition"], sample["offset"], sample["unreadable"])
        for sample in samples
        if sample is not None
    )
    log.warning(
        "batch %d: %d values that are no lag event are left out: %s%s",
        batch_id,
        count,
        "; ".join(f"{topic} {number} at {offset}: {why}" for topic, number, offset, why in shown),
        f" (and {count - len(shown)} more)" if count > len(shown) else "",
    )


INGEST: Final = "lag-history"

# Kafka's default of 1 MiB is some 70 events of wide queries: a task would wait after each fetch.
_FETCH: Final = {"kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}


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
