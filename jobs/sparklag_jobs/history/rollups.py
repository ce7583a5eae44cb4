"""Rows of `partitions` rolled up into windows of time. No I/O, no clock."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr, to_date

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
    max(lag) AS max_lag,
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
    rows = partitions.sparkSession.sql(
        _ROLL_UP,
        partitions=partitions,
        windows=windows,
        step_ms=step_s * 1000,
        hold_ms=HOLD_S * 1000,
        worst=WORST,
    )
    return rows.select(*COLUMNS)
