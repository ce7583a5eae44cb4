"""The table `partitions`, with a row for each partition of each event, and its writing query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, expr, lit, posexplode_outer, to_date, when
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_jobs.errors import JobSettingWrong
from sparklag_jobs.history.events import NO_AVRO, WriterSchemas, count_unreadable, events
from sparklag_jobs.history.tables import EVENT_FIELDS, PARTITION_FIELDS, TOPIC_FIELDS, Tables
from sparklag_schemas.settings import Thresholds

NAME: Final = "partitions"

_TARGET_STATUSES: Final = ("OK", "FINISHED")

# Columns and their fields. A field name that partitions or topics also have gets a prefix.
_OF_TOPIC: Final = {
    f"topic_{name}" if name in PARTITION_FIELDS else name: name
    for name in TOPIC_FIELDS
    if name != "partitions"
}
_OF_EVENT: Final = {
    f"event_{name}" if name in PARTITION_FIELDS or name in _OF_TOPIC else name: name
    for name in EVENT_FIELDS
    if name not in ("schema_version", "topics")
}

_KEY: Final = {
    "event_id": "string",
    "measured_at": "timestamp",
    "cluster": "string",
    "query_id": "string",
    "query": "string",
}
"""Columns of the event, in each of its rows."""

_ONCE: Final = {
    **{column: EVENT_FIELDS[field] for column, field in _OF_EVENT.items() if column not in _KEY},
    "within_target": "boolean",
}
"""Columns of the event, only in its first row."""

COLUMNS: Final = {
    **_KEY,
    **_ONCE,
    "first": "boolean",
    **{column: TOPIC_FIELDS[field] for column, field in _OF_TOPIC.items()},
    **PARTITION_FIELDS,
    "day": "date",
}
"""Columns of the table, which is partitioned by `day`, the UTC date of `measured_at`."""


def partition_rows(lag_events: DataFrame, thresholds: Mapping[str, Thresholds]) -> DataFrame:
    """Rows of `COLUMNS`, from the readable events (see `events.events`).

    An event without topics or partitions has one row. Exactly one row of each event is `first`:
    only it has the figures of the whole event, so that they are stored and counted once.
    """
    measured_at = expr("timestamp_millis(event.measured_at)")
    flat = lag_events.where(col("unreadable").isNull()).select(
        *(col(f"event.{field}").alias(column) for column, field in _OF_EVENT.items()),
        to_date(measured_at).alias("day"),
        _within_target(thresholds).alias("within_target"),
        col("event.topics").alias("topics"),
    )
    flat = flat.withColumns(
        {
            "measured_at": expr("timestamp_millis(measured_at)"),
            # The default of the message, for JSON without this field.
            "cluster": coalesce("cluster", lit("default")),
        }
    )
    by_topic = flat.select("*", posexplode_outer("topics").alias("topic_at", "of_topic"))
    by_partition = by_topic.drop("topics").select(
        "*", posexplode_outer("of_topic.partitions").alias("partition_at", "of_partition")
    )
    rows = by_partition.select(
        "*",
        (_is_zero("topic_at") & _is_zero("partition_at")).alias("first"),
        *(col(f"of_topic.{field}").alias(column) for column, field in _OF_TOPIC.items()),
        *(col(f"of_partition.{field}").alias(field) for field in PARTITION_FIELDS),
    )
    return rows.select(
        *(when(col("first"), col(name)).alias(name) if name in _ONCE else name for name in COLUMNS)
    )


def _is_zero(position: str) -> Column:
    return coalesce(col(position), lit(0)) == 0


def _within_target(thresholds: Mapping[str, Thresholds]) -> Column:
    """True if the query was within its target; null if the lag that decides is unknown.

    As in `Settings.thresholds_of`, the first pattern that matches the whole name or id counts. Its
    `max_lag` and `max_time_lag_s` are the target. Without them, or without a match, the target is
    status OK or FINISHED.
    """
    # A chain of `when` needs a first condition.
    target = when(lit(False), lit(None).cast("boolean"))
    for pattern, limits in thresholds.items():
        whole = _whole(pattern)
        matches = col("event.query").rlike(whole) | col("event.query_id").rlike(whole)
        target = target.when(matches, _within(limits))
    return target.otherwise(_within(Thresholds()))


def _within(limits: Thresholds) -> Column:
    total_lag, max_time_lag_s = col("event.total_lag"), col("event.max_time_lag_s")
    if limits.max_lag is None and limits.max_time_lag_s is None:
        return when(total_lag.isNotNull(), col("event.status").isin(*_TARGET_STATUSES))
    within = lit(True)
    # In SQL "null and false" is false: one exceeded limit is enough.
    if limits.max_lag is not None:
        within = within & (total_lag <= limits.max_lag)
    if limits.max_time_lag_s is not None:
        within = within & (max_time_lag_s <= limits.max_time_lag_s)
    return within


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def check_patterns(spark: SparkSession, thresholds: Mapping[str, Thresholds]) -> None:
    """Raises JobSettingWrong for a pattern that Python accepts, but not Spark."""
    context: Any = spark.sparkContext
    for pattern in thresholds:
        try:
            context._jvm.java.util.regex.Pattern.compile(_whole(pattern))
        # Py4J raises this for Java's errors once a Spark session exists.
        except IllegalArgumentException as error:
            reason = str(error).partition("\n")[0]
            raise JobSettingWrong(
                f"thresholds.{pattern!r} is not a regular expression that Spark (Java) takes:"
                f" {reason}"
            ) from error


INGEST: Final = "lag-history"

# Kafka's default of 1 MiB holds some 70 wide events: a task would wait after each fetch.
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
        # The job must survive records that retention deleted while it was down.
        .option("failOnDataLoss", "false")
        .load()
    )
    new_rows = partition_rows(count_unreadable(events(kafka_rows, avro)), thresholds)
    # Kafka's source has a task, and so a file, for each partition of the topic.
    new_rows = new_rows.coalesce(spark.sparkContext.defaultParallelism)
    return tables.append(new_rows, NAME, "day").queryName(INGEST)
