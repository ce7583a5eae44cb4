"""Rows of earlier times for what lags since before anyone looked: each partition once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import IsolationLevel
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.record_times.counts import RecordTimeCounts
from sparklag_service.enrichment.record_times.lagging import Lagging, Lookup
from sparklag_service.enrichment.record_times.leader_reader import LeaderReader
from sparklag_service.enrichment.record_times.leaders import Leaders
from sparklag_service.enrichment.record_times.time_lookup import Behind, Ends, look_up

_log = logging.getLogger(__name__)


class EarlierEnds:
    """Fills the `times` of a cluster's offsets, as far as its leaders answer."""

    def __init__(self, said: ClusterOffsets, leaders: Leaders, counts: RecordTimeCounts) -> None:
        self._said = said
        self._leaders = leaders
        self._counts = counts
        self._known: set[Lookup] = set()
        self._wanted: dict[Lookup, Lagging] = {}
        self._any_wanted = asyncio.Event()

    def has(self, lagging: Lagging) -> bool:
        """Whether it was looked up, or need not be."""
        return lagging.lookup in self._known

    def leave(self, lagging: Lagging) -> None:
        """It need not be: its records came while somebody looked."""
        self._known.add(lagging.lookup)

    def want(self, lagging: Lagging) -> None:
        """Look it up."""
        self._wanted[lagging.lookup] = lagging
        self._any_wanted.set()

    def tidy(self) -> None:
        """Forget what nobody watches any more."""
        topics = self._said.topics
        self._known = {one for one in self._known if one[2].topic in topics}

    async def look_up_wanted(self) -> None:
        """Wait until something is wanted, and look that up."""
        await self._any_wanted.wait()
        self._any_wanted.clear()
        # A moment later: those of other queries go with it.
        await asyncio.sleep(0)
        wanted, self._wanted = self._wanted, {}
        by_leader: dict[tuple[LeaderReader, IsolationLevel], list[Lagging]] = {}
        for lagging in wanted.values():
            # It may have been wanted again while it was under way.
            reader = self._leaders.of(lagging.partition) if not self.has(lagging) else None
            if reader is not None:
                by_leader.setdefault((reader, lagging.level), []).append(lagging)
        now_ms, now_s = epoch_ms(), time.monotonic()
        found = await asyncio.gather(
            *(self._ask(reader, level, some, now_ms) for (reader, level), some in by_leader.items())
        )
        levels = (level for _, level in by_leader)
        await self._insert(zip(levels, found, strict=True), now_s)

    async def _ask(
        self, reader: LeaderReader, level: IsolationLevel, some: list[Lagging], now_ms: int
    ) -> Ends:
        """Nothing where the leader does not answer: it may be wanted again."""
        behind = [
            Behind(one.partition.topic, one.partition.partition, one.position, one.latest.offset)
            for one in some
        ]
        try:
            ends = await look_up(reader.connection, level, behind, now_ms)
        except KAFKA_FAILURES as error:
            _log.debug("%s:%s does not say where logs ended: %s", *reader.connection.address, error)
            return {}
        self._counts.looked_up += len(some)
        self._known.update(one.lookup for one in some)
        return ends

    async def _insert(self, found: Iterable[tuple[IsolationLevel, Ends]], now_s: float) -> None:
        # One row for each time: a topic's partitions have several leaders.
        rows: dict[tuple[int, IsolationLevel, str], dict[int, int]] = {}
        for level, ends in found:
            for age_s, by_topic in ends.items():
                for topic, some in by_topic.items():
                    rows.setdefault((age_s, level, topic), {}).update(some)
        for (age_s, level, topic), some in sorted(rows.items()):
            if topic in self._said.topics:
                self._said.log_ends_of(level, topic).insert(now_s - age_s, some)
            # Thousands of partitions each; there are two hundred ages.
            await asyncio.sleep(0)
