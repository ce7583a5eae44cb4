"""Rows of the roll-ups, as the report reads them with Spark."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, expr, struct, to_date, to_json, unix_millis, when

from sparklag_pipeline.history import rollups
from sparklag_pipeline.history.tables import Tables


class WorstPartition(Struct, frozen=True):
    """A partition of a query at its worst."""

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
    """How long the lag was known."""
    within_target_s: float
    """How much of that it was within target."""
    lag: tuple[float, float, float, float] | None = None
    """p50, p95, p99 and maximum of the total lag, records, weighted by time."""
    time_lag_s: tuple[float, float, float, float] | None = None
    """The same of the age of the oldest unprocessed record, seconds."""
    produced: int | None = None
    processed: int | None = None
    input_rate: float | None = None
    """95th percentile, records a second."""
    batch_rate: float | None = None
    worst: tuple[WorstPartition, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Of the query."""
        return (self.cluster, self.query_id)


_decoder: Final = msgspec.json.Decoder(RolledWindow)


def read_windows(
    spark: SparkSession,
    tables: Tables,
    name: str,
    since_ms: int,
    until_ms: int,
    query: str | None,
) -> list[RolledWindow]:
    """Rows of roll-up `name` whose windows begin in [since, until), of every query or of that name
    or id. Raises TableMissing."""
    rows = tables.read(spark, name, rollups.TABLE_COLUMNS)
    first, end = expr(f"timestamp_millis({since_ms})"), expr(f"timestamp_millis({until_ms})")
    start, day = col("window_start"), col("day")
    rows = rows.where((start >= first) & (start < end))
    rows = rows.where((day >= to_date(first)) & (day <= to_date(end)))
    if query is not None:
        rows = rows.where((col("query") == query) | (col("query_id") == query))
    # As JSON: Python takes many times as long for nested Spark rows.
    return [_decoder.decode(row[0]) for row in _as_json(rows).collect()]


def _as_json(rows: DataFrame) -> DataFrame:
    """Documents of RolledWindow. Spark leaves out nulls."""
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
