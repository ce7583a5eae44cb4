"""Reads the timestamps of records from each leader by itself: many at once, a request at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from aiokafka.errors import (
    NoError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.fetch import FetchedPartition, FetchPosition, RecordsUnreadable, fetch
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_kafka.protocol.metadata import Address
from sparklag_schemas import IsolationLevel
from sparklag_schemas.runtime.tasks import cancel_and_wait, with_pauses
from sparklag_service.counters import Counts, count
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets, RecordTime
from sparklag_service.enrichment.record_times.lagging import Lagging
from sparklag_service.enrichment.record_times.limits import (
    MAX_BYTES,
    BatchSizes,
    ByteBudget,
    ForbiddenTopics,
    SampleSchedule,
)

_log = logging.getLogger(__name__)

_GROWTH: Final = 4
_MAX_FETCHES: Final = 12
"""Of one search: five reach the maximum size, the others pass over what no consumer gets."""
_MAX_PARTITIONS: Final = 500
"""In one request."""
_CHUNK: Final = 25
"""Partitions read before others have the loop: some milliseconds, where batches are decoded."""
_MIN_TIMESTAMP_MS: Final = 1_293_840_000_000
"""2011, Kafka's first year. An earlier timestamp is not when a record came: zero, or seconds."""

Outcome = Literal["sampled", "nothing_there", "out_of_range", "forbidden", "unusable", "failed"]
"""Each is counted: see RecordTimeCounts."""
_OUTCOMES: Final[dict[type[Exception], Outcome]] = {
    OffsetOutOfRangeError: "out_of_range",
    TopicAuthorizationFailedError: "forbidden",
}
_POSTPONED_S: Final[dict[Outcome, float]] = {
    "sampled": 3_600.0,
    "unusable": 3_600.0,
    "nothing_there": 60.0,
    "out_of_range": 60.0,
}
"""After which a position is sampled again; at the next occasion, where it is not here."""


class Cluster(Protocol):
    """The part of WatchedCluster that is used here."""

    @property
    def offsets(self) -> ClusterOffsets: ...

    @property
    def pool(self) -> BrokerPool: ...

    def leader(self, topic: str, partition: int) -> Address | None: ...


@dataclass
class RecordTimeCounts(Counts):
    """Counts since the start of this instance, of one cluster."""

    sampled: int = count("Records whose time was read.")
    requests: int = count("Fetch requests.")
    bytes_read: int = count("Record batches that were fetched, bytes.")
    unusable: int = count("Positions whose record has no time, is too large, or cannot be decoded.")
    out_of_range: int = count("Positions that the log does not reach (any more).")
    nothing_there: int = count(
        "Positions behind which there is no record yet: the rest of a transaction, or a gap."
    )
    forbidden: int = count("Times a topic was left alone because it may not be read.")
    failed: int = count("Positions that a leader did not answer for; they are requested again.")
    looked_up: int = count("Partitions whose earlier ends were looked up by time.")


class Search:
    """The search for the first record at a position. Pure.

    Until it has an `outcome`, up to `size` bytes are fetched from `offset`.
    """

    __slots__ = ("_fetches", "lagging", "offset", "outcome", "reason", "size", "timestamp_ms")

    def __init__(self, lagging: Lagging, size: int) -> None:
        """`size`: bytes that a batch of the topic usually has at most."""
        self.lagging = lagging
        self.offset = lagging.position
        self.size = size
        self.outcome: Outcome | None = None
        self.reason = ""
        """Why there is no timestamp."""
        self.timestamp_ms = -1
        """Epoch milliseconds, if the outcome is `sampled`."""
        self._fetches = 0

    def take(self, fetched: FetchedPartition) -> None:
        """What the leader has at `offset`."""
        self._fetches += 1
        error = for_code(fetched.error_code)
        if error is not NoError:
            self.end(_OUTCOMES.get(error, "failed"), f"the leader answers {error.__name__}")
            return
        level = self.lagging.level
        try:
            timestamp_ms, next_offset = fetched.first_record(self.offset, level)
        except RecordsUnreadable as unreadable:
            self.end("unusable", str(unreadable))
            return
        if timestamp_ms is not None:
            self.timestamp_ms = timestamp_ms
            if timestamp_ms < _MIN_TIMESTAMP_MS:
                self.end("unusable", f"its timestamp is {timestamp_ms}")
            else:
                self.end("sampled")
        elif next_offset >= fetched.end_offset(level):
            self.end("nothing_there", "there is no record yet")
        elif self._fetches == _MAX_FETCHES:
            self.end("unusable", f"no record up to offset {next_offset}")
        elif next_offset == self.offset and self.size == MAX_BYTES:
            self.end("unusable", f"a batch of more than {MAX_BYTES} bytes")
        else:
            self.offset = next_offset
            self.size = min(MAX_BYTES, _GROWTH * self.size)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        self.outcome = outcome
        self.reason = reason


@dataclass
class _Leader:
    connection: BrokerConnection
    pending: dict[TopicPartition, Search] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    """Runs while there are pending searches."""


class Sampler:
    """Fills `record_times` of a cluster's offsets.

    A leader that does not answer holds up its own partitions only.
    """

    def __init__(
        self, alias: str, cluster: Cluster, counts: RecordTimeCounts, budget: ByteBudget
    ) -> None:
        self._alias = alias
        self._cluster = cluster
        self._offsets = cluster.offsets
        self._counts = counts
        self._budget = budget
        self._batch_sizes = BatchSizes()
        self._forbidden = ForbiddenTopics(alias)
        self._schedule = SampleSchedule()
        self._logged_topics: set[str] = set()
        """Those with a record whose timestamp is unusable."""
        self._leaders: dict[Address, _Leader] = {}

    def request(self, lagging: Lagging) -> None:
        """Sample a position, if it is due. It returns at once.

        It replaces the pending position of the partition: stale positions do not pile up.
        """
        leader = self._leader(lagging.partition) if self._is_due(lagging) else None
        if leader is not None:
            size = self._batch_sizes.usual(lagging.partition.topic)
            leader.pending[lagging.partition] = Search(lagging, size)
            if leader.task is None:
                leader.task = asyncio.create_task(self._read_from(leader))

    def connection_to_leader(self, partition: TopicPartition) -> BrokerConnection | None:
        """None where the partition has no leader."""
        leader = self._leader(partition)
        return leader.connection if leader is not None else None

    def tidy(self) -> None:
        """Forget what is over."""
        self._schedule.tidy(time.monotonic())
        self._batch_sizes.retain({*self._offsets.topics})
        self._logged_topics &= self._offsets.topics.keys()

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        leaders = list(self._leaders.values())
        tasks = [leader.task for leader in leaders if leader.task is not None]
        await cancel_and_wait(*tasks)
        await asyncio.gather(*(leader.connection.aclose() for leader in leaders))

    def _leader(self, partition: TopicPartition) -> _Leader | None:
        address = self._cluster.leader(*partition)
        if address is None:
            return None
        if address not in self._leaders:
            self._leaders[address] = _Leader(self._cluster.pool.dedicated(address))
        return self._leaders[address]

    def _is_due(self, lagging: Lagging) -> bool:
        partition, now_s = lagging.partition, time.monotonic()
        sampled = self._offsets.record_times.get(partition)
        return (
            (sampled is None or sampled.offset != lagging.position)
            and not self._forbidden.contains(partition.topic, now_s)
            and self._schedule.is_due(partition, lagging.read_position, now_s)
        )

    async def _read_from(self, leader: _Leader) -> None:
        try:
            while leader.pending:
                wait_s = self._budget.wait_s(time.monotonic())
                if wait_s:
                    await asyncio.sleep(wait_s)
                    continue
                level, searches = self._next_searches(leader.pending)
                reason = "no answer, or held back by a quota"
                try:
                    if searches:
                        await self._fetch(leader, level, searches)
                except KAFKA_FAILURES as error:
                    reason = error_text(error)
                    searches.update(leader.pending)
                    leader.pending.clear()
                except Exception:  # searches that are requested later are not affected
                    _log.exception("reading record times from %s:%s", *leader.connection.address)
                for search in searches.values():
                    search.end("failed", reason)
                    self._take(search)
        finally:
            leader.task = None

    def _next_searches(
        self, pending: dict[TopicPartition, Search]
    ) -> tuple[IsolationLevel, dict[TopicPartition, Search]]:
        """Taken out of `pending`: those of one isolation level that fit in one response."""
        level = next(iter(pending.values())).lagging.level
        searches: dict[TopicPartition, Search] = {}
        room = MAX_BYTES
        for partition, search in list(pending.items()):
            if search.lagging.level != level or (searches and search.size > room):
                continue
            del pending[partition]
            # Another position of the partition may have been sampled since.
            if self._is_due(search.lagging):
                searches[partition] = search
                room -= search.size
            if room <= 0 or len(searches) == _MAX_PARTITIONS:
                break
        return level, searches

    async def _fetch(
        self, leader: _Leader, level: IsolationLevel, searches: dict[TopicPartition, Search]
    ) -> None:
        """Go on with the searches, and remove those that were answered."""
        positions: dict[str, list[FetchPosition]] = {}
        for (topic, number), search in searches.items():
            positions.setdefault(topic, []).append((number, search.offset, search.size))
        self._counts.requests += 1
        fetched = await fetch(leader.connection, level, positions, MAX_BYTES)
        size = sum(len(one.records) for one in fetched)
        self._counts.bytes_read += size
        self._budget.spend(size, time.monotonic())
        async for one in with_pauses(fetched, _CHUNK):
            if one.partition not in searches:
                continue
            search = searches.pop(one.partition)
            search.take(one)
            if one.first_batch_bytes:
                self._batch_sizes.learn(one.partition.topic, one.first_batch_bytes)
            if search.outcome is not None:
                self._take(search)
            else:
                leader.pending.setdefault(one.partition, search)

    def _take(self, search: Search) -> None:
        """A search has an outcome."""
        lagging, outcome, now_s = search.lagging, search.outcome or "failed", time.monotonic()
        partition = lagging.partition
        if outcome != "forbidden" or self._forbidden.add(partition.topic, now_s):
            setattr(self._counts, outcome, getattr(self._counts, outcome) + 1)
        if outcome in _POSTPONED_S:
            until_s = now_s + _POSTPONED_S[outcome]
            self._schedule.postpone(partition, lagging.read_position, until_s)
        if outcome != "sampled":
            _log.debug("%s at %s is not sampled: %s", partition, lagging.position, search.reason)
            if outcome == "unusable":
                self._log_unusable(search)
            return
        self._forbidden.remove(partition.topic)
        topic = self._offsets.topics.get(partition.topic)
        # Not of a topic that had this name before.
        if topic is not None and topic.topic_id == lagging.topic_id:
            record_time = RecordTime(lagging.position, search.timestamp_ms)
            self._offsets.record_times[partition] = record_time
            self._schedule.show(partition, now_s)

    def _log_unusable(self, search: Search) -> None:
        """Once for each topic."""
        topic, number = search.lagging.partition
        if topic not in self._logged_topics:
            self._logged_topics.add(topic)
            _log.info(
                "Kafka cluster %s: the record at offset %d of %s partition %d has no usable"
                " timestamp: %s",
                *(self._alias, search.lagging.position, topic, number, search.reason),
            )
