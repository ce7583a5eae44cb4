"""The values of `consumer-lag` as events. The one place that knows how they are written."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, concat, expr, from_json, length, lit, when

from sparklag_pipeline.history.wire_schema import CORRUPT, event_schema
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.vocabulary import SCHEMA_VERSION

_MAJOR: Final = int(SCHEMA_VERSION.split(".")[0])
_YEAR_10000_MS: Final = 253_402_300_800_000


def events(kafka_rows: DataFrame) -> DataFrame:
    """Rows of Kafka's source as events: `topic`, `partition`, `offset`, `event`, `unreadable`.

    `event` is a struct of `wire_schema`, and counts only where `unreadable` is null; that says
    why a value cannot be read. A tombstone is no event, and has no row.
    """
    parsed = kafka_rows.where(col("value").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        # A schema registry's frame: 0, then the schema's id.
        (expr("substring(value, 1, 1) = X'00'")).alias("is_framed"),
        (length("value") > MAX_MESSAGE_BYTES).alias("is_too_large"),
        from_json(
            col("value").cast("string"), event_schema(), {"columnNameOfCorruptRecord": CORRUPT}
        ).alias("event"),
    )
    return parsed.select("topic", "partition", "offset", "event", _unreadable().alias("unreadable"))


def _unreadable() -> Column:
    version = col("event.schema_version")
    major = expr("try_cast(substring_index(event.schema_version, '.', 1) as int)")
    measured_at = col("event.measured_at")
    reasons = (
        (col("is_framed"), lit("a schema registry's frame: only JSON is read")),
        (col("is_too_large"), lit(f"larger than {MAX_MESSAGE_BYTES} bytes")),
        (
            major > _MAJOR,
            concat(
                lit("written in schema version "),
                version,
                lit(f", this reads {_MAJOR}.x: upgrade sparklag here"),
            ),
        ),
        (
            col("event").isNull() | col(f"event.{CORRUPT}").isNotNull(),
            lit("not the JSON of a lag event"),
        ),
        (col("event.query_id").isNull(), lit("no query_id")),
        (col("event.event_id").isNull(), lit("no event_id")),
        (measured_at.isNull(), lit("no measured_at")),
        (
            ~measured_at.between(0, _YEAR_10000_MS - 1),
            lit("measured_at is not epoch milliseconds"),
        ),
    )
    return coalesce(*(when(condition, reason) for condition, reason in reasons))
