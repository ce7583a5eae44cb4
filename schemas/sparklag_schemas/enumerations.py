"""The closed sets of words that both messages use."""

from __future__ import annotations

from typing import Final, Literal

from sparklag_schemas.bounds import Offset, PartitionNumber, TopicName

SCHEMA_VERSION: Final = "1.1"
"""`major.minor`. A reader takes every minor version of its own major version."""

Cause = Literal["started", "progress", "idle", "refresh", "terminated", "checkpoint", "group"]
"""Why a message was written. `refresh`: nothing happened, a clock did it: the driver's, to say that
the query still runs, or the service's, to measure again. `checkpoint`, `group`: there it moved."""

Status = Literal[
    "OK",
    "WARN",
    "STALL",
    "STOP",
    "REWIND",
    "CONFLICT",
    "RECREATED",
    "GONE",
    "DATA_LOSS",
    "FINISHED",
    "FAILED",
    "UNKNOWN",
]

Origin = Literal["listener", "connect", "poll", "checkpoint", "group"]
"""Who knew a position: Spark's listener bus, a Connect client's, a driver that asks for the last
progress, the query's checkpoint, or Kafka's own consumer group."""

MeasuredBy = Literal["service", "embedded"]

IsolationLevel = Literal["read_uncommitted", "read_committed"]

TimeLagMethod = Literal["sampled", "interpolated", "floor"]
"""How the age of a record was found: by the timestamp it carries, by when the log's end passed it,
or as the least that it can be."""

Activity = Literal["running", "waiting"]
"""What a query that lives does, by its own word: a batch, or wait for data or its trigger."""

Offsets = dict[TopicName, dict[PartitionNumber, Offset]]
"""Topic, then partition, then offset: the shape Spark itself uses for Kafka offsets."""
