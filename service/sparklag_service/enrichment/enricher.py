"""Reads the offsets that queries need, for every cluster and every leader independently.

A query is measured when every leader of its partitions has responded to a request that was sent
after its position was received. It never waits for a leader of other queries' partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import takewhile

from msgspec.structs import replace

from sparklag_kafka.brokers.leader_channel import WaitGroup
from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_schemas.runtime.tasks import run_together
from sparklag_schemas.text.printable import first_few
from sparklag_service.enrichment.cluster_offsets import (
    SETTLED_S,
    Advances,
    ClusterMetadata,
    MeasureTime,
    NoRecords,
    OffsetsByCluster,
)
from sparklag_service.enrichment.record_times import RecordTimes
from sparklag_service.enrichment.watched_cluster import WatchedCluster
from sparklag_service.supervision import Supervisor
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracked_queries import TrackedQueries


class Enricher:
    """Reads the offsets of the home cluster and of `settings.clusters`."""

    def __init__(
        self, settings: ResolvedSettings, tracked: TrackedQueries, supervisor: Supervisor
    ) -> None:
        """A failure with one query is reported to `tracked`, which the evaluation reads."""
        self._settings = settings
        self._tracked = tracked
        self._supervisor = supervisor
        self._clusters = {
            alias: WatchedCluster(alias, cluster.access, settings)
            for alias, cluster in settings.every_cluster.items()
        }
        self.offsets: OffsetsByCluster = {
            alias: cluster.offsets for alias, cluster in self._clusters.items()
        }
        """The newest offsets of each cluster, by alias; updated in place."""
        self.record_times = {
            alias: RecordTimes(cluster, settings.time_lag)
            for alias, cluster in self._clusters.items()
        }
        """The readers of record timestamps, by cluster alias, with their counts."""
        self._measured: dict[str, tuple[QueryState, float]] = {}
        self._any_measured = asyncio.Event()

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Clusters without a broker that responds, and the reason."""
        return {
            alias: cluster.unreachable
            for alias, cluster in self._clusters.items()
            if cluster.unreachable is not None
        }

    @property
    def unreadable(self) -> dict[str, str]:
        """Clusters with topics that cannot be described, and the reason."""
        return {
            f"topics of {alias}": first_few(reasons, "; ")
            for alias, cluster in self._clusters.items()
            if (reasons := cluster.unreadable)
        }

    @property
    def metadata(self) -> Mapping[str, ClusterMetadata]:
        """Metadata of each cluster with a broker that responds, by alias."""
        return {
            alias: ClusterMetadata(cluster.pool.brokers, cluster.offsets)
            for alias, cluster in self._clusters.items()
            if cluster.unreachable is None
        }

    async def run(self) -> None:
        """Read every cluster until cancelled, each in its own supervised tasks."""
        keep = self._supervisor.keep
        await run_together(
            *(keep(f"cluster {alias}", reader.run) for alias, reader in self._clusters.items()),
            *(
                keep(f"record times {alias}", reader.run)
                for alias, reader in self.record_times.items()
            ),
        )

    def adopt(self, event: LagEvent, at: MeasureTime) -> None:
        """Add the latest offsets in another instance's event to the history, the position whose
        record is the oldest: the log ended there when it arrived; log ends without records; and how
        fast records are deleted."""
        at_s, oldest_s = at.monotonic_s(event.measured_at), event.max_time_lag_s
        for topic in event.topics:
            cluster = self._cluster_of(topic.cluster)
            if cluster is None:
                continue
            offsets = cluster.table.adopt(topic)
            history = offsets.log_ends[topic.isolation_level]
            arrived = {
                partition.partition: partition.processed_offset
                for partition in topic.partitions
                if partition.processed_offset is not None and partition.time_lag_s == oldest_s
            }
            ends = {
                partition.partition: partition.latest_offset
                for partition in topic.partitions
                if partition.latest_offset is not None and partition.measured_at is None
            }
            if not ends:
                continue
            history.insert(at_s, ends)
            if oldest_s:
                history.insert(at_s - oldest_s, arrived)
            ranges = offsets.without_records[topic.isolation_level]
            for partition in topic.partitions:
                position, end = partition.processed_offset, ends.get(partition.partition)
                unread = partition.readable_lag
                if unread is not None and position is not None and end is not None:
                    none = ranges.get(partition.partition)
                    if none is None or not none.is_next_to(position):
                        none = NoRecords(position, end - unread, at_s - SETTLED_S)
                        ranges[partition.partition] = none
                first, left_s = partition.earliest_offset, partition.headroom_s
                if position is not None and first is not None and left_s is not None:
                    # At its rate as many records were deleted in the time that is left.
                    before = at_s - (left_s or 1.0), first - max(1, position - first)
                    known = offsets.advances.get(partition.partition)
                    if known is None or len(known.steps) < 2:
                        offsets.advances[partition.partition] = Advances((before, (at_s, first)))
                    offsets.earliest.setdefault(partition.partition, first)

    def release(self, query_id: str) -> None:
        """Stop measuring a query. Its results in flight are discarded."""
        self._measured.pop(query_id, None)
        for cluster in self._clusters.values():
            cluster.release(query_id)

    def request(self, *states: QueryState) -> None:
        """Measure `states` with offsets that are requested from now on. Returns at once."""
        requested_s = time.monotonic()
        for state in states:
            try:
                self._request(self._with_matches(state), requested_s)
            except Exception as error:
                self._tracked.failed(state, "enrichment", error)
                self._add_measured(state, requested_s)
            else:
                self._tracked.recovered(state.query_id, "enrichment")

    def _with_matches(self, state: QueryState) -> QueryState:
        """`state`, tracked from now on with the topics that match its patterns."""
        sources = tuple(
            source if cluster is None else cluster.matched(source)
            for source in state.sources
            for cluster in [self._cluster_of(source.cluster)]
        )
        if sources == state.sources:
            return state
        record, new_state = self._tracked.record(state.query_id), replace(state, sources=sources)
        if record is not None and record.state is state:
            record.state = new_state
        return new_state

    def _request(self, state: QueryState, requested_s: float) -> None:
        wait_group = WaitGroup(partial(self._add_measured, state, requested_s))
        try:
            for alias in {source.cluster for source in state.sources}:
                cluster = self._cluster_of(alias)
                if cluster is not None:
                    cluster.request(state, wait_group)
        finally:
            wait_group.done()

    async def next_measured(self) -> tuple[list[QueryState], float]:
        """Wait for queries whose offsets are all read, by requests at the returned time
        (`time.monotonic()`) or later. A query that was measured twice meanwhile is returned once,
        with its last request."""
        while not self._measured:
            self._any_measured.clear()
            await self._any_measured.wait()
        _, first_s = next(iter(self._measured.values()))
        together = takewhile(lambda measured: measured[1] == first_s, self._measured.values())
        states = [state for state, _ in together]
        for state in states:
            del self._measured[state.query_id]
        self._record_log_ends(states, first_s)
        for state in states:
            for times in self.record_times.values():
                times.offer(state)
        return states, first_s

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        await asyncio.gather(*(times.sampler.aclose() for times in self.record_times.values()))
        await asyncio.gather(*(cluster.aclose() for cluster in self._clusters.values()))

    def _record_log_ends(self, states: Iterable[QueryState], requested_s: float) -> None:
        """Add the latest offsets to the history, as often as they are read."""
        interval_s = self._settings.refresh_interval_s
        for state in states:
            for source in state.sources:
                cluster = self._cluster_of(source.cluster)
                if cluster is None:
                    continue
                for name in source.watched_topics():
                    topic = cluster.table.topic(name)
                    topic.record_log_ends(source.isolation_level, requested_s, interval_s)

    def _cluster_of(self, alias: str | None) -> WatchedCluster | None:
        return self._clusters.get(alias) if alias is not None else None

    def _add_measured(self, state: QueryState, requested_s: float) -> None:
        previous = self._measured.pop(state.query_id, (state, requested_s))
        newest = previous if previous[1] > requested_s else (state, requested_s)
        self._measured[state.query_id] = newest
        self._any_measured.set()
