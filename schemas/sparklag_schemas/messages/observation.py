"""The observation: the position of a query. One message on `processed-offsets`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sparklag_schemas.messages.bounds import Index, Name, PartitionNumber, Text, TopicName
from sparklag_schemas.messages.enumerations import IsolationLevel, Offsets, OpenCause
from sparklag_schemas.messages.query_message import QueryMessage


class SourcePosition(Struct, frozen=True, kw_only=True):
    """How far a query has read one of its Kafka sources."""

    source: Annotated[
        Index,
        Meta(description="Index of the source in the query, as Spark numbers them."),
    ]
    processed: Annotated[
        Offsets | None,
        Meta(
            description="Topic, partition, next offset to read (exclusive end of the last completed"
            " batch). Null: not known yet."
        ),
    ] = None
    began: Annotated[
        Offsets | None,
        Meta(
            description="Where that batch began (inclusive), in the same shape; cause `progress`"
            " only. Null: the query's first, or not known."
        ),
    ] = None
    planned: Annotated[
        Offsets | None,
        Meta(description="Exclusive end of the batch now running, in the same shape, where known."),
    ] = None
    topics: Annotated[
        list[TopicName] | None,
        Meta(description="Topics the source names (`subscribe` or `assign`). Null with a pattern."),
    ] = None
    assigned: Annotated[
        dict[TopicName, list[PartitionNumber]] | None,
        Meta(
            description="Topic, then partitions, where the source names them (`assign`). Null: it"
            " reads all, those added later too."
        ),
    ] = None
    topic_pattern: Annotated[
        Text | None,
        Meta(description="The pattern of `subscribePattern`, as Java's regular expressions."),
    ] = None
    bootstrap_servers: Annotated[
        Text | None,
        Meta(description="`kafka.bootstrap.servers` of the source, as the query was given it."),
    ] = None
    isolation_level: Annotated[
        IsolationLevel,
        Meta(description="`read_committed` sources are measured to the last stable offset."),
    ] = "read_uncommitted"


class Observation(QueryMessage, frozen=True, kw_only=True):
    """The position of one query at one time. It is complete: it needs no earlier message.

    `sources` holds the Kafka sources only. An observation with cause `idle`, `refresh` or
    `terminated` repeats the last known position, so the newest one of a query is enough.
    `batch` comes with cause `progress` only.
    """

    observation_id: Annotated[Name, Meta(description="Unique, for deduplication. Also `ce_id`.")]
    cause: Annotated[OpenCause, Meta(description="Why this observation was made.")]
    sources: Annotated[list[SourcePosition], Meta(description="The query's Kafka sources.")]
