"""Windows of a query's history, and its outlook."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Final, Literal

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, expr, struct, to_date, to_json, unix_millis, when

from sparklag_jobs.history import rollups
from sparklag_jobs.history.tables import Tables


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


Direction = Literal["rising", "falling", "steady"]
HOUR_MS: Final = 3_600_000
MIN_POINTS: Final = 8
"""With fewer, the test's normal approximation is far off."""
MAX_POINTS: Final = 1_000
"""All pairs are compared; of more points, evenly spaced ones are taken."""
SIGNIFICANCE: Final = 0.05
FARTHEST_DAYS: Final = 365
"""A later date is more than such a line can tell."""
_ALWAYS_BUSY_SHARE: Final = 0.03


class Trend(Struct, frozen=True, rename={"slope": "records_per_hour"}):
    """Of a series: its direction and slope, and the test's tau and p (two-sided)."""

    direction: Direction
    slope: float
    tau: float
    p_value: float


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Of (x, y) in rising x; None where there are too few points."""
    if len(points) < MIN_POINTS:
        return None
    if len(points) > MAX_POINTS:
        step = len(points) / MAX_POINTS
        points = [points[int(number * step)] for number in range(MAX_POINTS)]
    slopes, balance = [], 0
    for index, (x, y) in enumerate(points):
        for later_x, later_y in points[index + 1 :]:
            if later_x > x:
                slopes.append((later_y - y) / (later_x - x))
                balance += (later_y > y) - (later_y < y)
    if not slopes:
        return None
    slope = median(slopes)
    p_value = _p_value(balance, [y for _, y in points])
    direction: Direction = "steady"
    if p_value < SIGNIFICANCE and slope != 0:
        direction = "rising" if slope > 0 else "falling"
    return Trend(direction, slope, balance / len(slopes), p_value)


def _p_value(balance: int, values: Sequence[float]) -> float:
    n = len(values)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0:
        return 1.0
    # The continuity correction: the balance is an integer.
    z = max(abs(balance) - 1, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


class Capacity(Struct, frozen=True, rename={"passed_at_ms": "passed_at"}):
    """Rates in records a second. `reason` is why `passed_at_ms` is None."""

    peak_input_rate: float | None = None
    """Highest hourly 95th percentile of the input."""
    batch_rate: float | None = None
    """What the query can do: the median of the hours' `batch_rate`."""
    utilisation: float | None = None
    """The peak by the batch rate."""
    passed_at_ms: int | None = None
    """When the input is expected to exceed the batch rate, epoch milliseconds."""
    reason: str | None = None


def capacity(hours: Sequence[RolledWindow]) -> Capacity:
    """Of one query's hours, in order. Each hour is a point of the trend, by day and by night."""
    inputs = [(hour.start_ms, hour.input_rate) for hour in hours if hour.input_rate is not None]
    batch_rates = [hour.batch_rate for hour in hours if hour.batch_rate is not None]
    if not inputs:
        return Capacity(reason="no whole hour in which the input rate was known")
    peak = max(rate for _, rate in inputs)
    if not batch_rates or median(batch_rates) <= 0:
        return Capacity(peak, reason="the capacity is unknown: no batch rate")
    # Without pauses between batches, their rate is that of the input, however much more the query
    # could do.
    ratios = [
        hour.batch_rate / hour.input_rate
        for hour in hours
        if hour.batch_rate is not None and hour.input_rate
    ]
    if ratios and abs(median(ratios) - 1) <= _ALWAYS_BUSY_SHARE:
        return Capacity(
            peak,
            reason="its batches run back to back and process the whole input: its capacity"
            " beyond that is unknown",
        )
    batch_rate = median(batch_rates)
    return Capacity(peak, batch_rate, peak / batch_rate, *_passed_at(inputs, batch_rate))


def _passed_at(
    inputs: Sequence[tuple[int, float]], batch_rate: float
) -> tuple[int | None, str | None]:
    end_ms = inputs[-1][0] + HOUR_MS
    points = [((at_ms - end_ms) / HOUR_MS, rate) for at_ms, rate in inputs]
    line = trend(points)
    if line is None:
        return None, f"{len(inputs)} hours are known, {MIN_POINTS} are needed"
    rate_at_end = median(rate - line.slope * x for x, rate in points)
    if rate_at_end >= batch_rate:
        return end_ms, None
    if line.direction != "rising":
        return None, f"the input rate is {line.direction}"
    hours = (batch_rate - rate_at_end) / line.slope
    if hours > FARTHEST_DAYS * 24:
        return None, f"not within {FARTHEST_DAYS} days at this slope"
    return end_ms + round(hours * HOUR_MS), None
