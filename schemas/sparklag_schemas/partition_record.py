"""The partition record: one partition of a lag event, flat, for tables and stream processors.

The value on `consumer-lag-partitions`, where `partition_records` asks for that topic.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sparklag_schemas.bounds import Count, EpochMs, Index, Name, TopicName
from sparklag_schemas.enumerations import SCHEMA_VERSION, OpenStatus
from sparklag_schemas.lag_event import PartitionLag


class PartitionRecord(PartitionLag, frozen=True, kw_only=True, gc=False):
    """The lag of one partition, as one source of one query reads it, at one moment.

    Its key is `query_id/source/topic/partition`. A newer record of a key replaces the older; one
    without a value says that there is no such partition, or query, any more.
    """

    event_id: Annotated[
        Name, Meta(description="Of the lag event it is part of, for joining with `consumer-lag`.")
    ]
    query_id: Annotated[Name, Meta(description="Spark's query id, or that of a consumer group.")]
    source: Annotated[Index, Meta(description="Index of the source in the query.")]
    topic: Annotated[TopicName, Meta(description="Topic name.")]
    observed_at: Annotated[
        EpochMs, Meta(description="When the query was last heard of, epoch milliseconds.")
    ]
    measured_at: Annotated[
        EpochMs, Meta(description="When `latest_offset` was read, epoch milliseconds.")
    ]
    query_status: Annotated[OpenStatus, Meta(description="State of the query.")]
    schema_version: Annotated[
        str,
        Meta(description="Version of this document, `major.minor`.", pattern=r"^[0-9]+\.[0-9]+$"),
    ] = SCHEMA_VERSION
    query: Annotated[Name | None, Meta(description="The query's name. Null where it has none.")] = (
        None
    )
    run_id: Annotated[Name | None, Meta(description="Spark's run id. Null: not known.")] = None
    batch_id: Annotated[
        Count | None, Meta(description="The last completed batch. Null before the first.")
    ] = None
    processed_at: Annotated[
        EpochMs | None,
        Meta(description="When that batch completed, epoch milliseconds. Null before the first."),
    ] = None
    cluster: Annotated[
        Name | None, Meta(description="Alias of the topic's Kafka cluster. Null: not configured.")
    ] = "default"


def partition_key(query_id: str, source: int, topic: str, partition: int) -> str:
    """The key of a partition's records."""
    return f"{query_id}/{source}/{topic}/{partition}"
