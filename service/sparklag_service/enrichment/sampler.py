"""Reads record timestamps, many in one request, with one request at a time to each leader."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.logs import FetchPosition, fetch
from sparklag_kafka.brokers.pool import BrokerConnection
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_kafka.protocol.metadata import Address
from sparklag_schemas import IsolationLevel
from sparklag_schemas.runtime.tasks import cancel_and_wait, with_pauses
from sparklag_service.counters import Counts, count
from sparklag_service.enrichment.cluster_offsets import NoRecords, RecordTime
from sparklag_service.enrichment.record_search import (
    MAX_BYTES,
    BatchSizes,
    ByteBudget,
    Lagging,
    Outcome,
    Postponed,
    Search,
)
from sparklag_service.enrichment.watched_cluster import WatchedCluster

_log = logging.getLogger(__name__)

_MAX_PARTITIONS: Final = 500
"""In one request."""
_CHUNK: Final = 25
"""Partitions read before other tasks run: decoding their batches takes some milliseconds."""
_POSTPONED_S: Final[dict[Outcome, float]] = {
    "sampled": 600.0,
    "unusable": 600.0,
    "out_of_range": 60.0,
}
"""How long a position is not sampled again, even if its query has advanced. Other outcomes are
sampled again on the next request."""
FORBIDDEN_S: Final = 600.0
"""How long a topic without the Read right is postponed."""
_FEW: Final = 1_000
_FEW_S: Final = 60.0
"""The same for a sampled position with a lag of a few offsets: a compaction may remove the records,
and leave the markers of their transactions."""
_SHOWN_S: Final = 3.0
"""How long a timestamp is not replaced by another position's: each evaluation uses it first."""


@dataclass
class RecordTimeCounts(Counts):
    """Counts since the start of this instance, of one cluster."""

    sampled: int = count("Records whose time was read.")
    requests: int = count("Fetch requests.")
    bytes_read: int = count("Record batches that were fetched, bytes.")
    unusable: int = count("Positions whose record has no time, is too large, or cannot be decoded.")
    out_of_range: int = count("Positions outside the log.")
    nothing_there: int = count(
        "Positions without a record after them yet: the rest of a transaction, or a gap."
    )
    forbidden: int = count("Times a topic was skipped: sparklag may not read it.")
    failed: int = count("Positions without a response of their leader; they are requested again.")
    looked_up: int = count("Partitions whose earlier log ends were looked up by time.")


@dataclass(eq=False)
class _Leader:
    """A leader whose partitions are read at one isolation level."""

    connection: BrokerConnection
    level: IsolationLevel
    pending: dict[TopicPartition, Search] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    """Runs while there are pending searches."""


@dataclass(eq=False, repr=False)
class Sampler:
    """Writes `record_times` of a cluster's offsets.

    A leader that does not respond delays only its own partitions.
    """

    _cluster: WatchedCluster
    _counts: RecordTimeCounts
    _budget: ByteBudget
    _clock: Callable[[], float] = time.monotonic
    _batch_sizes: BatchSizes = field(default_factory=BatchSizes)
    _postponed: Postponed = field(default_factory=Postponed)
    _logged: set[tuple[str, Outcome]] = field(default_factory=set)
    _leaders: dict[tuple[Address, IsolationLevel], _Leader] = field(default_factory=dict)

    def request(self, lagging: Lagging) -> None:
        """Sample a position, if it is due. Returns at once.

        The request replaces the partition's pending position: stale positions do not accumulate.
        """
        leader = self._leader(lagging) if self._is_due(lagging) else None
        if leader is not None:
            size = self._batch_sizes.usual(lagging.partition.topic)
            leader.pending[lagging.partition] = Search(lagging, size)
            if leader.task is None:
                leader.task = asyncio.create_task(self._read_from(leader))

    def connection_to_leader(self, lagging: Lagging) -> BrokerConnection | None:
        """The connection to the partition's leader at its isolation level. None: no leader."""
        leader = self._leader(lagging)
        return leader.connection if leader is not None else None

    def tidy(self) -> None:
        """Forget postponed positions that are due, and topics that are no longer watched."""
        self._postponed.tidy(self._clock())
        self._batch_sizes.retain(self._cluster.offsets)
        self._logged = {key for key in self._logged if key[0] in self._cluster.offsets}

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        leaders = list(self._leaders.values())
        tasks = [leader.task for leader in leaders if leader.task is not None]
        await cancel_and_wait(*tasks)
        await asyncio.gather(*(leader.connection.aclose() for leader in leaders))

    def _leader(self, lagging: Lagging) -> _Leader | None:
        address = self._cluster.leader(*lagging.partition)
        if address is None:
            return None
        key = (address, lagging.level)
        if key not in self._leaders:
            self._leaders[key] = _Leader(self._cluster.pool.dedicated(address), lagging.level)
        return self._leaders[key]

    def _is_due(self, lagging: Lagging) -> bool:
        partition, now_s = lagging.partition, self._clock()
        keys = (partition.topic, partition, lagging.key)
        return not any(self._postponed.contains(key, now_s) for key in keys)

    async def _read_from(self, leader: _Leader) -> None:
        try:
            while leader.pending:
                wait_s = self._budget.wait_s(self._clock())
                if wait_s:
                    await asyncio.sleep(wait_s)
                    continue
                searches = self._next_searches(leader.pending)
                reason = "no answer, or held back by a quota"
                try:
                    if searches:
                        await self._fetch(leader, searches)
                except KAFKA_FAILURES as error:
                    reason = error_text(error)
                    searches.update(leader.pending)
                    leader.pending.clear()
                except Exception:  # searches that are requested later are not affected
                    _log.exception("reading record times from %s:%s", *leader.connection.address)
                for search in searches.values():
                    search.outcome, search.reason = "failed", reason
                    self._end(search, "failed")
        finally:
            leader.task = None

    def _next_searches(self, pending: dict[TopicPartition, Search]) -> dict[TopicPartition, Search]:
        """The searches that fit in one response, removed from `pending`."""
        searches: dict[TopicPartition, Search] = {}
        room = MAX_BYTES
        for partition, search in list(pending.items()):
            if searches and search.size > room:
                continue
            del pending[partition]
            # Another position of the partition may have been sampled meanwhile.
            if self._is_due(search.lagging):
                searches[partition] = search
                room -= search.size
            if room <= 0 or len(searches) == _MAX_PARTITIONS:
                break
        return searches

    async def _fetch(self, leader: _Leader, searches: dict[TopicPartition, Search]) -> None:
        """Continue the searches, and remove those with a response."""
        positions: dict[str, list[FetchPosition]] = {}
        for (topic, number), search in searches.items():
            positions.setdefault(topic, []).append((number, search.offset, search.size))
        self._counts.requests += 1
        fetched = await fetch(leader.connection, leader.level, positions, MAX_BYTES)
        size = sum(len(part.records) for part in fetched)
        self._counts.bytes_read += size
        self._budget.spend(size, self._clock())
        async for part in with_pauses(fetched, _CHUNK):
            if part.partition not in searches:
                continue
            search = searches.pop(part.partition)
            search.take(part)
            if part.first_batch_bytes:
                self._batch_sizes.learn(part.partition.topic, part.first_batch_bytes)
            if search.outcome is not None:
                self._end(search, search.outcome)
            else:
                leader.pending.setdefault(part.partition, search)

    def _end(self, search: Search, outcome: Outcome) -> None:
        """Count the outcome, and postpone the position, its partition or its topic."""
        lagging, now_s = search.lagging, self._clock()
        partition, topic = lagging.partition, lagging.partition.topic
        if outcome != "forbidden" or not self._postponed.contains(topic, now_s):
            setattr(self._counts, outcome, getattr(self._counts, outcome) + 1)
        if outcome in _POSTPONED_S:
            pause_s = _POSTPONED_S[outcome]
            if outcome == "sampled" and lagging.latest.offset - lagging.position <= _FEW:
                pause_s = _FEW_S
            self._postponed.add(lagging.key, now_s + pause_s)
        _log.debug("%s at %s is %s: %s", partition, lagging.position, outcome, search.reason)
        offsets = self._cluster.offsets.get(topic)
        # A topic with another id was recreated: the result is not its own.
        if offsets is not None and offsets.description.topic_id != lagging.topic_id:
            offsets = None
        if outcome == "sampled":
            self._logged.discard((topic, "forbidden"))
            if offsets is not None:
                record_time = RecordTime(lagging.position, search.timestamp_ms, lagging.level)
                offsets.record_times[partition.partition] = record_time
                self._postponed.add(partition, now_s + _SHOWN_S)
        elif outcome == "nothing_there" and offsets is not None:
            ranges, start, since_s = offsets.without_records[lagging.level], lagging.position, now_s
            known = ranges.get(partition.partition)
            if known is not None and known.is_next_to(start):
                # More of the same: the query is still where it was.
                start, since_s = known.start, known.since_s
            ranges[partition.partition] = NoRecords(start, search.offset, since_s)
        elif outcome == "forbidden":
            self._postponed.add(topic, now_s + FORBIDDEN_S)
        if outcome in ("forbidden", "unusable") and (topic, outcome) not in self._logged:
            self._logged.add((topic, outcome))
            self._explain(search)

    def _explain(self, search: Search) -> None:
        """Log why a topic has no timestamps, once for each topic and outcome."""
        topic, number = search.lagging.partition
        if search.outcome == "forbidden":
            _log.warning(
                "Kafka cluster %s: no right to read topic %s: the age of its records is estimated"
                " from log growth; to read it, allow Read, or set time_lag.sample = false",
                *(self._cluster.alias, topic),
            )
        else:
            _log.info(
                "Kafka cluster %s: the record at offset %d of %s partition %d has no usable"
                " timestamp: %s",
                *(self._cluster.alias, search.lagging.position, topic, number, search.reason),
            )
