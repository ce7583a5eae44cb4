"""Finds out when the first unprocessed records came, as far as that is worth its cost.

A position that a query stands at is sampled once: the timestamp of its record is read from the log.
What lags since before its topic was measured is looked up by time, once after a start.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sparklag_schemas import TimeLagSettings
from sparklag_schemas.runtime.tasks import repeat, run_together, with_pauses
from sparklag_service.enrichment.record_times.earlier_ends import EarlierEnds
from sparklag_service.enrichment.record_times.lagging import lagging_partitions
from sparklag_service.enrichment.record_times.limits import ByteBudget
from sparklag_service.enrichment.record_times.sampler import Cluster, RecordTimeCounts, Sampler
from sparklag_service.tracking.query_state import QueryState, SourceState

_UNCHANGED_S: Final = 1.0
"""So long a query stands at its positions before they are sampled: a timestamp is of no use where
the query moves on at once."""
_CHUNK: Final = 250
"""Partitions after which others have the loop."""
_TIDY_S: Final = 60.0
_RESTART_S: Final = 2.0


@dataclass
class _Query:
    """When a query's partitions were and will be checked."""

    progress: object
    """Changes where its positions may have moved."""
    unchanged_since_s: float
    next_s: float = 0.0
    may_need_lookup: bool = True

    def is_unchanged(self, now_s: float) -> bool:
        return now_s - self.unchanged_since_s >= _UNCHANGED_S


class RecordTimes:
    """Of one cluster. Fills `record_times` of its offsets, and earlier rows into its `log_ends`."""

    def __init__(self, alias: str, cluster: Cluster, settings: TimeLagSettings) -> None:
        self.counts = RecordTimeCounts()
        self._alias = alias
        self._offsets = cluster.offsets
        self._settings = settings
        budget = ByteBudget(time.monotonic())
        self._sampler = Sampler(alias, cluster, self.counts, budget)
        connection_to_leader = self._sampler.connection_to_leader
        self._earlier_ends = EarlierEnds(self._offsets, connection_to_leader, self.counts)
        self._queries: dict[str, _Query] = {}
        self._due: asyncio.Queue[QueryState] = asyncio.Queue()

    def offer(self, state: QueryState) -> None:
        """A query was measured: check its partitions, if it is time to. It returns at once."""
        if all(source.cluster != self._alias for source in state.sources):
            return
        now_s = time.monotonic()
        progress = (state.batch_id, state.processed_at)
        query = self._queries.get(state.query_id)
        if query is None:
            # It may have stood there for long before this instance started.
            query = self._queries[state.query_id] = _Query(progress, now_s - _UNCHANGED_S)
        elif query.progress != progress:
            query.progress, query.unchanged_since_s = progress, now_s
        samples = self._settings.sample and query.is_unchanged(now_s)
        if now_s >= query.next_s and (query.may_need_lookup or samples):
            query.next_s = now_s + self._settings.sample_interval_s
            self._due.put_nowait(state)

    async def run(self) -> None:
        """Sample and look up until cancelled."""
        what = f"record times of Kafka cluster {self._alias}"
        await run_together(
            repeat(self._check_next, what, _RESTART_S),
            repeat(self._earlier_ends.look_up_pending, what, _RESTART_S),
            repeat(self._tidy, what, _RESTART_S),
        )

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        await self._sampler.aclose()

    async def _check_next(self) -> None:
        state = await self._due.get()
        query = self._queries.get(state.query_id)
        if query is None:
            return
        samples = self._settings.sample and query.is_unchanged(time.monotonic())
        query.may_need_lookup = any(
            self._is_unread(source) for source in state.sources if source.cluster == self._alias
        )
        partitions = chain.from_iterable(
            lagging_partitions(source, self._offsets)
            for source in state.sources
            if source.cluster == self._alias
        )
        async for lagging in with_pauses(partitions, _CHUNK):
            if lagging is None:
                continue
            if self._earlier_ends.request(lagging):
                query.may_need_lookup = True
            if samples:
                self._sampler.request(lagging)
        # Of hundreds of queries each has its time slice.
        await asyncio.sleep(0)

    def _is_unread(self, source: SourceState) -> bool:
        """Whether a topic exists, as far as is known, and no latest offset of it was read yet."""
        topics = (self._offsets.get(name) for name in source.watched_topics())
        return any(
            topic is None
            or (topic.description.missing is None and not topic.latest[source.isolation_level])
            for topic in topics
        )

    async def _tidy(self) -> None:
        await asyncio.sleep(_TIDY_S)
        self._sampler.tidy()
        self._earlier_ends.tidy()
        over_s = time.monotonic() - max(_TIDY_S, 3 * self._settings.sample_interval_s)
        self._queries = {i: query for i, query in self._queries.items() if query.next_s > over_s}
