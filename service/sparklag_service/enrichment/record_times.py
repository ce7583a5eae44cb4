"""The timestamps of the first unprocessed records of queries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.logs import offsets_at
from sparklag_kafka.brokers.pool import BrokerConnection
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import IsolationLevel, TimeLagSettings
from sparklag_schemas.runtime.tasks import repeat, run_together, with_pauses
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.log_end_history import SPACING
from sparklag_service.enrichment.record_search import (
    ByteBudget,
    Lagging,
    is_older_than_measurements,
    lagging_partitions,
)
from sparklag_service.enrichment.sampler import RecordTimeCounts, Sampler
from sparklag_service.enrichment.watched_cluster import WatchedCluster, WatchedQuery
from sparklag_service.tracking.query_state import QueryState, TrackedSource

_log = logging.getLogger(__name__)
_MAX_AGE_S: Final = 86_400


def _ages_s() -> Iterator[int]:
    age_s = 1
    while age_s < _MAX_AGE_S:
        yield age_s
        # As dense as the rows of measurements: see LogEndHistory.
        age_s = max(age_s + 1, int(age_s * (1 + SPACING)))
    yield _MAX_AGE_S


AGES_S: Final = tuple(_ages_s())
"""Ages at which a log end may be looked up, a second or 5 % of the age apart."""
Ends = dict[tuple[int, str], dict[int, int]]
"""Log ends of partitions at an earlier time, by age (one of AGES_S) and topic. Each partition is in
two rows, between which the record at its position arrived."""
_Key = tuple[str | None, IsolationLevel, TopicPartition]
"""The topic's id, and how the partition is read."""


def _key(lagging: Lagging) -> _Key:
    return lagging.topic_id, lagging.level, lagging.partition


@dataclass(eq=False, repr=False)
class EarlierEnds:
    """Adds rows to the `log_ends` of a cluster's offsets, for each leader that responds."""

    _offsets: ClusterOffsets
    _connection_to_leader: Callable[[Lagging], BrokerConnection | None]
    _counts: RecordTimeCounts
    _done: set[_Key] = field(default_factory=set)
    _pending: dict[_Key, Lagging] = field(default_factory=dict)
    _any_pending: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self, lagging: Lagging) -> bool:
        """Request a lookup. Returns False if it is not needed: done already, or the topic was
        measured before the record arrived."""
        key = _key(lagging)
        if key not in self._done and is_older_than_measurements(lagging, self._offsets):
            self._pending[key] = lagging
            self._any_pending.set()
            return True
        self._done.add(key)
        return False

    def tidy(self) -> None:
        """Forget topics that are no longer watched."""
        self._done = {key for key in self._done if key[2].topic in self._offsets}

    async def look_up_pending(self) -> None:
        """Wait for a request, then look up all pending ones."""
        await self._any_pending.wait()
        self._any_pending.clear()
        # Other queries make their requests in the same pass of the loop.
        await asyncio.sleep(0)
        pending, self._pending = self._pending, {}
        by_leader: dict[BrokerConnection, list[Lagging]] = {}
        for key, lagging in pending.items():
            connection = self._connection_to_leader(lagging)
            # The partition may have been requested again while its lookup was in flight.
            if connection is not None and key not in self._done:
                by_leader.setdefault(connection, []).append(lagging)
        now_ms, now_s = epoch_ms(), time.monotonic()
        results = await asyncio.gather(
            *(self._look_up(connection, part, now_ms) for connection, part in by_leader.items())
        )
        # One row for each age: a topic's partitions have several leaders.
        rows: dict[tuple[int, IsolationLevel, str], dict[int, int]] = {}
        for part, ends in zip(by_leader.values(), results, strict=True):
            for (age_s, topic), row in ends.items():
                rows.setdefault((age_s, part[0].level, topic), {}).update(row)
        for (age_s, level, name), row in sorted(rows.items()):
            if name in self._offsets:
                self._offsets[name].log_ends[level].insert(now_s - age_s, row)
            # There are two hundred rows, each of thousands of partitions.
            await asyncio.sleep(0)

    async def _look_up(
        self, connection: BrokerConnection, part: list[Lagging], now_ms: int
    ) -> Ends:
        """Returns no ends if the leader does not respond: its partitions may be requested again."""
        try:
            ends = await look_up(connection, part[0].level, part, now_ms)
        except KAFKA_FAILURES as error:
            _log.debug("%s:%s: no earlier ends of logs: %s", *connection.address, error)
            return {}
        self._counts.looked_up += len(part)
        self._done.update(map(_key, part))
        return ends


@dataclass(eq=False, slots=True)
class _Bisection:
    """Searches the two ages between which the record at a partition's position arrived."""

    lagging: Lagging
    low: int = 0
    high: int = len(AGES_S)
    ends: dict[int, int] = field(default_factory=dict)
    """Log ends by index of the age."""

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def take(self, end: int) -> None:
        """Store the log end at the age in the middle."""
        index, latest = self.middle, self.lagging.latest.offset
        # A log without a record as new as that age ended where it ends now.
        self.ends[index] = latest if end < 0 else min(end, latest)
        if self.ends[index] <= self.lagging.position:
            self.high = index
        else:
            self.low = index + 1


async def look_up(
    connection: BrokerConnection, level: IsolationLevel, wanted: Iterable[Lagging], now_ms: int
) -> Ends:
    """Look up partitions of one leader. Partitions that it does not lead are left out. Raises one
    of KAFKA_FAILURES."""
    pending = {lagging.partition: _Bisection(lagging) for lagging in wanted}
    ends: Ends = {}
    while pending:
        times_ms = {
            partition: now_ms - AGES_S[bisection.middle] * 1_000
            for partition, bisection in pending.items()
        }
        offsets = await offsets_at(connection, level, times_ms)
        for partition, bisection in list(pending.items()):
            if partition not in offsets:
                del pending[partition]
                continue
            bisection.take(offsets[partition])
            if bisection.low == bisection.high:
                del pending[partition]
                for index in {bisection.low - 1, bisection.low} & bisection.ends.keys():
                    row = ends.setdefault((AGES_S[index], partition.topic), {})
                    row[partition.partition] = bisection.ends[index]
    return ends


_UNCHANGED_S: Final = 1.0
"""How long a query's positions must be unchanged before they are sampled: a query that moves on at
once makes a timestamp useless."""
_CHUNK: Final = 250
"""Partitions after which other tasks run."""
_TIDY_S: Final = 60.0
_RESTART_S: Final = 2.0


class RecordTimes:
    """Writes `record_times`, and earlier rows of `log_ends`, of one cluster's offsets."""

    def __init__(self, cluster: WatchedCluster, settings: TimeLagSettings) -> None:
        self.counts = RecordTimeCounts()
        self._alias = cluster.alias
        self._cluster = cluster
        self._offsets = cluster.offsets
        self._settings = settings
        self.sampler = Sampler(cluster, self.counts, ByteBudget(time.monotonic()))
        connection_to_leader = self.sampler.connection_to_leader
        self._earlier_ends = EarlierEnds(self._offsets, connection_to_leader, self.counts)
        self._due: asyncio.Queue[QueryState] = asyncio.Queue()

    def offer(self, state: QueryState) -> None:
        """Queue a check of a measured query's partitions, if it is due. Returns at once."""
        query = self._cluster.queries.get(state.query_id)
        if query is None:
            return
        now_s = time.monotonic()
        progress = (state.batch_id, state.processed_at)
        if query.progress not in (None, progress):
            query.unchanged_since_s = now_s
        query.progress = progress
        samples = self._samples(query, now_s)
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

    async def _check_next(self) -> None:
        state = await self._due.get()
        query = self._cluster.queries.get(state.query_id)
        if query is None:
            return
        samples = self._samples(query, time.monotonic())
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
                self.sampler.request(lagging)
        # Other queries get their time slice.
        await asyncio.sleep(0)

    def _samples(self, query: WatchedQuery, now_s: float) -> bool:
        return self._settings.sample and now_s - query.unchanged_since_s >= _UNCHANGED_S

    def _is_unread(self, source: TrackedSource) -> bool:
        """Returns whether a topic may exist whose latest offsets were never read."""
        topics = (self._offsets.get(name) for name in source.watched_topics())
        return any(
            topic is None
            or (topic.description.missing is None and not topic.latest[source.isolation_level])
            for topic in topics
        )

    async def _tidy(self) -> None:
        await asyncio.sleep(_TIDY_S)
        self.sampler.tidy()
        self._earlier_ends.tidy()
