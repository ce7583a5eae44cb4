"""Where logs begin and end, by one look at Kafka: for one answer, not for a service."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.conn import collect_hosts
from aiokafka.errors import for_code

from sparklag_kafka.brokers.connection import BROKER_FAILURES, BrokerConnection
from sparklag_kafka.brokers.first_answer import first_answer
from sparklag_kafka.clients.connection import TrustedBrokers, client_options, explain_failure
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_kafka.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    Moment,
    OffsetsRequest,
    TopicPart,
    read_offsets,
)
from sparklag_kafka.protocol.metadata import MetadataAnswer, MetadataRequest
from sparklag_schemas import ClusterAccess

_REASONS: Final = {
    "UnknownTopicOrPartitionError": "there is no such topic, or no right to see it",
    "TopicAuthorizationFailedError": "no right to see the topic",
    "NotLeaderForPartitionError": "the partition changes its leader",
    "LeaderNotAvailableError": "the partition has no leader",
    "InvalidTopicError": "that is not the name of a topic",
}
_LEADER_AWAY: Final = "its leader does not answer"


@dataclass
class TopicBounds:
    """Of one topic, as it is now."""

    absence: str | None = None
    """Why nothing is known of it. None: it is there."""
    topic_id: str | None = None
    partitions: list[int] = field(default_factory=list)
    earliest: dict[int, int] = field(default_factory=dict)
    """First offset that is still there, by partition."""
    latest: dict[int, int] = field(default_factory=dict)
    """High watermark."""
    unknown: dict[int, str] = field(default_factory=dict)
    """Why a partition is in neither, or in one only."""

    def reason(self, partition: int) -> str:
        """Why nothing, or not all, is known of a partition."""
        reason = self.absence or self.unknown.get(partition)
        return reason or "the topic has no such partition"


async def read_bounds(topics: Collection[str], access: ClusterAccess) -> dict[str, TopicBounds]:
    """Of each topic, with all of its partitions. No topic is created by it.

    Raises KafkaUnavailable where no broker answers, SettingsError for addresses that are none.
    """
    return await _Look(access).read(sorted(topics)) if topics else {}


async def read_topic_ids(topics: Collection[str], access: ClusterAccess) -> dict[str, str]:
    """Kafka's ids of those topics that are there. Raises as `read_bounds` does."""
    _, found = (await _Look(access).metadata(sorted(topics))).read()
    return {topic.name: topic.topic_id for topic in found if topic.topic_id is not None}


class _Look:
    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._options: dict[str, Any] = client_options(access)
        del self._options["bootstrap_servers"]
        self._trusted = TrustedBrokers(access)
        self._found: dict[str, TopicBounds] = {}

    async def read(self, topics: list[str]) -> dict[str, TopicBounds]:
        brokers, described = (await self.metadata(topics)).read()
        by_leader: dict[int, list[TopicPart]] = defaultdict(list)
        for topic in described:
            found = self._found[topic.name] = TopicBounds(
                _reason(topic.error_code) if topic.error_code else None,
                topic.topic_id,
                sorted(topic.leaders),
            )
            led_by: dict[int, list[int]] = defaultdict(list)
            for number, leader in sorted(topic.leaders.items()):
                if leader in brokers:
                    led_by[leader].append(number)
                else:
                    found.unknown[number] = "the partition has no leader"
            for leader, numbers in led_by.items():
                by_leader[leader].append(TopicPart(topic.name, tuple(numbers)))
        await asyncio.gather(
            *(self._ask_leader(brokers[leader], parts) for leader, parts in by_leader.items())
        )
        return self._found

    async def metadata(self, topics: list[str]) -> MetadataAnswer:
        hosts = collect_hosts(self._access.bootstrap_servers)
        links = [self._link(host, port) for host, port, _ in hosts]
        try:
            first = await first_answer(links, MetadataRequest(topics))
        finally:
            for link in links:
                await link.aclose()
        if first is not None:
            answer: MetadataAnswer = first.answer
            return answer
        cause = await explain_failure(self._access)
        raise KafkaUnavailable(
            f"Kafka at {self._access.bootstrap_servers}: {cause or 'no broker answers'}"
        )

    async def _ask_leader(self, address: tuple[str, int], parts: list[TopicPart]) -> None:
        link = self._link(*address)
        try:
            await self._ask(link, parts, EARLIEST)
            await self._ask(link, parts, LATEST)
        except BROKER_FAILURES:
            for part in parts:
                unknown = dict.fromkeys(part.numbers, _LEADER_AWAY)
                self._found[part.topic].unknown.update(unknown)
        finally:
            await link.aclose()

    async def _ask(self, link: BrokerConnection, parts: list[TopicPart], moment: Moment) -> None:
        answer = await link.ask(OffsetsRequest("read_uncommitted", parts, moment))
        for topic, answered in read_offsets(answer):
            found = self._found[topic]
            offsets = found.earliest if moment == EARLIEST else found.latest
            for number, error_code, _, offset in answered:
                if error_code:
                    found.unknown[number] = _reason(error_code)
                else:
                    offsets[number] = offset

    def _link(self, host: str, port: int) -> BrokerConnection:
        return BrokerConnection(
            host, port, self._options, self._trusted, self._access.kafka.request_timeout_s
        )


def _reason(error_code: int) -> str:
    name = for_code(error_code).__name__
    return _REASONS.get(name, f"Kafka answers {name}")
