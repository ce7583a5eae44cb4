"""Roll-ups of `partitions` into windows of time: the queries that write them, and their reader."""

from __future__ import annotations

import json
import logging
from typing import Final

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.functions import col, expr, lit, to_date
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_jobs.history import partition_rows as rows
from sparklag_jobs.history.tables import Tables

log = logging.getLogger(__name__)

MINUTES: Final = "minutes"
HOURS: Final = "hours"
STEPS_S: Final = {MINUTES: 60, HOURS: 3_600}
"""The tables, with the length of their windows."""

HOLD_S: Final = 30
"""An event holds until the query's next event, at most for three heartbeats."""

LOOK_BACK_S: Final = 3_600
"""Offsets are compared with those of an earlier event of at most this age."""

WORST: Final = 5
"""Number of partitions that a row lists."""

COLUMNS: Final = {
    "cluster": "string",
    "query_id": "string",
    "query": "string",
    "window_start": "timestamp",
    "events": "bigint",
    "known_s": "double",
    "within_target_s": "double",
    "total_lag_p50": "double",
    "total_lag_p95": "double",
    "total_lag_p99": "double",
    "total_lag_max": "bigint",
    "max_time_lag_p50_s": "double",
    "max_time_lag_p95_s": "double",
    "max_time_lag_p99_s": "double",
    "max_time_lag_max_s": "double",
    "status_s": "map<string, double>",
    "produced": "bigint",
    "processed": "bigint",
    "input_rate_p95": "double",
    "batch_rate_p95": "double",
    "worst_partitions": (
        "array<struct<source: int, topic: string, partition: int, max_lag: bigint,"
        " max_time_lag_s: double>>"
    ),
    "day": "date",
}
"""Columns of a roll-up."""

TABLE_COLUMNS: Final = {**COLUMNS, "batch": "bigint"}
"""Columns of the tables: `batch` is the batch that wrote a row."""

_ROLL_UP: Final = """
WITH starts AS (SELECT DISTINCT unix_millis(window_start) AS start_ms FROM {windows}),
measured AS (SELECT *, unix_millis(measured_at) AS at_ms FROM {partitions}),
-- An event is in each window that it reaches into; held_ms is how long it holds there. An event
-- with a successor at the same time holds for no time, and is counted all the same.
events AS (
  SELECT *, least(
    lead(at_ms) OVER (PARTITION BY cluster, query_id ORDER BY at_ms, event_id),
    at_ms + {hold_ms}) AS until_ms
  FROM measured WHERE first),
reached AS (
  SELECT *, explode(sequence(
    at_ms - at_ms % {step_ms},
    greatest(at_ms, until_ms - 1) - greatest(at_ms, until_ms - 1) % {step_ms},
    CAST({step_ms} AS bigint))) AS start_ms
  FROM events),
held AS (
  SELECT *, greatest(
    least(until_ms, start_ms + {step_ms}) - greatest(at_ms, start_ms), 0) AS held_ms
  FROM reached JOIN starts USING (start_ms)),
of_status AS (
  SELECT cluster, query_id, start_ms, event_status, sum(held_ms) / 1000D AS seconds
  FROM held WHERE event_status IS NOT NULL GROUP BY cluster, query_id, start_ms, event_status),
statuses AS (
  SELECT cluster, query_id, start_ms,
    map_from_entries(collect_list(struct(event_status, seconds))) AS status_s
  FROM of_status WHERE seconds > 0 GROUP BY cluster, query_id, start_ms),
figures AS (
  SELECT cluster, query_id, start_ms,
    max_by(query, at_ms) AS query,
    count(DISTINCT if(at_ms >= start_ms, event_id, null)) AS events,
    -- Null is false: an unknown lag is not within target, and does not count as known.
    sum(if(total_lag IS NOT NULL, held_ms, 0)) / 1000D AS known_s,
    sum(if(total_lag IS NOT NULL AND within_target, held_ms, 0)) / 1000D AS within_target_s,
    percentile(total_lag, array(0.5D, 0.95D, 0.99D), held_ms) AS lags,
    max(total_lag) FILTER (WHERE held_ms > 0) AS total_lag_max,
    percentile(max_time_lag_s, array(0.5D, 0.95D, 0.99D), held_ms) AS ages,
    max(max_time_lag_s) FILTER (WHERE held_ms > 0) AS max_time_lag_max_s,
    percentile(input_rate, 0.95D, held_ms) AS input_rate_p95,
    percentile(batch_rate, 0.95D, held_ms) AS batch_rate_p95
  FROM held GROUP BY cluster, query_id, start_ms),
-- What was produced and processed since the last known offsets.
offsets AS (
  SELECT *, at_ms - at_ms % {step_ms} AS start_ms,
    latest_offset - last(latest_offset) IGNORE NULLS OVER before AS grown,
    processed_offset - last(processed_offset) IGNORE NULLS OVER before AS done
  FROM measured WHERE partition IS NOT NULL
  WINDOW before AS (
    PARTITION BY cluster, query_id, source, topic, partition ORDER BY at_ms, event_id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
of_partition AS (
  SELECT cluster, query_id, start_ms, source, topic, partition,
    max(coalesce(readable_lag, lag)) AS max_lag,
    max(time_lag_s) AS max_time_lag_s,
    -- A log that ends earlier than before is a new one, and began at 0.
    sum(if(grown < 0, latest_offset, grown)) AS produced,
    -- A query that went back has not processed anything by that.
    sum(if(done < 0, 0, done)) AS processed
  FROM offsets JOIN starts USING (start_ms)
  GROUP BY cluster, query_id, start_ms, source, topic, partition),
of_partitions AS (
  SELECT cluster, query_id, start_ms,
    sum(produced) AS produced,
    sum(processed) AS processed,
    slice(sort_array(
      collect_list(struct(max_lag, max_time_lag_s, source, topic, partition))
        FILTER (WHERE max_lag > 0), false), 1, {worst}) AS worst
  FROM of_partition GROUP BY cluster, query_id, start_ms)
SELECT *,
  timestamp_millis(start_ms) AS window_start, to_date(timestamp_millis(start_ms)) AS day,
  lags[0] AS total_lag_p50, lags[1] AS total_lag_p95, lags[2] AS total_lag_p99,
  ages[0] AS max_time_lag_p50_s, ages[1] AS max_time_lag_p95_s, ages[2] AS max_time_lag_p99_s,
  transform(worst, it -> named_struct(
    'source', it.source, 'topic', it.topic, 'partition', it.partition,
    'max_lag', it.max_lag, 'max_time_lag_s', it.max_time_lag_s)) AS worst_partitions
FROM figures
LEFT JOIN statuses USING (cluster, query_id, start_ms)
LEFT JOIN of_partitions USING (cluster, query_id, start_ms)
"""


def read_for(partitions: DataFrame, from_ms: int, until_ms: int) -> DataFrame:
    """The rows that a roll-up of the windows in [from, until) needs, in epoch milliseconds."""
    return _between(partitions, "measured_at", from_ms - LOOK_BACK_S * 1000, until_ms)


def _between(rows: DataFrame, column: str, from_ms: int, until_ms: int) -> DataFrame:
    # The filter by day skips the folders of other days.
    first, end = expr(f"timestamp_millis({from_ms})"), expr(f"timestamp_millis({until_ms})")
    at, day = col(column), col("day")
    return rows.where((at >= first) & (at < end) & (day >= to_date(first)) & (day <= to_date(end)))


def roll_up(partitions: DataFrame, windows: DataFrame, step_s: int) -> DataFrame:
    """Rows of `COLUMNS`: for each query and each of the windows (`window_start`) in which it has an
    event.

    `partitions` has the windows' rows and earlier ones (see `read_for`). Shares and percentiles are
    weighted by time: an event holds until the query's next event, at most `HOLD_S`, and an event
    that crosses the edge of a window counts on both sides. Percentiles are exact.
    """
    rolled = partitions.sparkSession.sql(
        _ROLL_UP,
        partitions=partitions,
        windows=windows,
        step_ms=step_s * 1000,
        hold_ms=HOLD_S * 1000,
        worst=WORST,
    )
    return rolled.select(*COLUMNS)


def roll_ups(spark: SparkSession, tables: Tables, name: str, *, lateness: str) -> DataStreamWriter:
    """The query that writes the roll-up `name` of closed windows: those that end at least
    `lateness` (a Spark interval) before the newest event.

    The stream only determines which windows are closed; their rows are then read from the table. A
    batch writes its own partitions, which it replaces when it runs again after a kill.
    """
    step_s = STEPS_S[name]

    def write(windows: DataFrame, batch_id: int) -> None:
        starts_ms = [row[0] for row in windows.select(fn.unix_millis("window_start")).collect()]
        if not starts_ms:
            return
        spark = windows.sparkSession
        table = tables.read(spark, rows.NAME, rows.COLUMNS)
        measured = read_for(table, min(starts_ms), max(starts_ms) + step_s * 1000)
        # Collected, since the stream's rows would be computed again for each use. JSON, since rows
        # from Python need a Python worker, and many literals a large plan.
        listed = fn.from_json(lit(json.dumps(starts_ms)), "array<bigint>")
        closed = (
            spark.range(1)
            .select(fn.explode(listed).alias("start_ms"))
            .select(expr("timestamp_millis(start_ms)").alias("window_start"))
        )
        batch = lit(batch_id).cast("bigint")
        rolled = roll_up(measured, closed, step_s).withColumn("batch", batch)
        # One file for each day, as there are few rows, without a limit to one core.
        tables.replace(rolled.repartition(1), name, "day", "batch")
        log.info("%s: %d windows in batch %d", name, len(starts_ms), batch_id)

    # A fast clock must not close the windows of other queries too early.
    latest = fn.current_timestamp() + expr(f"interval {lateness}")
    closed = (
        tables.read_stream(spark, rows.NAME, rows.COLUMNS)
        .where(col("first") & (col("measured_at") <= latest))
        .select("measured_at")
        .withWatermark("measured_at", lateness)
        .groupBy(fn.window("measured_at", f"{step_s} seconds"))
        .count()
        .select(col("window.start").alias("window_start"))
    )
    return (
        closed.writeStream.outputMode("append")
        .option("checkpointLocation", tables.checkpoint(name))
        .queryName(f"{rows.INGEST}-{name}")
        .foreachBatch(write)
    )


class WorstPartition(Struct, frozen=True):
    """A partition at its highest lag."""

    source: int
    topic: str
    partition: int
    max_lag: int
    """Records."""
    max_time_lag_s: float | None = None


class RolledWindow(Struct, frozen=True, kw_only=True):
    """One query in one window of time. Unknown values are None."""

    cluster: str
    query_id: str
    query: str | None = None
    start_ms: int
    """Epoch milliseconds."""
    known_s: float
    """Seconds with a known lag."""
    within_target_s: float
    """Seconds of `known_s` within target."""
    lag: tuple[float, float, float, float] | None = None
    """p50, p95, p99 and maximum of the total lag in records, weighted by time."""
    time_lag_s: tuple[float, float, float, float] | None = None
    """The same figures of the time lag, seconds."""
    produced: int | None = None
    processed: int | None = None
    input_rate: float | None = None
    """95th percentile, records a second."""
    batch_rate: float | None = None
    worst: tuple[WorstPartition, ...] = ()


_decoder: Final = msgspec.json.Decoder(RolledWindow)


def read_windows(
    spark: SparkSession, tables: Tables, name: str, since_ms: int, until_ms: int, query: str | None
) -> list[RolledWindow]:
    """Rows of the roll-up `name` whose windows begin in [since, until), of every query or of the
    query with that name or id. Raises TableMissing."""
    rows = _between(tables.read(spark, name, TABLE_COLUMNS), "window_start", since_ms, until_ms)
    if query is not None:
        rows = rows.where((col("query") == query) | (col("query_id") == query))
    # JSON: Python is many times slower with nested Spark rows.
    return [_decoder.decode(row[0]) for row in _as_json(rows).collect()]


def _as_json(rows: DataFrame) -> DataFrame:
    """JSON documents of RolledWindow. Spark omits nulls."""
    marks = ("p50", "p95", "p99", "max")
    lag = [col(f"total_lag_{mark}") for mark in marks]
    time_lag_s = [col(f"max_time_lag_{mark}_s") for mark in marks]
    named = rows.select(
        "cluster",
        "query_id",
        "query",
        fn.unix_millis("window_start").alias("start_ms"),
        "known_s",
        "within_target_s",
        fn.when(lag[-1].isNotNull(), fn.array(*lag)).alias("lag"),
        fn.when(time_lag_s[-1].isNotNull(), fn.array(*time_lag_s)).alias("time_lag_s"),
        "produced",
        "processed",
        col("input_rate_p95").alias("input_rate"),
        col("batch_rate_p95").alias("batch_rate"),
        col("worst_partitions").alias("worst"),
    )
    return named.select(fn.to_json(fn.struct("*")))
