"""The observation: the position of a query. One message on `processed-offsets`."""

from __future__ import annotations

from msgspec import Struct

from sparklag_schemas.messages.bounds import Index, Name, PartitionNumber, Text, TopicName
from sparklag_schemas.messages.enumerations import IsolationLevel, Offsets, OpenCause
from sparklag_schemas.messages.query_message import QueryMessage


class SourcePosition(Struct, frozen=True, kw_only=True):
    """How far a query has read one of its Kafka sources."""

    source: Index
    """Index of the source in the query, as Spark numbers them."""
    processed: Offsets | None = None
    """Topic, partition, next offset to read (exclusive end of the last completed batch). Null: not
    known yet."""
    began: Offsets | None = None
    """The begin of that batch (inclusive), in the same shape; cause `progress` only. Null: the
    query's first, or not known."""
    planned: Offsets | None = None
    """Exclusive end of the batch now running, in the same shape, where known."""
    topics: list[TopicName] | None = None
    """Topics the source names (`subscribe` or `assign`). Null with a pattern."""
    assigned: dict[TopicName, list[PartitionNumber]] | None = None
    """Topic, then partitions, where the source names them (`assign`). Null: it reads all, those
    added later too."""
    topic_pattern: Text | None = None
    """The pattern of `subscribePattern`, as Java's regular expressions."""
    bootstrap_servers: Text | None = None
    """`kafka.bootstrap.servers` of the source, as the query was given it."""
    isolation_level: IsolationLevel = "read_uncommitted"
    """`read_committed` sources are measured to the last stable offset."""


class Observation(QueryMessage, frozen=True, kw_only=True):
    """The position of one query at one time. It is complete: it needs no earlier message.

    `sources` holds the Kafka sources only. An observation with cause `idle`, `refresh` or
    `terminated` repeats the last known position, so the newest one of a query is enough.
    `batch` comes with cause `progress` only.
    """

    observation_id: Name
    """Unique, for deduplication. Also `ce_id`."""
    cause: OpenCause
    """Why this observation was made."""
    sources: list[SourcePosition]
    """The query's Kafka sources."""
