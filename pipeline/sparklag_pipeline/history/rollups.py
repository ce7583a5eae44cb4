"""Rows of `partitions` rolled up into windows of time. No I/O, no clock."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.functions import (
    array,
    coalesce,
    col,
    collect_list,
    count_distinct,
    explode,
    expr,
    greatest,
    last,
    lead,
    least,
    lit,
    map_from_entries,
    max_by,
    percentile,
    sequence,
    slice,
    sort_array,
    struct,
    to_date,
    unix_millis,
    when,
)
from pyspark.sql.functions import max as highest
from pyspark.sql.functions import sum as total

MINUTES: Final = "minutes"
HOURS: Final = "hours"
STEPS_S: Final = {MINUTES: 60, HOURS: 3_600}
"""The tables, and how long a window of each is."""

HOLD_S: Final = 30
"""An event holds until the query's next one, but no longer than this: three heartbeats."""

LOOK_BACK_S: Final = 3_600
"""Offsets are compared with those of an earlier event that is no older than this."""

WORST: Final = 5
"""Partitions that a row lists."""

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
"""Of a roll-up."""

TABLE_COLUMNS: Final = {**COLUMNS, "batch": "bigint"}
"""Of the tables: `batch` is the batch that has written a row."""

_QUERY: Final = ("cluster", "query_id")
_PARTITION: Final = ("source", "topic", "partition")
_MARKS: Final = (0.5, 0.95, 0.99)


def read_for(partitions: DataFrame, from_ms: int, until_ms: int) -> DataFrame:
    """The rows that a roll-up of the windows in [from, until) needs; epoch milliseconds.

    They are selected by day too, so that the folders of other days are not read.
    """
    from_ms -= LOOK_BACK_S * 1000
    at, day = col("measured_at"), col("day")
    first, end = expr(f"timestamp_millis({from_ms})"), expr(f"timestamp_millis({until_ms})")
    return partitions.where((at >= first) & (at < end)).where(
        (day >= to_date(first)) & (day <= to_date(end))
    )


def roll_up(partitions: DataFrame, windows: DataFrame, step_s: int) -> DataFrame:
    """Rows of `COLUMNS`: for each query and each of the windows (`window_start`) in which it has
    an event.

    `partitions` has the windows' rows and those before them (see `read_for`). Shares and
    percentiles are weighted by time: an event holds until the query's next, at most `HOLD_S`, and
    where it goes past a window's edge it counts on both sides. Percentiles are exact.
    """
    starts = windows.select(unix_millis("window_start").alias("start_ms")).distinct()
    measured = partitions.withColumn("at_ms", unix_millis("measured_at"))
    of_events = _of_events(_held(measured, step_s).join(starts, "start_ms"))
    of_partitions = _of_partitions(_grown(measured, step_s).join(starts, "start_ms"))
    start = expr("timestamp_millis(start_ms)")
    rows = of_events.join(of_partitions, [*_QUERY, "start_ms"], "left").withColumns(
        {"window_start": start, "day": to_date(start)}
    )
    return rows.select(*COLUMNS)


def _held(measured: DataFrame, step_s: int) -> DataFrame:
    """Events, once for each window they reach into: `held_ms` is how long they do."""
    in_order = Window.partitionBy(*_QUERY).orderBy("at_ms", "event_id")
    step_ms = step_s * 1000
    events = measured.where("first").withColumn(
        "until_ms",
        least(lead("at_ms").over(in_order), col("at_ms") + HOLD_S * 1000),
    )
    first = _start(col("at_ms"), step_ms)
    # An event with a successor at the same time holds for no time, and is counted all the same.
    last_reached = greatest(first, _start(col("until_ms") - 1, step_ms))
    split = events.select(
        *_QUERY,
        "query",
        "event_id",
        "at_ms",
        "until_ms",
        "event_status",
        "total_lag",
        "max_time_lag_s",
        "within_target",
        "input_rate",
        "batch_rate",
        explode(sequence(first, last_reached, lit(step_ms).cast("bigint"))).alias("start_ms"),
    )
    held_ms = least("until_ms", col("start_ms") + step_ms) - greatest("at_ms", "start_ms")
    return split.withColumn("held_ms", greatest(held_ms, lit(0).cast("bigint")))


def _of_events(held: DataFrame) -> DataFrame:
    key = (*_QUERY, "start_ms")
    is_known = col("total_lag").isNotNull()
    marks = array(*(lit(mark) for mark in _MARKS))
    holds = col("held_ms") > 0
    rows = held.groupBy(*key).agg(
        max_by("query", "at_ms").alias("query"),
        count_distinct(when(col("at_ms") >= col("start_ms"), col("event_id"))).alias("events"),
        _seconds(is_known).alias("known_s"),
        _seconds(is_known & col("within_target")).alias("within_target_s"),
        percentile("total_lag", marks, col("held_ms")).alias("lags"),
        highest(when(holds, col("total_lag"))).alias("total_lag_max"),
        percentile("max_time_lag_s", marks, col("held_ms")).alias("ages"),
        highest(when(holds, col("max_time_lag_s"))).alias("max_time_lag_max_s"),
        percentile("input_rate", lit(0.95), col("held_ms")).alias("input_rate_p95"),
        percentile("batch_rate", lit(0.95), col("held_ms")).alias("batch_rate_p95"),
    )
    named = {f"total_lag_p{round(mark * 100)}": col("lags")[at] for at, mark in enumerate(_MARKS)}
    named |= {
        f"max_time_lag_p{round(mark * 100)}_s": col("ages")[at] for at, mark in enumerate(_MARKS)
    }
    by_status = (
        held.groupBy(*key, "event_status")
        .agg(_seconds(lit(True)).alias("seconds"))
        .where("event_status is not null and seconds > 0")
        .groupBy(*key)
        .agg(map_from_entries(collect_list(struct("event_status", "seconds"))).alias("status_s"))
    )
    return rows.withColumns(named).join(by_status, [*key], "left")


def _grown(measured: DataFrame, step_s: int) -> DataFrame:
    """Partitions' rows with the records produced and processed since the last known offsets."""
    in_order = (
        Window.partitionBy(*_QUERY, *_PARTITION)
        .orderBy("at_ms", "event_id")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    before = measured.where(col("partition").isNotNull()).select(
        *_QUERY,
        *_PARTITION,
        "at_ms",
        "lag",
        "time_lag_s",
        "latest_offset",
        "processed_offset",
        last("latest_offset", ignorenulls=True).over(in_order).alias("latest_before"),
        last("processed_offset", ignorenulls=True).over(in_order).alias("processed_before"),
    )
    latest, processed = col("latest_offset"), col("processed_offset")
    produced = latest - col("latest_before")
    done = processed - col("processed_before")
    return before.select(
        *_QUERY,
        *_PARTITION,
        _start(col("at_ms"), step_s * 1000).alias("start_ms"),
        "lag",
        "time_lag_s",
        # A log that ends earlier than before is a new one, and began at 0.
        when(produced < 0, latest).otherwise(produced).alias("produced"),
        # A query that went back has not processed anything by that.
        greatest(done, when(done.isNotNull(), lit(0).cast("bigint"))).alias("processed"),
    )


def _of_partitions(grown: DataFrame) -> DataFrame:
    key = (*_QUERY, "start_ms")
    by_partition = grown.groupBy(*key, *_PARTITION).agg(
        highest("lag").alias("max_lag"),
        highest("time_lag_s").alias("max_time_lag_s"),
        total("produced").alias("produced"),
        total("processed").alias("processed"),
    )
    worst = struct("max_lag", "max_time_lag_s", *_PARTITION)
    rows = by_partition.groupBy(*key).agg(
        total("produced").alias("produced"),
        total("processed").alias("processed"),
        collect_list(when(col("max_lag") > 0, worst)).alias("lagging"),
    )
    fields = ", ".join(
        f"'{name}', each.{name}" for name in (*_PARTITION, "max_lag", "max_time_lag_s")
    )
    return rows.withColumn("worst", slice(sort_array("lagging", asc=False), 1, WORST)).withColumn(
        "worst_partitions", expr(f"transform(worst, each -> named_struct({fields}))")
    )


def _seconds(condition: Column) -> Column:
    # Null is false: an unknown lag is not within target, and does not count as known.
    return total(when(coalesce(condition, lit(False)), col("held_ms")).otherwise(0)) / 1000.0


def _start(at_ms: Column, step_ms: int) -> Column:
    return at_ms - at_ms % step_ms
