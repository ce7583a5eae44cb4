"""The history's columns against the messages' types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklag_jobs.history import partition_rows
from sparklag_jobs.history.tables import (
    EVENT_FIELDS,
    PARTITION_FIELDS,
    TOPIC_FIELDS,
    avro_schema,
    spark_type,
)
from sparklag_schemas.messages.observation import Batch

TABLE = (
    "event_id string, measured_at timestamp, cluster string, query_id string, query string,"
    " run_id string, batch_id bigint, event_status string, total_lag bigint,"
    " max_time_lag_s double, input_rate double, processed_rate double, batch_rate double,"
    " within_target boolean, first boolean, source int, topic string, partition int,"
    " processed_offset bigint, latest_offset bigint, earliest_offset bigint, lag bigint,"
    " readable_lag bigint,"
    " time_lag_s double, time_lag_method string, status string, lost_records bigint, day date"
)


def test_the_table_has_these_columns_of_the_fields_of_today() -> None:
    columns = dict(column.split() for column in TABLE.split(", "))
    assert columns == partition_rows.COLUMNS


def test_a_field_of_any_type_can_arrive() -> None:
    with pytest.raises(TypeError, match="has no Spark type"):
        spark_type(complex)
    assert spark_type(Batch | None) == (
        "struct<started_at: bigint, rows: bigint, duration_ms: bigint,"
        " phases_ms: map<string, bigint>, rate_limited: boolean, state_rows: bigint,"
        " state_memory_bytes: bigint, watermark_at: bigint, max_event_time_at: bigint>"
    )


def test_avro_is_read_into_the_same_fields_in_the_same_order() -> None:
    # Spark casts one struct to the other by position.
    records: dict[str, list[str]] = {}

    def collect(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                collect(item)
        elif isinstance(node, dict):
            if node.get("type") == "record":
                records[node["name"]] = [field["name"] for field in node["fields"]]
            for item in node.values():
                collect(item)

    collect(json.loads(avro_schema()))
    assert records == {
        "LagEvent": [*EVENT_FIELDS, "_corrupt"],
        "TopicLag": [*TOPIC_FIELDS],
        "PartitionLag": [*PARTITION_FIELDS],
    }
