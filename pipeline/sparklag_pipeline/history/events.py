"""The values of `consumer-lag` as events. The one place that knows how they are written."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import (
    coalesce,
    col,
    concat,
    expr,
    from_json,
    length,
    lit,
    raise_error,
    when,
)

from sparklag_pipeline.history.avro_ids import ASK, NO_AVRO, AvroIds
from sparklag_pipeline.history.wire_schema import CORRUPT, avro_schema, event_schema
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.enumerations import SCHEMA_VERSION

_MAJOR: Final = int(SCHEMA_VERSION.split(".")[0])
_YEAR_10000_MS: Final = 253_402_300_800_000
_EVENT: Final = f"struct<{event_schema()}>"


def events(kafka_rows: DataFrame, avro: AvroIds = NO_AVRO) -> DataFrame:
    """Rows of Kafka's source as events: `topic`, `partition`, `offset`, `event`, `unreadable`.

    `event` is a struct of `wire_schema`, and counts only where `unreadable` is null; that says
    why a value cannot be read. A tombstone is no event, and has no row. The query fails with `ASK`
    and the id where a value is in a schema that `avro` does not know and could ask for.
    """
    parsed = kafka_rows.where(col("value").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        _is_framed().alias("is_framed"),
        _schema_id().alias("schema_id"),
        (length("value") > MAX_MESSAGE_BYTES).alias("is_too_large"),
        _event(avro).alias("event"),
    )
    return parsed.select(
        "topic", "partition", "offset", "event", _unreadable(avro).alias("unreadable")
    )


def _is_framed() -> Column:
    """Whether it is a schema registry's frame: 0, the schema's id in four bytes, the message."""
    return expr("substring(value, 1, 1) = X'00'")


def _schema_id() -> Column:
    """Null where it is not framed, or cut off in its frame."""
    return expr(
        "if(substring(value, 1, 1) = X'00' AND length(value) >= 5,"
        " cast(conv(hex(substring(value, 2, 4)), 16, 10) AS bigint), null)"
    )


def _event(avro: AvroIds) -> Column:
    json = from_json(
        col("value").cast("string"), event_schema(), {"columnNameOfCorruptRecord": CORRUPT}
    )
    nothing = lit(None).cast(_EVENT)
    # A chain of `when` cannot begin with none.
    found = when(lit(False), nothing)
    reader = {"avroSchema": avro_schema(), "mode": "PERMISSIVE"}
    for schema_id, writer in avro.schemas.items():
        read = from_avro(expr("substring(value, 6)"), writer, reader)
        found = found.when(_is_framed() & (_schema_id() == schema_id), read.cast(_EVENT))
    if avro.has_registry:
        known = [*avro.schemas, *avro.refused]
        asks = raise_error(concat(lit(ASK), _schema_id().cast("string")))
        found = found.when(_is_framed() & ~_schema_id().isin(known), asks.cast(_EVENT))
    return found.when(_is_framed(), nothing).otherwise(json)


def _unreadable(avro: AvroIds) -> Column:
    version = col("event.schema_version")
    major = expr("try_cast(substring_index(event.schema_version, '.', 1) as int)")
    measured_at = col("event.measured_at")
    reasons = (
        (col("is_too_large"), lit(f"larger than {MAX_MESSAGE_BYTES} bytes")),
        *((col("schema_id") == one, lit(reason)) for one, reason in avro.refused.items()),
        (
            lit(not avro.has_registry) & col("is_framed"),
            lit("it is in Avro, and no registry.url is set"),
        ),
        (col("is_framed") & col("event.event_id").isNull(), lit("not Avro of its schema")),
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
