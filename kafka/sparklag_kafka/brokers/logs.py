"""Partition logs: their bounds (for a single call, not for a service), records at an offset, and
offsets by timestamp.

aiokafka encodes and decodes fetches; its parser decides which records a consumer gets.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition

from sparklag_kafka import errors
from sparklag_kafka.access import connection_problem
from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, KafkaUnavailable, RecordsUnreadable, Undecodable
from sparklag_kafka.protocol.encoding import CONSUMER_REPLICA_ID, ISOLATION_CODES
from sparklag_kafka.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    OffsetsRequest,
    TopicPart,
    read_offsets,
)
from sparklag_kafka.protocol.metadata import TopicMetadata
from sparklag_kafka.protocol.record_batches import BoundedRecords
from sparklag_schemas import ClusterAccess, IsolationLevel
from sparklag_schemas.runtime.queue import by_count

_REASONS: Final = {
    errors.UNKNOWN_TOPIC: "there is no such topic, or no right to see it",
    errors.TOPIC_FORBIDDEN: "no right to see the topic",
    errors.NOT_LEADER: "the partition changes its leader",
    errors.LEADER_NOT_AVAILABLE: "the partition has no leader",
    errors.INVALID_TOPIC: "that is not the name of a topic",
}


@dataclass
class TopicBounds:
    """The current bounds of one topic's partitions."""

    absence: str | None = None
    """Why the topic cannot be read. None: it exists."""
    topic_id: str | None = None
    partitions: list[int] = field(default_factory=list)
    earliest: dict[int, int] = field(default_factory=dict)
    """Log start offset, by partition."""
    latest: dict[int, int] = field(default_factory=dict)
    """High watermark."""
    unknown: dict[int, str] = field(default_factory=dict)
    """Why a partition is missing in `earliest`, `latest` or both."""

    def reason(self, partition: int) -> str:
        """Why an offset of a partition is unknown."""
        return self.absence or self.unknown.get(partition) or "the topic has no such partition"


async def read_bounds(topics: Collection[str], access: ClusterAccess) -> dict[str, TopicBounds]:
    """The bounds of all partitions of each topic. Does not create topics. Raises KafkaUnavailable
    where no broker answers, SettingsError for malformed addresses."""
    if not topics:
        return {}
    async with BrokerPool(access) as pool:
        bounds: dict[str, TopicBounds] = {}
        by_leader: dict[int, list[TopicPart]] = defaultdict(list)
        for topic in await _describe(pool, topics, access):
            absence = _reason(topic.error_code) if topic.error_code else None
            bounds[topic.name] = TopicBounds(absence, topic.topic_id, sorted(topic.leaders))
            led_by: dict[int, list[int]] = defaultdict(list)
            for number, leader in sorted(topic.leaders.items()):
                led_by[leader].append(number)
            for leader, numbers in led_by.items():
                by_leader[leader].append(TopicPart(topic.name, tuple(numbers)))
        await asyncio.gather(
            *(_read_from(pool, leader, parts, bounds) for leader, parts in by_leader.items())
        )
        return bounds


async def read_topic_ids(topics: Collection[str], access: ClusterAccess) -> dict[str, str]:
    """The topic ids of the existing topics. Raises as `read_bounds` does."""
    async with BrokerPool(access) as pool:
        described = await _describe(pool, topics, access)
        return {topic.name: topic.topic_id for topic in described if topic.topic_id is not None}


async def read_partitions(topics: Collection[str], access: ClusterAccess) -> dict[str, list[int]]:
    """The partitions of the existing, visible topics. Raises as `read_bounds` does.

    aiokafka would read all topics of the cluster, which blocks the loop for seconds with 100,000
    partitions, or would let the broker create missing topics.
    """
    async with BrokerPool(access) as pool:
        described = await _describe(pool, topics, access)
        return {topic.name: sorted(topic.leaders) for topic in described if topic.leaders}


async def _describe(
    pool: BrokerPool, topics: Collection[str], access: ClusterAccess
) -> Iterator[TopicMetadata]:
    described = await pool.refresh(sorted(topics))
    if described is None:
        cause = await connection_problem(access) or "no broker answers"
        raise KafkaUnavailable(f"Kafka at {access.bootstrap_servers}: {cause}")
    return described


async def _read_from(
    pool: BrokerPool, leader: int, parts: list[TopicPart], bounds: dict[str, TopicBounds]
) -> None:
    connection, reason = pool.connection(leader), _REASONS[errors.LEADER_NOT_AVAILABLE]
    try:
        if connection is None:
            raise KafkaUnavailable(reason)
        reason = "its leader does not answer"
        for timestamp in (EARLIEST, LATEST):
            request = OffsetsRequest("read_uncommitted", parts, timestamp)
            for topic, partitions in read_offsets(await connection.send(request)):
                offsets = bounds[topic].earliest if timestamp == EARLIEST else bounds[topic].latest
                for number, error_code, _, offset in partitions:
                    if error_code:
                        bounds[topic].unknown[number] = _reason(error_code)
                    else:
                        offsets[number] = offset
    except KAFKA_FAILURES:
        for part in parts:
            bounds[part.topic].unknown.update(dict.fromkeys(part.numbers, reason))


def _reason(error_code: int) -> str:
    return _REASONS.get(error_code) or f"Kafka answers {errors.error_name(error_code)}"


_NO_WAIT: Final = 0
_WITH_READ_REPLICA: Final = 11
_MAX_OFFSETS: Final = 1_000
"""The limit of one request."""
_MAX_DECODED_BYTES: Final = 4 * 1024 * 1024
_CLOSE_MS: Final = 1_000
"""The records of a batch that cannot be decoded get the first timestamp if all are this close to
it."""
_DELETE_HORIZON: Final = 0x40
"""With this flag the first timestamp is the time at which the cleaner may delete the batch."""
_MALFORMED: Final = (KafkaError, StructError, ValueError, TypeError, IndexError, OverflowError)
"""The errors of aiokafka's parser, in C and in Python, for bytes that are not records."""

_MAGIC: Final = 2
_PREFIX = Struct(">qiib")
"""Base offset, length, leader epoch and magic of a batch."""
_UNCOUNTED_BYTES: Final = 12
"""Bytes before and including the length, which it does not count."""

FetchPosition = tuple[int, int, int]
"""Partition, fetch offset, and maximum bytes. The response leaves out a larger batch, except the
first one of the request."""


class FetchedPartition(NamedTuple):
    """A partition of a Fetch response."""

    partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions."""
    records: bytes
    """Whole batches, and possibly the beginning of another one."""

    @property
    def first_batch_bytes(self) -> int:
        """The size of the first batch; 0: there is none."""
        if len(self.records) < _PREFIX.size:
            return 0
        return _UNCOUNTED_BYTES + int(_PREFIX.unpack_from(self.records)[1])

    def end_offset(self, level: IsolationLevel) -> int:
        """The offset at which a consumer with that isolation level reaches the end."""
        return self.last_stable_offset if level == "read_committed" else self.high_watermark

    def first_record(self, offset: int, level: IsolationLevel) -> tuple[int | None, int]:
        """The timestamp of the first record that a consumer gets at or after `offset` (epoch
        milliseconds, -1: the record has none, None: no record), and the first offset at which there
        may be a record. Raises RecordsUnreadable."""
        _require_current_format(self.records)

        def refuse(base_offset: int, next_offset: int, reason: str) -> None:
            raise Undecodable(reason)

        batches = BoundedRecords(self.records, _MAX_DECODED_BYTES, refuse)
        records = PartitionRecords(
            *(self.partition, batches, self.aborted, offset),
            *(None, None, False, ISOLATION_CODES[level]),
        )
        try:
            record = next(records, None)
        except Undecodable as error:
            timestamp_ms = _header_timestamp_ms(batches.last_batch, offset)
            if timestamp_ms is None:
                raise RecordsUnreadable(f"a batch that cannot be decoded: {error}") from error
            return timestamp_ms, offset
        except _MALFORMED as error:
            raise RecordsUnreadable(f"malformed batches: {error}") from error
        if record is None:
            return None, max(offset, records.next_fetch_offset)
        return record.timestamp, offset


async def fetch(
    connection: BrokerConnection,
    level: IsolationLevel,
    positions: Mapping[str, Sequence[FetchPosition]],
    max_bytes: int,
) -> list[FetchedPartition]:
    """Fetch the available records at these positions of each topic, without waiting for more.
    Partitions that the leader throttles are missing. Raises one of KAFKA_FAILURES."""
    request = FetchRequest(
        _NO_WAIT, _NO_WAIT, max_bytes, ISOLATION_CODES[level], list(positions.items())
    )
    response = await connection.send(request)
    aborted_index = -3 if response.API_VERSION >= _WITH_READ_REPLICA else -2
    return [
        FetchedPartition(
            *(TopicPartition(topic, number), error_code, high_watermark, last_stable_offset),
            *(rest[aborted_index] or [], rest[-1] or b""),
        )
        for topic, partitions in response.topics
        for number, error_code, high_watermark, last_stable_offset, *rest in partitions
    ]


async def offsets_at(
    connection: BrokerConnection, level: IsolationLevel, times_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset of the first record with that timestamp (epoch milliseconds) or a later one; -1:
    none. Partitions that the broker does not lead are missing. Raises one of KAFKA_FAILURES."""
    offsets = {}
    for chunk in by_count(times_ms.items(), _MAX_OFFSETS):
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for (topic, number), at_ms in chunk:
            by_topic.setdefault(topic, []).append((number, at_ms))
        code = ISOLATION_CODES[level]
        request = OffsetRequest(CONSUMER_REPLICA_ID, code, list(by_topic.items()))
        for topic, partitions in (await connection.send(request)).topics:
            for number, error_code, _, offset in partitions:
                if error_code == 0:
                    offsets[TopicPartition(topic, number)] = offset
    return offsets


def _require_current_format(records: bytes) -> None:
    """aiokafka's compiled parser of older formats reads beyond the end of malformed batches."""
    at = 0
    while len(records) - at >= _PREFIX.size:
        _, length, _, magic = _PREFIX.unpack_from(records, at)
        if magic != _MAGIC:
            raise RecordsUnreadable("a message format older than Kafka 0.11's, or an unknown one")
        at += _UNCOUNTED_BYTES + max(0, length)


def _header_timestamp_ms(batch: Any, offset: int) -> int | None:
    """The timestamp of the first record at or after `offset` in a batch that cannot be decoded, if
    its header has the timestamp."""
    first_ms, max_ms = int(batch.first_timestamp), int(batch.max_timestamp)
    if batch.timestamp_type:
        return max_ms
    is_first = offset <= batch.base_offset and not batch.attributes & _DELETE_HORIZON
    is_close = 0 <= max_ms - first_ms <= _CLOSE_MS
    return first_ms if is_first or is_close else None
