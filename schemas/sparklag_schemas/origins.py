"""What differs between the origins of positions: one table, which a new kind of source adds to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OriginTraits:
    """The defaults are those of a driver that reports its own batches, and of an unknown origin."""

    label: str | None = None
    """How people call it, as in "by its listener". None: by the word itself."""
    has_events: bool = True
    """Whether progress is reported by events. False: it is only polled."""
    is_checkpoint: bool = False
    """Whether it is read from the query's checkpoint, beside what a driver reports."""
    commits_offsets: bool = False
    """Whether it is a Kafka consumer group that commits its own offsets: it is neither mirrored nor
    recorded, and Burrow's rules may judge it."""
    keeps_ended: bool = True
    """Whether a query that has ended is still measured and shown for a while."""
    ended_reason: str = "the query was stopped"
    position_store: str = "checkpoint"
    """What is read for its position where there is no driver."""
    step: str = "batch"
    """What it completes one after the other."""


ORIGINS: dict[str, OriginTraits] = {
    "listener": OriginTraits("its listener"),
    "connect": OriginTraits("its Connect client"),
    "poll": OriginTraits("its driver, asked regularly", has_events=False),
    "checkpoint": OriginTraits("its checkpoint", is_checkpoint=True),
    "group": OriginTraits(
        "Kafka",
        commits_offsets=True,
        keeps_ended=False,
        ended_reason="there is no such group any more",
        position_store="offsets",
        step="commit",
    ),
}
"""By the word in messages."""

_UNKNOWN = OriginTraits()


def register_origin(origin: str, traits: OriginTraits) -> None:
    """Add an origin. Raises ValueError where it has other traits already."""
    if ORIGINS.setdefault(origin, traits) != traits:
        raise ValueError(f"origin {origin!r} is registered with other traits")


def traits_of(origin: str) -> OriginTraits:
    """The traits of an origin; the default ones where this version does not know it."""
    return ORIGINS.get(origin, _UNKNOWN)
