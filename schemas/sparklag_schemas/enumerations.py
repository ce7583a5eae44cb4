"""The words that both messages use.

Except for the isolation level they are open: a minor version may add words. What sparklag writes is
typed by the closed sets (`Status`); what it reads, by the open ones (`OpenStatus`), which take any
short text, so that a word of a newer version is kept and passed on.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from sparklag_schemas.bounds import Offset, PartitionNumber, TopicName

SCHEMA_VERSION: Final = "1.1"
"""`major.minor`. A reader takes every minor version of its own major version."""

_MAX_WORD: Final = 100
"""Characters."""


def _open_set(words: Any) -> Meta:
    return Meta(max_length=_MAX_WORD, extra_json_schema={"examples": list(get_args(words))})


Cause = Literal["started", "progress", "idle", "refresh", "terminated", "checkpoint", "group"]
"""Why a message was written. `refresh`: at intervals, by the driver to report that the query
still runs, or by the service to measure again. `checkpoint`, `group`: the position moved there."""
OpenCause = Annotated[str, _open_set(Cause)]

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
OpenStatus = Annotated[str, _open_set(Status)]

Origin = Literal["listener", "connect", "poll", "checkpoint", "group"]
"""What reported a position: Spark's listener bus, a Connect client's, a driver that polls the last
progress, the query's checkpoint, or a consumer group in Kafka."""
OpenOrigin = Annotated[str, _open_set(Origin)]

MeasuredBy = Literal["service", "embedded"]
OpenMeasuredBy = Annotated[str, _open_set(MeasuredBy)]

IsolationLevel = Literal["read_uncommitted", "read_committed"]

TimeLagMethod = Literal["sampled", "interpolated", "floor"]
"""How the age of a record was measured: by the timestamp it carries, by when the log end passed it,
or as the least that it can be."""
OpenTimeLagMethod = Annotated[str, _open_set(TimeLagMethod)]

Activity = Literal["running", "waiting"]
"""What a live query does, by its own report: run a batch, or wait for data or its trigger."""
OpenActivity = Annotated[str, _open_set(Activity)]

Offsets = dict[TopicName, dict[PartitionNumber, Offset]]
"""Topic, then partition, then offset: the shape Spark itself uses for Kafka offsets."""
