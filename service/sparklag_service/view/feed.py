"""What the view took in from `consumer-lag`, handed on to whoever follows. One way."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from sparklag_schemas import LagEvent
from sparklag_service.counters import Counters

_log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """A record of `consumer-lag`, as it was read."""

    query_id: str
    partition: int
    offset: int
    at_ms: int
    """The record's own time, epoch milliseconds."""
    event: LagEvent | None
    """None: a tombstone. The query is forgotten."""
    document: bytes
    """The event's JSON; empty in a tombstone."""


class Follower(Protocol):
    """Is told on the view's own turn: it puts aside what it needs, and returns."""

    def began(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """The topic is read from `starts` on, and ends at `ends` now: partition, offset. At the
        start, and again after each failure, from some way back."""

    def arrived(self, arrival: Arrival) -> None:
        """Read, and taken by the view: an event that came after a newer one of its query is not."""


def starts_over(last: int | None, start: int, end: int) -> bool:
    """Whether reading a partition from `start` on, up to `end`, does not go on after offset `last`:
    it was not read before, or something is left out, or another topic has the name now."""
    return last is None or start > last + 1 or end <= last


class Feed:
    """Hands on in order, at once. A follower that fails is logged and counted, and left alone."""

    def __init__(self, counters: Counters, *followers: Follower) -> None:
        self._counters = counters
        self._followers = followers

    def begin(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """See Follower."""
        for follower in self._followers:
            try:
                follower.began(starts, ends)
            except Exception:  # the view goes on
                self._failed(follower)

    def hand_on(self, arrival: Arrival) -> None:
        """See Follower."""
        for follower in self._followers:
            try:
                follower.arrived(arrival)
            except Exception:  # the view goes on
                self._failed(follower)

    def _failed(self, follower: Follower) -> None:
        """The view goes on: what others make of an event is none of its business."""
        self._counters.followers_failed += 1
        if self._counters.followers_failed == 1:
            _log.exception("%s failed with an event; the next are not logged", type(follower))
