"""Where logs ended at earlier times, for what lags since before its topic was measured.

Leaders are asked once for each partition, by time (ListOffsets), with the right to describe only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_kafka.protocol.list_offsets import OffsetsAtRequest, read_offsets
from sparklag_schemas import IsolationLevel
from sparklag_schemas.runtime.chunks import by_count
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.log_end_history import SPACING
from sparklag_service.enrichment.record_times.lagging import Lagging
from sparklag_service.enrichment.record_times.sampler import RecordTimeCounts

_log = logging.getLogger(__name__)

_MAX_AGE_S: Final = 86_400
_MAX_PARTITIONS: Final = 1_000
"""In one request."""


def _ages_s() -> Iterator[int]:
    age_s = 1
    while age_s < _MAX_AGE_S:
        yield age_s
        # As close to each other as measured rows: see LogEndHistory.
        age_s = max(age_s + 1, int(age_s * (1 + SPACING)))
    yield _MAX_AGE_S


AGES_S: Final = tuple(_ages_s())
"""Ages at which the log's end may be looked up: a second, or 5 % of the age, apart."""

Ends = dict[tuple[int, str], dict[int, int]]
"""By age (one of AGES_S) and topic: where each partition's log ended so long ago. Each partition is
in two rows, those between which the record at its position came."""
_Key = tuple[str | None, IsolationLevel, TopicPartition]
"""The topic's id, and how the partition is read."""


def _key(lagging: Lagging) -> _Key:
    return lagging.topic_id, lagging.level, lagging.partition


class EarlierEnds:
    """Adds rows to the `log_ends` of a cluster's offsets, as far as its leaders answer."""

    def __init__(
        self,
        offsets: ClusterOffsets,
        connection_to_leader: Callable[[TopicPartition], BrokerConnection | None],
        counts: RecordTimeCounts,
    ) -> None:
        self._offsets = offsets
        self._connection_to_leader = connection_to_leader
        self._counts = counts
        self._done: set[_Key] = set()
        self._pending: dict[_Key, Lagging] = {}
        self._any_pending = asyncio.Event()

    def is_done(self, lagging: Lagging) -> bool:
        """Whether it was looked up, or need not be."""
        return _key(lagging) in self._done

    def skip(self, lagging: Lagging) -> None:
        """It need not be looked up: the topic was measured before its record came."""
        self._done.add(_key(lagging))

    def request(self, lagging: Lagging) -> None:
        self._pending[_key(lagging)] = lagging
        self._any_pending.set()

    def tidy(self) -> None:
        """Forget topics that are not watched any more."""
        self._done = {key for key in self._done if key[2].topic in self._offsets.topics}

    async def look_up_pending(self) -> None:
        """Wait until something is requested, and look it up."""
        await self._any_pending.wait()
        self._any_pending.clear()
        # Those of other queries are requested in the same pass of the loop.
        await asyncio.sleep(0)
        pending, self._pending = self._pending, {}
        by_leader: dict[tuple[BrokerConnection, IsolationLevel], list[Lagging]] = {}
        for lagging in pending.values():
            # It may have been requested again while it was in flight.
            connection = (
                None if self.is_done(lagging) else self._connection_to_leader(lagging.partition)
            )
            if connection is not None:
                by_leader.setdefault((connection, lagging.level), []).append(lagging)
        now_ms, now_s = epoch_ms(), time.monotonic()
        results = await asyncio.gather(
            *(
                self._look_up(connection, level, part, now_ms)
                for (connection, level), part in by_leader.items()
            )
        )
        # One row for each age: a topic's partitions have several leaders.
        rows: dict[tuple[int, IsolationLevel, str], dict[int, int]] = {}
        for (_, level), ends in zip(by_leader, results, strict=True):
            for (age_s, topic), row in ends.items():
                rows.setdefault((age_s, level, topic), {}).update(row)
        for (age_s, level, topic), row in sorted(rows.items()):
            if topic in self._offsets.topics:
                self._offsets.log_ends_of(level, topic).insert(now_s - age_s, row)
            # Two hundred rows of thousands of partitions each.
            await asyncio.sleep(0)

    async def _look_up(
        self, connection: BrokerConnection, level: IsolationLevel, part: list[Lagging], now_ms: int
    ) -> Ends:
        """Empty where the leader does not answer: its partitions may be requested again."""
        try:
            ends = await look_up(connection, level, part, now_ms)
        except KAFKA_FAILURES as error:
            _log.debug("%s:%s: no earlier ends of logs: %s", *connection.address, error)
            return {}
        self._counts.looked_up += len(part)
        self._done.update(map(_key, part))
        return ends


class _Bisection:
    """Finds the two ages between which the record at a partition's position came."""

    __slots__ = ("ends", "high", "lagging", "low")

    def __init__(self, lagging: Lagging) -> None:
        self.lagging = lagging
        self.low, self.high = 0, len(AGES_S)
        self.ends: dict[int, int] = {}
        """By index of the age."""

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def take(self, end: int) -> None:
        """The log's end at the age in the middle."""
        index, latest = self.middle, self.lagging.latest.offset
        # Without a record as new as that the log ended where it ends now.
        self.ends[index] = latest if end < 0 else min(end, latest)
        if self.ends[index] <= self.lagging.position:
            self.high = index
        else:
            self.low = index + 1


async def look_up(
    connection: BrokerConnection, level: IsolationLevel, wanted: Iterable[Lagging], now_ms: int
) -> Ends:
    """Look up partitions of one leader. Those it does not lead are left out. Raises one of
    KAFKA_FAILURES."""
    pending = {lagging.partition: _Bisection(lagging) for lagging in wanted}
    ends: Ends = {}
    while pending:
        times_ms = {part: now_ms - AGES_S[one.middle] * 1_000 for part, one in pending.items()}
        offsets = await _offsets_at(connection, level, times_ms)
        pending = {part: one for part, one in pending.items() if part in offsets}
        for (topic, number), bisection in list(pending.items()):
            bisection.take(offsets[topic, number])
            if bisection.low == bisection.high:
                del pending[TopicPartition(topic, number)]
                for index in {bisection.low - 1, bisection.low} & bisection.ends.keys():
                    row = ends.setdefault((AGES_S[index], topic), {})
                    row[number] = bisection.ends[index]
    return ends


async def _offsets_at(
    connection: BrokerConnection, level: IsolationLevel, times_ms: Mapping[TopicPartition, int]
) -> dict[tuple[str, int], int]:
    """The first offset whose record has that timestamp or a later one, -1 where there is none, by
    topic and partition."""
    offsets = {}
    for chunk in by_count(times_ms.items(), _MAX_PARTITIONS):
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, number), at_ms in chunk:
            by_topic.setdefault(topic, {})[number] = at_ms
        response: bytes = await connection.send(OffsetsAtRequest(level, by_topic))
        for topic, partitions in read_offsets(response):
            for number, error_code, _, offset in partitions:
                if error_code == 0:
                    offsets[topic, number] = offset
    return offsets
