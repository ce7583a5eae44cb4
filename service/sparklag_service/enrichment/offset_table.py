"""The offsets and topic leaders of one cluster, updated from responses. Pure.

A failed read leaves the last value; a topic that was recreated starts without any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeVar

from aiokafka.structs import TopicPartition

from sparklag_kafka.protocol.error_codes import (
    NONE,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    error_name,
    is_metadata_stale,
)
from sparklag_kafka.protocol.list_offsets import TopicPart, read_offsets
from sparklag_kafka.protocol.metadata import Address, TopicMetadata
from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.cluster_offsets import Advances, ClusterOffsets, Topic
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.tracking.query_state import QueryState

_MAX_RATE: Final = 1_000_000
"""Records a second: no partition takes more, so a log that would have needed a higher rate since
it was recreated was not recreated."""
_NO_ADVANCES: Final = Advances()

_Key = TypeVar("_Key")


@dataclass
class ReadPlan:
    """What one query needs of one cluster, by leader; valid for one `epoch` of the metadata."""

    state: QueryState
    epoch: int
    requested_s: float = 0.0
    parts: list[tuple[int, IsolationLevel, TopicPart]] = field(default_factory=list)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions without a leader, and why."""
    undescribed: dict[str, list[TopicPartition]] = field(default_factory=dict)
    """Topics without metadata yet, with the partitions that the query names."""
    topics: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Identity:
    """Of a topic when it last existed."""

    topic_id: str | None
    numbers: frozenset[int]


class OffsetTable:
    """The offsets of the cluster `alias`, and the leaders to read them from.

    `epoch` rises whenever an older plan may be outdated. Times are `time.monotonic()`.
    """

    def __init__(self, alias: str) -> None:
        self.offsets = ClusterOffsets()
        self.epoch = 0
        self.brokers: dict[int, Address] = {}
        self._alias = alias
        self._leaders: dict[str, dict[int, int]] = {}
        self._identities: dict[str, _Identity] = {}
        self._described_s: dict[str, float] = {}
        """When the newest metadata of each topic was requested."""
        self._valid_from_s: dict[str, float] = {}
        """Responses to earlier requests may be of another topic of that name."""
        self._receded_s: dict[TopicPartition, float] = {}
        """When a log was first seen to end before the offset that was read last."""
        self._parts: dict[str, dict[tuple[int, ...], TopicPart]] = {}
        self._all_led: dict[str, list[tuple[int, TopicPart]]] = {}
        """Topics of which every partition has a leader, by leader."""

    def update_brokers(self, brokers: dict[int, Address]) -> None:
        """Take the brokers of the newest metadata."""
        if brokers != self.brokers:
            self.brokers = brokers
            self._all_led.clear()
            self.epoch += 1

    def update_topic(self, metadata: TopicMetadata, requested_s: float, now_s: float) -> bool:
        """Take a topic's newest metadata; whether all its partitions have leaders."""
        name = metadata.name
        self._described_s[name] = requested_s
        is_refused = metadata.error_code != NONE and not metadata.leaders
        if is_refused:
            gone = metadata.error_code == UNKNOWN_TOPIC
            topic = Topic(missing=_refusal_text(name, metadata.error_code), gone=gone)
            if gone:
                self._forget_topic(name, now_s)
        else:
            topic = Topic(metadata.topic_id, tuple(sorted(metadata.leaders)))
            identity = self._identities.get(name)
            if identity is not None and _is_recreated(identity, metadata):
                self._forget_topic(name, now_s)
            self._identities[name] = _Identity(metadata.topic_id, frozenset(metadata.leaders))
        if self.offsets.topics.get(name) != topic or self._leaders.get(name) != metadata.leaders:
            self.offsets.topics[name] = topic
            self._leaders[name] = metadata.leaders
            self._all_led.pop(name, None)
            self.epoch += 1
        return not is_refused and self.brokers.keys() >= set(metadata.leaders.values())

    def plan(self, state: QueryState) -> ReadPlan:
        """What `state` needs of this cluster, by the newest metadata."""
        plan = ReadPlan(state, self.epoch)
        for source in state.sources:
            if source.cluster != self._alias:
                continue
            for name in source.watched_topics():
                plan.topics.add(name)
                topic = self.offsets.topics.get(name)
                numbers = source.watched_partitions(name, topic.partitions if topic else ())
                if topic is None:
                    partitions = plan.undescribed.setdefault(name, [])
                    partitions += [TopicPartition(name, number) for number in numbers]
                    continue
                for leader, part in self._by_leader(plan, name, topic, tuple(numbers)):
                    plan.parts.append((leader, source.isolation_level, part))
        return plan

    def _by_leader(
        self, plan: ReadPlan, name: str, topic: Topic, numbers: tuple[int, ...]
    ) -> list[tuple[int, TopicPart]]:
        """These partitions by leader; those without one are added to `plan.unknown`."""
        all_led = numbers == topic.partitions
        if all_led and name in self._all_led:
            return self._all_led[name]
        by_leader: dict[int, list[int]] = {}
        leaders = self._leaders[name]
        for number in numbers:
            leader = leaders.get(number)
            if leader in self.brokers:
                by_leader.setdefault(leader, []).append(number)
                continue
            all_led = False
            plan.unknown[TopicPartition(name, number)] = topic.missing or (
                f"topic {name} has no such partition"
                if leader is None
                else "the partition has no leader"
            )
        parts = [(leader, self.part(name, tuple(led))) for leader, led in by_leader.items()]
        if all_led:
            self._all_led[name] = parts
        return parts

    def leader(self, topic: str, number: int) -> Address | None:
        """The address of a partition's leader; None where it has none."""
        return self.brokers.get(self._leaders.get(topic, {}).get(number, -1))

    def part(self, topic: str, numbers: tuple[int, ...]) -> TopicPart:
        """The same part each time, with its cached bytes."""
        parts = self._parts.setdefault(topic, {})
        part = parts.get(numbers)
        if part is None:
            part = parts[numbers] = TopicPart(topic, numbers)
        return part

    def take_latest(
        self,
        level: IsolationLevel,
        parts: Iterable[TopicPart],
        response: bytes,
        requested_s: float,
        now_s: float,
        confirmed: Collection[str] | None = None,
    ) -> tuple[set[str], set[str]]:
        """Take a leader's response. Returns the topics whose metadata it shows to be stale, and
        those that may have been recreated: these are not taken, until they are `confirmed`."""
        stale: set[str] = set()
        doubtful: set[str] = set()
        unknown = self.offsets.unknown
        partitions_of = {part.topic: part.partitions for part in parts}
        for topic, returned in read_offsets(response):
            if requested_s < self._valid_from_s.get(topic, 0.0):
                continue  # It may be of the topic that had this name before.
            if confirmed is not None and topic not in confirmed:
                continue
            latest = self.offsets.latest[level].setdefault(topic, {})
            partitions = partitions_of[topic]
            for number, error_code, _, offset in returned:
                last = latest.get(number)
                if last is not None and requested_s < last.requested_s:
                    continue  # A new leader was quicker than this one.
                if error_code or offset < 0:
                    unknown[partitions[number]] = _leader_text(topic, error_code)
                    if is_metadata_stale(error_code) or error_code == TOPIC_FORBIDDEN:
                        stale.add(topic)
                    continue
                if last is not None and offset < last.offset:
                    stale.add(topic)
                    partition = partitions[number]
                    if not self._may_recede(partition, now_s):
                        unknown[partition] = (
                            f"the log ends at {offset}, before {last.offset} where it ended"
                        )
                        continue
                    self.offsets.earliest.get(topic, {}).pop(number, None)
                elif (
                    confirmed is None
                    and last is not None
                    and offset > last.offset
                    and last.offset < _MAX_RATE * (now_s - last.requested_s)
                ):
                    doubtful.add(topic)
                    break
                latest[number] = LatestOffset(offset, requested_s)
                if unknown and unknown.pop(partitions[number], None) is not None:
                    self._receded_s.pop(partitions[number], None)
        return stale, doubtful

    def is_recreated(self, metadata: TopicMetadata) -> bool:
        """Whether this is another topic than the one in `offsets` that has its name."""
        topic = self.offsets.topics.get(metadata.name)
        return topic is None or topic.topic_id != metadata.topic_id

    def take_earliest(
        self, parts: Iterable[TopicPart], response: bytes, requested_s: float
    ) -> None:
        """Take a leader's response. Where it has no offset, the last one stays."""
        advances = self.offsets.advances
        partitions_of = {part.topic: part.partitions for part in parts}
        for topic, returned in read_offsets(response):
            if requested_s < self._valid_from_s.get(topic, 0.0):
                continue
            earliest = self.offsets.earliest.setdefault(topic, {})
            for number, error_code, _, offset in returned:
                if error_code == NONE and offset >= 0:
                    if offset > earliest.get(number, offset):
                        partition = partitions_of[topic][number]
                        previous = advances.get(partition, _NO_ADVANCES)
                        advances[partition] = previous.with_step(requested_s, offset)
                    earliest[number] = offset

    def fail(self, partitions: Iterable[TopicPartition], reason: str, requested_s: float) -> None:
        """Store why a read of latest offsets failed; the last values stay."""
        for partition in partitions:
            topic, number = partition
            values = (ends.get(topic, {}).get(number) for ends in self.offsets.latest.values())
            if all(value is None or value.requested_s <= requested_s for value in values):
                self.offsets.unknown[partition] = reason

    def retain(self, plans: Iterable[ReadPlan], now_s: float) -> None:
        """Forget the topics and partitions that no plan needs."""
        topics: set[str] = set()
        numbers: dict[str, set[int]] = {}
        parts: dict[str, dict[tuple[int, ...], TopicPart]] = {}
        for plan in plans:
            topics |= plan.topics
            for topic, number in (*plan.unknown, *chain(*plan.undescribed.values())):
                numbers.setdefault(topic, set()).add(number)
            for _, _, part in plan.parts:
                parts.setdefault(part.topic, {})[part.numbers] = part
                numbers.setdefault(part.topic, set()).update(part.numbers)
        self._parts = parts
        offsets = self.offsets
        by_number: list[dict[str, dict[int, Any]]] = [*offsets.latest.values(), offsets.earliest]
        for ends in by_number:
            _retain_keys(ends, numbers)
            for topic, of_topic in ends.items():
                _retain_keys(of_topic, numbers[topic])
        by_partition: list[dict[TopicPartition, Any]]
        by_partition = [offsets.advances, offsets.record_times, offsets.unknown, self._receded_s]
        for values in by_partition:
            for key in [key for key in values if key.partition not in numbers.get(key.topic, ())]:
                del values[key]
        for name in self._described_s.keys() - topics:
            # A response in flight must not bring it back.
            self._valid_from_s[name] = now_s
        by_name: list[dict[str, Any]] = [offsets.topics, *offsets.log_ends.values(), self._leaders]
        for table in (*by_name, self._all_led, self._identities, self._described_s):
            _retain_keys(table, topics)
        for name in [name for name, from_s in self._valid_from_s.items() if from_s < now_s - 60.0]:
            del self._valid_from_s[name]

    def _may_recede(self, partition: TopicPartition, now_s: float) -> bool:
        """A log end offset that falls is accepted once the topic's metadata was read since."""
        since_s = self._receded_s.setdefault(partition, now_s)
        return self._described_s.get(partition.topic, 0.0) > since_s

    def _forget_topic(self, name: str, now_s: float) -> None:
        """Remove all offsets of a topic that was deleted, also those still in flight."""
        self._valid_from_s[name] = now_s
        # With the parts it is forgotten that their earliest offsets were requested.
        self._parts.pop(name, None)
        self.offsets.earliest.pop(name, None)
        for level in self.offsets.latest:
            self.offsets.latest[level].pop(name, None)
            self.offsets.log_ends[level].pop(name, None)
        identity = self._identities.pop(name, None)
        for number in identity.numbers if identity is not None else ():
            partition = TopicPartition(name, number)
            self.offsets.advances.pop(partition, None)
            self.offsets.record_times.pop(partition, None)
            self.offsets.unknown.pop(partition, None)
            self._receded_s.pop(partition, None)


def _retain_keys(table: dict[_Key, Any], wanted: Collection[_Key]) -> None:
    for key in [key for key in table if key not in wanted]:
        del table[key]


def _is_recreated(identity: _Identity, metadata: TopicMetadata) -> bool:
    if identity.topic_id is None or metadata.topic_id is None:
        # An old broker. Partitions are only ever added to a topic.
        return not identity.numbers <= metadata.leaders.keys()
    return identity.topic_id != metadata.topic_id


def _refusal_text(topic: str, error_code: int) -> str:
    if error_code == UNKNOWN_TOPIC:
        return f"topic {topic} does not exist"
    if error_code == TOPIC_FORBIDDEN:
        return f"no right to describe topic {topic}"
    return f"topic {topic}: the broker answers {error_name(error_code)}"


def _leader_text(topic: str, error_code: int) -> str:
    if error_code == NONE:
        return "the leader knows no offset"
    if error_code == TOPIC_FORBIDDEN:
        return f"no right to describe topic {topic}"
    return f"the leader answers {error_name(error_code)}"
