"""Latest and earliest offsets of partitions, asked of each leader by itself.

`AIOKafkaConsumer.end_offsets` fails as a whole, after its full time-out, where one partition has
no leader or one broker does not answer; and on its way it asks for the metadata of unknown topics
in a form that lets the broker create them. `LogOffsets` is that consumer with the same request
underneath (ListOffsets), sent once to each leader: errors stay with their partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel

_LATEST, _EARLIEST = -1, -2
_NO_LEADER = -1
_CONSUMER = -1
"""The replica id of one that is no replica."""
_METADATA_TOPICS = 200
"""Topics asked for in one metadata request: decoding an answer blocks the loop."""


class Offsets(NamedTuple):
    """What the leaders said: an offset, or the reason why there is none, for each partition."""

    known: dict[TopicPartition, int]
    unknown: dict[TopicPartition, str]


class LogOffsets(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """A consumer without a subscription, for one isolation level.

    `timeout_s` bounds each broker's answer, `metadata_interval_s` how old the list of leaders is.
    """

    def __init__(
        self,
        *,
        isolation_level: IsolationLevel,
        timeout_s: float,
        metadata_interval_s: float,
        **options: Any,
    ) -> None:
        # Its own idle refresh asks for every topic of the cluster; ours asks for those watched.
        super().__init__(
            **options,
            isolation_level=isolation_level,
            metadata_max_age_ms=24 * 3_600_000,
            enable_auto_commit=False,
        )
        self._up_to = 1 if isolation_level == "read_committed" else 0
        self._timeout_s = timeout_s
        self._metadata_interval_s = metadata_interval_s
        self._leaders: dict[str, dict[int, int]] = {}
        self._refused: dict[str, str] = {}
        self._leaders_until: dict[str, float] = {}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The offset after the last record (last stable one with `read_committed`)."""
        return await self._list_offsets(set(partitions), _LATEST)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The offset of the first record that is still there."""
        return await self._list_offsets(set(partitions), _EARLIEST)

    async def partitions_of(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        """The partitions of each topic; none for one that is missing or forbidden."""
        await self._learn_leaders({topic for topic in topics if self._outdated(topic)})
        return {topic: frozenset(self._leaders.get(topic, ())) for topic in topics}

    async def _list_offsets(self, wanted: set[TopicPartition], moment: int) -> Offsets:
        answer = Offsets({}, {})
        await self._learn_leaders({p.topic for p in wanted if self._outdated(p.topic)})
        stale = await self._ask_leaders(wanted, moment, answer)
        if stale:
            # A leader moved. Once more with new metadata; what is still wrong then is reported.
            await self._learn_leaders({partition.topic for partition in stale})
            await self._ask_leaders(stale, moment, answer)
        return answer

    async def _ask_leaders(
        self, wanted: set[TopicPartition], moment: int, answer: Offsets
    ) -> set[TopicPartition]:
        """Fill `answer`; the partitions that a leader said are not its own."""
        by_leader: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for partition in wanted:
            answer.unknown.pop(partition, None)
            leader = self._leaders.get(partition.topic, {}).get(partition.partition)
            if leader is None:
                answer.unknown[partition] = self._refused.get(
                    partition.topic, f"topic {partition.topic} has no such partition"
                )
            elif leader == _NO_LEADER:
                answer.unknown[partition] = "the partition has no leader"
            else:
                by_leader[leader][partition.topic].append((partition.partition, moment))
        stale = await asyncio.gather(
            *(self._ask(leader, topics, answer) for leader, topics in by_leader.items())
        )
        return set().union(*stale)

    async def _ask(
        self, leader: int, topics: dict[str, list[tuple[int, int]]], answer: Offsets
    ) -> set[TopicPartition]:
        request = OffsetRequest(_CONSUMER, self._up_to, list(topics.items()))
        try:
            response = await asyncio.wait_for(self._client.send(leader, request), self._timeout_s)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            reason = _reason(error, leader, self._timeout_s)
            asked = {TopicPartition(t, p) for t, ps in topics.items() for p, _ in ps}
            answer.unknown.update(dict.fromkeys(asked, reason))
            self._expire(topics)
            # Not asked again in this pass: that would cost its deadline twice.
            return set()
        stale = set()
        for topic, partitions in response.topics:
            for number, error_code, _timestamp, offset in partitions:
                partition = TopicPartition(topic, number)
                if error_code == 0:
                    answer.known[partition] = offset
                    continue
                refusal = for_code(error_code)
                answer.unknown[partition] = f"the leader answers {refusal.__name__}"
                if refusal.invalid_metadata:
                    stale.add(partition)
        return stale

    def _outdated(self, topic: str) -> bool:
        return self._leaders_until.get(topic, 0.0) <= time.monotonic()

    def _expire(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._leaders_until.pop(topic, None)

    async def _learn_leaders(self, topics: set[str]) -> None:
        ordered = sorted(topics)
        for start in range(0, len(ordered), _METADATA_TOPICS):
            await self._learn_slice(ordered[start : start + _METADATA_TOPICS])

    async def _learn_slice(self, topics: list[str]) -> None:
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        response = await self._first_answer(request)
        if response is None:
            for topic in topics:
                self._refused.setdefault(topic, "no broker answers")
            return
        # Keeps the consumer's own list of brokers right as they come and go.
        self._client.cluster.update_metadata(response)
        until = time.monotonic() + self._metadata_interval_s
        for error_code, topic, _internal, partitions in response.topics:
            self._refused.pop(topic, None)
            self._leaders[topic] = {number: leader for _, number, leader, *_ in partitions}
            if error_code != 0 and not partitions:
                self._refused[topic] = _refusal(topic, for_code(error_code))
            leaderless = error_code != 0 or _NO_LEADER in self._leaders[topic].values()
            # What is wrong now is looked at again soon, but not in every pass.
            self._leaders_until[topic] = min(until, time.monotonic() + 2.0) if leaderless else until

    async def _first_answer(self, request: MetadataRequest) -> Any:
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        for node in nodes:
            try:
                return await asyncio.wait_for(self._client.send(node, request), self._timeout_s)
            except (KafkaError, OSError, asyncio.TimeoutError):
                continue
        return None


def _refusal(topic: str, error: type[KafkaError]) -> str:
    if error is UnknownTopicOrPartitionError:
        return f"topic {topic} does not exist"
    if error is TopicAuthorizationFailedError:
        return f"no right to describe topic {topic}"
    return f"topic {topic}: the broker answers {error.__name__}"


def _reason(error: BaseException, leader: int, timeout_s: float) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"broker {leader} did not answer within {timeout_s:g} s"
    return f"broker {leader}: {str(error) or type(error).__name__}"
