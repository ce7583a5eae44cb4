"""How far behind a checkpoint is, by one look at Kafka: for one answer, not for a service."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.conn import collect_hosts
from aiokafka.errors import for_code

from sparklag_offsets.brokers.broker_link import BROKER_FAILURES, BrokerLink
from sparklag_offsets.brokers.first_answer import first_answer
from sparklag_offsets.brokers.metadata_request import MetadataAnswer, MetadataRequest
from sparklag_offsets.brokers.offset_requests import (
    LATEST,
    OffsetsRequest,
    TopicPart,
    read_offsets,
)
from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.errors import KafkaAway
from sparklag_schemas import KafkaSettings, Offsets
from sparklag_schemas.connection import client_options, explain_failure, quiet_client_logs

Unknown = dict[str, dict[int, str]]

_REASONS: Final = {
    "UnknownTopicOrPartitionError": "there is no such topic, or no right to see it",
    "TopicAuthorizationFailedError": "no right to see the topic",
    "NotLeaderForPartitionError": "the partition changes its leader",
    "LeaderNotAvailableError": "the partition has no leader",
    "InvalidTopicError": "that is not the name of a topic",
}


@dataclass
class LatestOffsets:
    """Log ends (high watermarks), and why those that are missing are."""

    offsets: Offsets = field(default_factory=dict)
    unknown: Unknown = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> int | str:
        """The offset, or else the reason."""
        found = self.offsets.get(topic, {}).get(partition)
        return found if found is not None else self.unknown[topic][partition]


@dataclass(frozen=True)
class SourceLag:
    """Of one source's processed offsets. Null where it is not known, `reasons` says why."""

    latest: dict[str, dict[int, int | None]]
    lag: dict[str, dict[int, int | None]]
    reasons: Unknown


def read_latest(
    position: CheckpointPosition, bootstrap_servers: str, kafka: KafkaSettings
) -> LatestOffsets:
    """The log ends of all that the checkpoint names. Blocking; no topic is created by it.

    Raises KafkaAway where no broker answers, SettingsError for addresses that are none.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for source in position.sources:
        for offsets in (source.processed, source.planned):
            for topic, partitions in (offsets or {}).items():
                wanted[topic] |= partitions.keys()
    quiet_client_logs()
    return asyncio.run(_Asking(bootstrap_servers, kafka).read(wanted))


def lag_of(processed: Offsets | None, latest: LatestOffsets) -> SourceLag:
    """Latest less processed. Less than none is not known: the topic was created anew."""
    result = SourceLag({}, {}, {})
    for topic, partitions in (processed or {}).items():
        ends = result.latest[topic] = {}
        lags = result.lag[topic] = {}
        for partition, offset in partitions.items():
            found = latest.of(topic, partition)
            ends[partition] = found if isinstance(found, int) else None
            lags[partition] = None
            if isinstance(found, str):
                result.reasons.setdefault(topic, {})[partition] = found
            elif found < offset:
                reason = "its log ends before the processed offset: the topic was created anew"
                result.reasons.setdefault(topic, {})[partition] = reason
            else:
                lags[partition] = found - offset
    return result


class _Asking:
    def __init__(self, bootstrap_servers: str, kafka: KafkaSettings) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._kafka = kafka
        self._options: dict[str, Any] = client_options(bootstrap_servers, kafka)
        del self._options["bootstrap_servers"]
        self._found = LatestOffsets()

    async def read(self, wanted: Mapping[str, set[int]]) -> LatestOffsets:
        if not wanted:
            return self._found
        brokers, topics = (await self._metadata(sorted(wanted))).read()
        by_leader: dict[int, list[TopicPart]] = defaultdict(list)
        for topic in topics:
            partitions: dict[int, list[int]] = defaultdict(list)
            for number in sorted(wanted[topic.name]):
                leader = topic.leaders.get(number)
                if topic.error_code:
                    self._fail(topic.name, [number], _reason(topic.error_code))
                elif leader is None:
                    self._fail(topic.name, [number], "the topic has no such partition")
                elif leader not in brokers:
                    self._fail(topic.name, [number], "the partition has no leader")
                else:
                    partitions[leader].append(number)
            for leader, numbers in partitions.items():
                by_leader[leader].append(TopicPart(topic.name, tuple(numbers)))
        await asyncio.gather(
            *(self._ask_leader(brokers[leader], parts) for leader, parts in by_leader.items())
        )
        return self._found

    async def _metadata(self, topics: list[str]) -> MetadataAnswer:
        hosts = collect_hosts(self._bootstrap_servers)
        links = [self._link(host, port) for host, port, _ in hosts]
        try:
            first = await first_answer(links, MetadataRequest(topics))
        finally:
            for link in links:
                await link.aclose()
        if first is not None:
            answer: MetadataAnswer = first.answer
            return answer
        cause = await explain_failure(self._bootstrap_servers, self._kafka)
        raise KafkaAway(f"Kafka at {self._bootstrap_servers}: {cause or 'no broker answers'}")

    async def _ask_leader(self, address: tuple[str, int], parts: list[TopicPart]) -> None:
        link = self._link(*address)
        try:
            answer = await link.ask(OffsetsRequest("read_uncommitted", parts, LATEST))
        except BROKER_FAILURES:
            for part in parts:
                self._fail(part.topic, part.numbers, "its leader does not answer")
            return
        finally:
            await link.aclose()
        for topic, answered in read_offsets(answer):
            for number, error_code, _, offset in answered:
                if error_code:
                    self._fail(topic, [number], _reason(error_code))
                else:
                    self._found.offsets.setdefault(topic, {})[number] = offset

    def _link(self, host: str, port: int) -> BrokerLink:
        return BrokerLink(host, port, self._options, self._kafka.request_timeout_s)

    def _fail(self, topic: str, numbers: list[int] | tuple[int, ...], reason: str) -> None:
        self._found.unknown.setdefault(topic, {}).update(dict.fromkeys(numbers, reason))


def _reason(error_code: int) -> str:
    name = for_code(error_code).__name__
    return _REASONS.get(name, f"Kafka answers {name}")
