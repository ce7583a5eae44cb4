"""The roll-ups' rows of a time, read with Spark."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, expr, struct, to_date, to_json, unix_millis, when

from sparklag_pipeline.history import rollups
from sparklag_pipeline.history.tables import Tables
from sparklag_pipeline.report.windows import RolledWindow

_decoder: Final = msgspec.json.Decoder(RolledWindow)


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
    # As text: from Spark's own rows, with rows in them, the same takes Python many times as long.
    return [_decoder.decode(row[0]) for row in _chosen(rows).collect()]


def _chosen(rows: DataFrame) -> DataFrame:
    """As RolledWindow has them, in JSON, which leaves out what is null."""
    marks = ("p50", "p95", "p99", "max")
    lag = [col(f"total_lag_{mark}") for mark in marks]
    time_lag_s = [col(f"max_time_lag_{mark}_s") for mark in marks]
    named = rows.select(
        "cluster",
        "query_id",
        "query",
        unix_millis("window_start").alias("start_ms"),
        "known_s",
        "within_target_s",
        when(lag[-1].isNotNull(), array(*lag)).alias("lag"),
        when(time_lag_s[-1].isNotNull(), array(*time_lag_s)).alias("time_lag_s"),
        "produced",
        "processed",
        col("input_rate_p95").alias("input_rate"),
        col("batch_rate_p95").alias("batch_rate"),
        col("worst_partitions").alias("worst"),
    )
    return named.select(to_json(struct("*")))
