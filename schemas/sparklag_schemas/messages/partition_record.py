"""The partition record: one partition of a lag event, flat, for tables and stream processors.

The value on `consumer-lag-partitions`, where `partition_records` asks for that topic.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from sparklag_schemas.messages.bounds import EpochMs, Index, Name, TopicName
from sparklag_schemas.messages.enumerations import SCHEMA_VERSION, OpenStatus
from sparklag_schemas.messages.lag_event import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.messages.query_message import BatchId, ProcessedAt, SchemaVersion


class PartitionRecord(PartitionLag, frozen=True, kw_only=True, gc=False):
    """The lag of one partition, as one source of one query reads it, at one time.

    Its key is `query_id/source/topic/partition`. A newer record of a key replaces the older; one
    without a value is a tombstone: the partition, or the query, is gone.
    """

    event_id: Annotated[
        Name, Meta(description="Of the lag event it is part of, for joining with `consumer-lag`.")
    ]
    query_id: Annotated[Name, Meta(description="Spark's query id, or that of a consumer group.")]
    source: Annotated[Index, Meta(description="Index of the source in the query.")]
    topic: Annotated[TopicName, Meta(description="Topic name.")]
    observed_at: Annotated[
        EpochMs, Meta(description="When the query was last seen, epoch milliseconds.")
    ]
    measured_at: Annotated[
        EpochMs, Meta(description="When `latest_offset` was read, epoch milliseconds.")
    ]
    query_status: Annotated[OpenStatus, Meta(description="State of the query.")]
    schema_version: SchemaVersion = SCHEMA_VERSION
    query: Annotated[Name | None, Meta(description="The query's name. Null where it has none.")] = (
        None
    )
    run_id: Annotated[Name | None, Meta(description="Spark's run id. Null: not known.")] = None
    batch_id: BatchId = None
    processed_at: ProcessedAt = None
    cluster: Annotated[
        Name | None, Meta(description="Alias of the topic's Kafka cluster. Null: not configured.")
    ] = "default"


_OWN = set(PartitionRecord.__struct_fields__) - set(PartitionLag.__struct_fields__)
_OF_TOPIC = _OWN & set(TopicLag.__struct_fields__)
_OF_EVENT = _OWN & set(LagEvent.__struct_fields__) - _OF_TOPIC


def partition_record(event: LagEvent, topic: TopicLag, partition: PartitionLag) -> PartitionRecord:
    """The record of one partition of a lag event: what the two share by name is copied."""
    return PartitionRecord(
        **{
            **asdict(partition),
            **{name: getattr(topic, name) for name in _OF_TOPIC},
            **{name: getattr(event, name) for name in _OF_EVENT},
            "measured_at": partition.measured_at or event.measured_at,
            "query_status": event.status,
        }
    )


def partition_key(query_id: str, source: int, topic: str, partition: int) -> str:
    """The key of a partition's records."""
    return f"{query_id}/{source}/{topic}/{partition}"
