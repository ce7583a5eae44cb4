"""Records of `consumer-lag`, dispatched to the followers of the view."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from sparklag_schemas import LagEvent
from sparklag_service.counters import Counters

_log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """A record of `consumer-lag`."""

    query_id: str
    partition: int
    offset: int
    at_ms: int
    """The record's own time, epoch milliseconds."""
    event: LagEvent | None
    """None: a tombstone."""
    document: bytes
    """The event's JSON; empty in a tombstone."""


class Follower(Protocol):
    """Called on the view's task: it must return at once."""

    def began(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Reading begins at `starts`; the log ends at `ends`: partition to offset. Called at the
        start, and again after each failure, from an earlier offset."""

    def arrived(self, arrival: Arrival) -> None:
        """A record that the view has taken; outdated events are left out."""


def starts_over(last: int | None, start: int, end: int) -> bool:
    """Whether reading a partition from `start` on, up to `end`, does not go on after offset `last`:
    it was not read before, or something is left out, or another topic has the name now."""
    return last is None or start > last + 1 or end <= last


class Feed:
    """Dispatches in order, synchronously. A follower that fails is counted, and logged once."""

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

    def dispatch(self, arrival: Arrival) -> None:
        """See Follower."""
        for follower in self._followers:
            try:
                follower.arrived(arrival)
            except Exception:  # the view goes on
                self._failed(follower)

    def _failed(self, follower: Follower) -> None:
        """Count it; the view goes on."""
        self._counters.followers_failed += 1
        if self._counters.followers_failed == 1:
            _log.exception("%s failed with an event; the next are not logged", type(follower))
