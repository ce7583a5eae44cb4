"""Has what queries need measured: each cluster and each of its leaders by itself.

A query is measured when every leader of its partitions has answered a request that was sent after
its position was seen. It never waits for a leader of other queries' partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from sparklag_kafka.brokers.leader_channel import Hold
from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_service.enrichment.cluster_offsets import Offsets
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.enrichment.record_times.record_times import RecordTimes
from sparklag_service.enrichment.watched_cluster import WatchedCluster
from sparklag_service.supervision import QueryFailures
from sparklag_service.tracking.query_state import QueryState


class Measured(NamedTuple):
    """Queries whose offsets are as new as they can be had, all asked for at `asked_s`
    (`time.monotonic()`)."""

    states: list[QueryState]
    asked_s: float


class Enricher:
    """Knows the offsets of the home cluster and of those in `settings.clusters`."""

    def __init__(self, settings: ResolvedSettings, failures: QueryFailures) -> None:
        """What fails for one query is added to `failures`, which evaluation reads."""
        self._settings = settings
        self._failures = failures
        self._clusters = {
            alias: WatchedCluster(alias, cluster.access, settings)
            for alias, cluster in settings.every_cluster.items()
        }
        self.offsets: Offsets = {
            alias: cluster.offsets for alias, cluster in self._clusters.items()
        }
        """What each cluster said last, by alias; it changes as they answer."""
        self.record_times = {
            alias: RecordTimes(alias, cluster, settings.time_lag)
            for alias, cluster in self._clusters.items()
        }
        """What finds out when records came, and counts it."""
        self._measured: dict[str, tuple[QueryState, float]] = {}
        self._any_measured = asyncio.Event()

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Clusters of which no broker answers, and why."""
        return {
            alias: cluster.unreachable
            for alias, cluster in self._clusters.items()
            if cluster.unreachable is not None
        }

    @property
    def tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What keeps up to date what is known of each cluster, until cancelled."""
        clusters = {f"cluster {alias}": one.run for alias, one in self._clusters.items()}
        times = {f"record times {alias}": one.run for alias, one in self.record_times.items()}
        return {**clusters, **times}

    def request(self, *states: QueryState) -> None:
        """Measure these, all with offsets that are requested from now on. Returns at once."""
        requested_s = time.monotonic()
        for state in states:
            try:
                self._request(state, requested_s)
            except Exception as error:
                self._failures.add(state.query_id, "enrichment", error)
                self._take_measured(state, requested_s)
            else:
                self._failures.recovered(state.query_id, "enrichment")

    def _request(self, state: QueryState, asked_s: float) -> None:
        hold = Hold(partial(self._take_measured, state, asked_s))
        try:
            for alias in {source.cluster for source in state.sources}:
                cluster = self._clusters.get(alias) if alias is not None else None
                if cluster is not None:
                    cluster.ask(state, hold)
        finally:
            hold.release()

    async def next_measured(self) -> Measured:
        """Wait for queries that are measured. One that was measured again before it was taken
        here is told once, as it was asked for last."""
        while not self._measured:
            self._any_measured.clear()
            await self._any_measured.wait()
        _, first_s = next(iter(self._measured.values()))
        states = [state for state, asked_s in self._measured.values() if asked_s == first_s]
        for state in states:
            del self._measured[state.query_id]
        self._note_ends(states, first_s)
        for state in states:
            for times in self.record_times.values():
                times.offer(state)
        return Measured(states, first_s)

    def resume(self, event: LagEvent, moment: Moment) -> None:
        """Take from another instance's event where logs ended when it was made."""
        at_s = moment.monotonic_s(event.measured_at)
        for topic in event.topics:
            said = self.offsets.get(topic.cluster) if topic.cluster is not None else None
            if said is None:
                continue
            ends = {
                one.partition: one.latest_offset
                for one in topic.partitions
                if one.latest_offset is not None and one.measured_at is None
            }
            if ends:
                said.times_of(topic.isolation_level, topic.topic).insert(at_s, ends)

    def _note_ends(self, states: Iterable[QueryState], asked_s: float) -> None:
        """Remember where the logs ended, as often as they are measured."""
        interval_s = self._settings.refresh_interval_s
        for state in states:
            for source in state.sources:
                said = self.offsets.get(source.cluster) if source.cluster is not None else None
                if said is None:
                    continue
                for name in source.watched_topics():
                    said.note_ends(source.isolation_level, name, asked_s, interval_s)

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        await asyncio.gather(*(times.aclose() for times in self.record_times.values()))
        await asyncio.gather(*(cluster.aclose() for cluster in self._clusters.values()))

    def _take_measured(self, state: QueryState, asked_s: float) -> None:
        known = self._measured.pop(state.query_id, None)
        newer = known if known is not None and known[1] > asked_s else (state, asked_s)
        self._measured[state.query_id] = newer
        self._any_measured.set()
