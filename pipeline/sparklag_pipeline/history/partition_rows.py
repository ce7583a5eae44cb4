"""Events as rows of the table `partitions`: one for each partition of each source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, expr, lit, posexplode_outer, to_date, when

from sparklag_pipeline.history.targets import within_target
from sparklag_pipeline.history.wire_schema import PARTITION_FIELDS
from sparklag_schemas.settings import Thresholds

NAME: Final = "partitions"

SCHEMA: Final = (
    "event_id string, measured_at timestamp, cluster string, query_id string, query string,"
    " run_id string, batch_id bigint, event_status string, total_lag bigint,"
    " max_time_lag_s double, input_rate double, processed_rate double, batch_rate double,"
    " within_target boolean, first boolean, source int, topic string, partition int,"
    " processed_offset bigint, latest_offset bigint, earliest_offset bigint, lag bigint,"
    " time_lag_s double, time_lag_method string, status string, lost_records bigint, day date"
)
"""Of the table; it is partitioned by `day`, the UTC date of `measured_at`."""

_OF_EVENT: Final = (
    "event_id",
    "query_id",
    "query",
    "run_id",
    "batch_id",
    "total_lag",
    "max_time_lag_s",
    "input_rate",
    "processed_rate",
    "batch_rate",
)
_OF_WHOLE_EVENT: Final = {
    "run_id",
    "batch_id",
    "event_status",
    "total_lag",
    "max_time_lag_s",
    "input_rate",
    "processed_rate",
    "batch_rate",
    "within_target",
}


def partition_rows(events: DataFrame, thresholds: Mapping[str, Thresholds]) -> DataFrame:
    """Rows of `SCHEMA` of those events (see `events.events`) that can be read.

    An event without topics or partitions has one row. Exactly one row of each event is `first`; it
    alone has what is said of the whole event, so that this is kept, and counts, once.
    """
    measured_at = expr("timestamp_millis(event.measured_at)")
    flat = events.where(col("unreadable").isNull()).select(
        *(col(f"event.{name}").alias(name) for name in _OF_EVENT),
        # The default of the message where it says none.
        coalesce("event.cluster", lit("default")).alias("cluster"),
        measured_at.alias("measured_at"),
        to_date(measured_at).alias("day"),
        col("event.status").alias("event_status"),
        within_target(
            thresholds,
            query=col("event.query"),
            query_id=col("event.query_id"),
            status=col("event.status"),
            total_lag=col("event.total_lag"),
            max_time_lag_s=col("event.max_time_lag_s"),
        ).alias("within_target"),
        col("event.topics").alias("topics"),
    )
    by_topic = flat.select("*", posexplode_outer("topics").alias("topic_at", "of_topic"))
    by_partition = by_topic.drop("topics").select(
        "*", posexplode_outer("of_topic.partitions").alias("partition_at", "of_partition")
    )
    rows = by_partition.select(
        "*",
        (_is_zero("topic_at") & _is_zero("partition_at")).alias("first"),
        col("of_topic.source").alias("source"),
        col("of_topic.topic").alias("topic"),
        *(col(f"of_partition.{name}").alias(name) for name in PARTITION_FIELDS),
    )
    return rows.select(*(_once(part.split()[0]) for part in SCHEMA.split(", ")))


def _once(name: str) -> Column:
    """In an event's first row alone, where it is said of the whole event."""
    return when(col("first"), col(name)).alias(name) if name in _OF_WHOLE_EVENT else col(name)


def _is_zero(position: str) -> Column:
    return coalesce(col(position), lit(0)) == 0
