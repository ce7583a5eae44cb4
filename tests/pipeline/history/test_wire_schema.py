"""The history's schema against the messages' types."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from sparklag_pipeline.history import partition_rows
from sparklag_pipeline.history.wire_schema import (
    EVENT_FIELDS,
    PARTITION_FIELDS,
    TOPIC_FIELDS,
    event_schema,
    spark_type,
)
from sparklag_schemas import LagEvent, PartitionLag, TopicLag


@pytest.mark.parametrize(
    ("message", "fields"),
    [(LagEvent, EVENT_FIELDS), (TopicLag, TOPIC_FIELDS), (PartitionLag, PARTITION_FIELDS)],
)
def test_every_field_that_is_kept_is_one_of_the_message(
    message: type, fields: tuple[str, ...]
) -> None:
    assert set(fields) <= set(get_type_hints(message))


def test_types_follow_from_the_messages() -> None:
    schema = event_schema()

    for column in (
        "query_id string",
        "batch_id bigint",
        "total_lag bigint",
        "max_time_lag_s double",
        "status string",
        "topics array<struct<source: int, topic: string, partitions: array<struct<partition: int,",
        "time_lag_method: string",
    ):
        assert column in schema
    with pytest.raises(TypeError, match="has no Spark type"):
        spark_type(dict[str, int])


def test_the_table_has_every_field_of_a_partition_that_is_read() -> None:
    columns = {part.split()[0] for part in partition_rows.SCHEMA.split(", ")}

    assert set(PARTITION_FIELDS) <= columns
    assert set(EVENT_FIELDS) - {"schema_version", "status"} <= columns
