"""The enumerations in messages, and the traits of origins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from sparklag_schemas.messages.bounds import MAX_INT64, Offset, PartitionNumber, TopicName

SCHEMA_VERSION: Final = "1.1"
"""`major.minor`. A reader takes every minor version of its own major version."""

_MAX_WORD: Final = 100
"""Characters."""


def _open_set(words: Any) -> Meta:
    return Meta(max_length=_MAX_WORD, extra_json_schema={"examples": list(get_args(words))})


Cause = Literal[
    "started", "progress", "idle", "refresh", "terminated", "closed", "checkpoint", "group"
]
"""Why a message was written. `refresh`: at intervals, by the driver to report that the query still
runs, or by the service to measure again. `closed`: the driver no longer observes the query.
`checkpoint`, `group`: the position changed in the checkpoint or the consumer group."""
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
_DRIVER_ORIGINS: Final = ("listener", "connect", "poll")

MeasuredBy = Literal["service", "embedded"]
OpenMeasuredBy = Annotated[str, _open_set(MeasuredBy)]

IsolationLevel = Literal["read_uncommitted", "read_committed"]

TimeLagMethod = Literal["sampled", "interpolated", "floor"]
"""How a time lag was measured: from its timestamp, from the time at which the log end
passed it, or as a lower bound."""
OpenTimeLagMethod = Annotated[str, _open_set(TimeLagMethod)]

Mode = Literal["micro-batch", "continuous", "real-time"]
"""How Spark runs the query, by its trigger. In real-time mode records are delivered at once, and
offsets are written to the checkpoint once in each interval of the trigger."""
OpenMode = Annotated[str, _open_set(Mode)]

Activity = Literal["running", "waiting"]
"""The activity that a live query reports: it runs a batch, or waits for data or its trigger."""
OpenActivity = Annotated[str, _open_set(Activity)]

DriverEnd = Literal["stopped", "exited", "interrupted", "closed"]
"""How a driver's reports of a query end: Spark was stopped, the process ended (not killed), Ctrl-C
(SIGINT) ended it or its jobs, or the handle was closed while the query goes on."""
OpenDriverEnd = Annotated[str, _open_set(DriverEnd)]

StartingOffsets = dict[TopicName, dict[PartitionNumber, Annotated[int, Meta(ge=-2, le=MAX_INT64)]]]
"""As `Offsets`; -2: the earliest offset, -1: the log end at the start of the query."""

Offsets = dict[TopicName, dict[PartitionNumber, Offset]]
"""Topic, then partition, then offset: the shape Spark itself uses for Kafka offsets."""


@dataclass(frozen=True)
class OriginTraits:
    """The traits of an origin. The defaults hold for drivers and for an unknown origin."""

    label: str | None = None
    """The name for people, as in "by its listener". None: the word itself."""
    has_events: bool = True
    """Progress is reported by events. False: it is only polled."""
    is_checkpoint: bool = False
    """The position is read from the query's checkpoint, beside what a driver reports."""
    commits_offsets: bool = False
    """A Kafka consumer group commits its own offsets: they are neither mirrored nor recorded, and
    Burrow's rules may judge it."""
    keeps_ended: bool = True
    """A query that has ended is still measured and shown for a while."""
    ended_reason: str = "the query was stopped"
    position_store: str = "checkpoint"
    """Where the position is read from without a driver."""
    step: str = "completed batch"
    """The unit of its progress."""


ORIGINS: dict[str, OriginTraits] = {
    "listener": OriginTraits("its listener"),
    "connect": OriginTraits("its Connect client"),
    "poll": OriginTraits("its driver (polled)", has_events=False),
    "checkpoint": OriginTraits("its checkpoint", is_checkpoint=True),
    "group": OriginTraits(
        "Kafka",
        commits_offsets=True,
        keeps_ended=False,
        ended_reason="the group no longer exists",
        position_store="offsets",
        step="commit",
    ),
}
"""The traits by the word in messages."""

_UNKNOWN = OriginTraits()


def register_origin(origin: str, traits: OriginTraits) -> None:
    """Add an origin. Raises ValueError where it has other traits already."""
    if ORIGINS.setdefault(origin, traits) != traits:
        raise ValueError(f"origin {origin!r} is registered with other traits")


def is_driver_origin(origin: str) -> bool:
    """True: a driver may report this origin. Unknown origins are of later versions, and may too."""
    return origin in _DRIVER_ORIGINS or origin not in ORIGINS


def traits_of(origin: str) -> OriginTraits:
    """The traits of an origin; the defaults for an unknown origin."""
    return ORIGINS.get(origin, _UNKNOWN)


Mark = Literal["bad", "warn", "ok"]

_OK: Final[frozenset[str]] = frozenset({"OK", "FINISHED"})
_BAD: Final[frozenset[str]] = frozenset(get_args(Status)) - _OK - {"WARN", "UNKNOWN"}


def mark(status: str) -> Mark:
    """`ok`: the query is healthy; `warn`: it may not be, or the status is unknown; `bad`: act."""
    return "ok" if status in _OK else "bad" if status in _BAD else "warn"
