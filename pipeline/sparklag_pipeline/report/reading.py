"""The roll-ups' rows of a time, read with Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import array, col, expr, to_date, unix_millis

from sparklag_pipeline.history import rollups
from sparklag_pipeline.history.tables import Tables
from sparklag_pipeline.report.windows import RolledWindow, WorstPartition


def read_windows(
    spark: SparkSession,
    kept: Tables,
    name: str,
    *,
    since_ms: int,
    until_ms: int,
    query: str | None = None,
) -> list[RolledWindow]:
    """Rows of roll-up `name` whose windows begin in [since, until), of every query or of that name
    or id. Raises TableMissing."""
    rows = kept.read(spark, name, rollups.TABLE_SCHEMA)
    first, end = expr(f"timestamp_millis({since_ms})"), expr(f"timestamp_millis({until_ms})")
    start, day = col("window_start"), col("day")
    rows = rows.where((start >= first) & (start < end))
    rows = rows.where((day >= to_date(first)) & (day <= to_date(end)))
    if query is not None:
        rows = rows.where((col("query") == query) | (col("query_id") == query))
    return [_window(row) for row in _chosen(rows).collect()]


def _chosen(rows: DataFrame) -> DataFrame:
    return rows.select(
        "cluster",
        "query_id",
        "query",
        unix_millis("window_start").alias("start_ms"),
        "known_s",
        "within_target_s",
        array(*(f"total_lag_{mark}" for mark in ("p50", "p95", "p99", "max"))).alias("lag"),
        array(*(f"max_time_lag_{mark}_s" for mark in ("p50", "p95", "p99", "max"))).alias("age_s"),
        "produced",
        "processed",
        "input_rate_p95",
        "batch_rate_p95",
        "worst_partitions",
    )


def _window(row: Row) -> RolledWindow:
    return RolledWindow(
        cluster=row.cluster,
        query_id=row.query_id,
        query=row.query,
        start_ms=row.start_ms,
        known_s=row.known_s,
        within_target_s=row.within_target_s,
        lag=None if row.lag[-1] is None else tuple(row.lag),
        time_lag_s=None if row.age_s[-1] is None else tuple(row.age_s),
        produced=row.produced,
        processed=row.processed,
        input_rate=row.input_rate_p95,
        batch_rate=row.batch_rate_p95,
        worst=tuple(
            WorstPartition(one.source, one.topic, one.partition, one.max_lag, one.max_time_lag_s)
            for one in row.worst_partitions or ()
        ),
    )
