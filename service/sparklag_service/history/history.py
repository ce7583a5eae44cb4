"""The history of one instance: events from while it ran, and those on the topic from before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import ceil
from typing import Final

from sparklag_schemas import Settings
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.history.archive import Archive
from sparklag_service.history.page import HistoryPage, TimeRange, points
from sparklag_service.history.rows import row_of
from sparklag_service.view.feed import Arrival
from sparklag_service.view.view import Entry

_MB: Final = 1024 * 1024
_FINEST_HEARTBEATS: Final = 1.5
"""A query that is published at every heartbeat, a little late perhaps, has an event in each slot:
one without is a gap."""

_TOMBSTONES: Final = 10_000


class History:
    """Follows the feed."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        finest_s = max(1, ceil(_FINEST_HEARTBEATS * settings.heartbeat_s))
        self.keep_ms = int(settings.history.keep_s * 1000)
        self.archive = Archive(
            settings.history.memory_mb * _MB, finest_s * 1000, max(self.keep_ms, finest_s * 1000)
        )
        self._counters = counters
        self.complete_since_ms: dict[int, int] = {}
        """By partition."""
        self.ends: dict[int, int] = {}
        """Where the topic ended when the feed began: the refill reads up to there. The feed has
        only the last minute of that, and perhaps not the time before an outage."""
        self.forgotten_ms: dict[str, int] = {}
        """By query: the time of its tombstone."""
        self.refill_needed = asyncio.Event()

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """See Follower."""
        now_ms = epoch_ms()
        for partition in self.ends.keys() - ends.keys():
            del self.ends[partition]
        for partition, start in restarted.items():
            self.ends[partition] = ends.get(partition, start)
            self.complete_since_ms[partition] = now_ms
            self.refill_needed.set()

    def arrived(self, arrival: Arrival) -> None:
        """See Follower."""
        event = arrival.event
        if event is None:
            self.archive.forget(arrival.query_id)
            self.forget_before(arrival.query_id, arrival.at_ms)
            return
        if not self.archive.add(arrival.query_id, row_of(event), epoch_ms()):
            self._counters.history_left_out += 1

    def forget_before(self, query_id: str, at_ms: int) -> None:
        """It left a tombstone then."""
        self.forgotten_ms[query_id] = max(at_ms, self.forgotten_ms.get(query_id, 0))
        if len(self.forgotten_ms) > _TOMBSTONES:
            del self.forgotten_ms[next(iter(self.forgotten_ms))]
        self.archive.forget_before(query_id, at_ms)

    def page(self, entry: Entry, wanted: TimeRange, now_ms: int) -> HistoryPage:
        """The totals of the query whose entry in the view that is."""
        event = entry.event
        wanted = wanted.aligned(self.archive.resolution, now_ms)
        rows = self.archive.rows(event.query_id, now_ms)
        complete_since_ms = self.complete_since_ms.get(entry.partition, now_ms)
        full = "there are more queries than history.memory_mb has room for"
        return HistoryPage(
            query_id=event.query_id,
            query=event.query,
            since=wanted.since_ms,
            until=wanted.until_ms,
            step_s=wanted.step_ms / 1000,
            complete_since=max(now_ms - self.keep_ms, complete_since_ms),
            reason=None if rows else full,
            points=points(rows, wanted),
        )
