"""Earliest and latest offsets of whole topics, read once: for one call, not for a service."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from sparklag_kafka.access import connection_problem
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import (
    INVALID_TOPIC,
    KAFKA_FAILURES,
    LEADER_NOT_AVAILABLE,
    NOT_LEADER,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    KafkaUnavailable,
    error_name,
)
from sparklag_kafka.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    OffsetsRequest,
    TopicPart,
    read_offsets,
)
from sparklag_kafka.protocol.metadata import TopicMetadata
from sparklag_schemas import ClusterAccess

_REASONS: Final = {
    UNKNOWN_TOPIC: "there is no such topic, or no right to see it",
    TOPIC_FORBIDDEN: "no right to see the topic",
    NOT_LEADER: "the partition changes its leader",
    LEADER_NOT_AVAILABLE: "the partition has no leader",
    INVALID_TOPIC: "that is not the name of a topic",
}


@dataclass
class TopicBounds:
    """Of one topic, as it is now."""

    absence: str | None = None
    """Why nothing is known of it. None: it exists."""
    topic_id: str | None = None
    partitions: list[int] = field(default_factory=list)
    earliest: dict[int, int] = field(default_factory=dict)
    """Log start offset, by partition."""
    latest: dict[int, int] = field(default_factory=dict)
    """High watermark."""
    unknown: dict[int, str] = field(default_factory=dict)
    """Why a partition is missing in one of these, or in both."""

    def reason(self, partition: int) -> str:
        """Why an offset of a partition is unknown."""
        reason = self.absence or self.unknown.get(partition)
        return reason or "the topic has no such partition"


async def read_bounds(topics: Collection[str], access: ClusterAccess) -> dict[str, TopicBounds]:
    """Of each topic, with all of its partitions. No topic is created by it.

    Raises KafkaUnavailable where no broker answers, SettingsError for malformed addresses.
    """
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
    """Kafka's ids of those topics that exist. Raises as `read_bounds` does."""
    async with BrokerPool(access) as pool:
        described = await _describe(pool, topics, access)
        return {topic.name: topic.topic_id for topic in described if topic.topic_id is not None}


async def read_partitions(topics: Collection[str], access: ClusterAccess) -> dict[str, list[int]]:
    """The partitions of those topics that exist and may be seen. Raises as `read_bounds` does.

    aiokafka reads all topics of the cluster for that, which holds the loop for seconds where there
    are 100,000 partitions; or it lets the broker create those that are missing.
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
    """Fill `bounds` with the offsets that one leader has."""
    connection = pool.connection(leader)
    if connection is None:
        _mark_unknown(parts, bounds, "the partition has no leader")
        return
    try:
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
        _mark_unknown(parts, bounds, "its leader does not answer")


def _mark_unknown(parts: list[TopicPart], bounds: dict[str, TopicBounds], reason: str) -> None:
    for part in parts:
        bounds[part.topic].unknown.update(dict.fromkeys(part.numbers, reason))


def _reason(error_code: int) -> str:
    return _REASONS.get(error_code) or f"Kafka answers {error_name(error_code)}"
