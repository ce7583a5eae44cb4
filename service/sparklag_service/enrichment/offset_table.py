"""What one Kafka cluster said of its topics, and the rules by which it is kept. Pure.

A failure keeps the last good value; a topic that was created anew starts without any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeVar

from aiokafka.errors import (
    KafkaError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import TopicPartition

from sparklag_kafka.protocol.list_offsets import TopicPart, read_offsets
from sparklag_kafka.protocol.metadata import Address, TopicMetadata
from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets, Topic
from sparklag_service.enrichment.offset_times import Latest
from sparklag_service.enrichment.retention import Advances
from sparklag_service.tracking.query_state import QueryState

_FASTEST: Final = 1_000_000
"""Records a second that no partition takes: a log that grew further cannot have begun anew."""

_STANDING: Final = Advances(())

_Key = TypeVar("_Key")


@dataclass
class Plan:
    """What one query needs of one cluster, by leader; valid for one `epoch` of the metadata."""

    state: QueryState
    epoch: int
    asked_s: float = 0.0
    parts: list[tuple[int, IsolationLevel, TopicPart]] = field(default_factory=list)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that nobody can be asked for."""
    without_position: dict[str, list[TopicPartition]] = field(default_factory=dict)
    """Topics of which no broker has spoken yet, with the partitions that are known without."""
    topics: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Seen:
    """A topic when it was last there."""

    topic_id: str | None
    numbers: frozenset[int]


class OffsetTable:
    """The offsets of the cluster `alias`, and the leaders they are asked of.

    `epoch` rises whenever a plan made before may be wrong. Times are `time.monotonic()`.
    """

    def __init__(self, alias: str) -> None:
        self.offsets = ClusterOffsets()
        self.epoch = 0
        self.brokers: dict[int, Address] = {}
        self._alias = alias
        self._leaders: dict[str, dict[int, int]] = {}
        self._seen: dict[str, _Seen] = {}
        self._checked_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}
        self._receding: dict[TopicPartition, float] = {}
        self._parts: dict[str, dict[tuple[int, ...], TopicPart]] = {}
        self._whole: dict[str, list[tuple[int, TopicPart]]] = {}
        """Topics of which every partition has a leader, by leader."""

    def place_brokers(self, brokers: dict[int, Address]) -> None:
        """Take the brokers of a metadata answer. One without any says nothing."""
        if brokers and brokers != self.brokers:
            self.brokers = brokers
            self._whole.clear()
            self.epoch += 1

    def place(self, found: TopicMetadata, asked_s: float, now_s: float) -> bool:
        """Take a topic of a metadata answer; whether all is well with it."""
        name = found.name
        self._checked_s[name] = asked_s
        refused = found.error_code != 0 and not found.leaders
        if refused:
            error = for_code(found.error_code)
            gone = error is UnknownTopicOrPartitionError
            topic = Topic(missing=_refusal(name, error), gone=gone)
            if gone:
                self._drop(name, now_s)
        else:
            topic = Topic(found.topic_id, tuple(sorted(found.leaders)))
            seen = self._seen.get(name)
            if seen is not None and _created_anew(seen, found):
                self._drop(name, now_s)
            self._seen[name] = _Seen(found.topic_id, frozenset(found.leaders))
        if self.offsets.topics.get(name) != topic or self._leaders.get(name) != found.leaders:
            self.offsets.topics[name] = topic
            self._leaders[name] = found.leaders
            self._whole.pop(name, None)
            self.epoch += 1
        return not refused and self.brokers.keys() >= set(found.leaders.values())

    def plan(self, state: QueryState) -> Plan:
        """What `state` needs of this cluster, as far as the metadata says."""
        plan = Plan(state, self.epoch)
        for source in state.sources:
            if source.cluster != self._alias:
                continue
            for name in source.watched_topics():
                plan.topics.add(name)
                topic = self.offsets.topics.get(name)
                numbers = source.watched_partitions(name, topic.partitions if topic else ())
                if topic is None:
                    some = plan.without_position.setdefault(name, [])
                    some += [TopicPartition(name, number) for number in numbers]
                    continue
                for leader, part in self._by_leader(plan, name, topic, tuple(numbers)):
                    plan.parts.append((leader, source.isolation_level, part))
        return plan

    def _by_leader(
        self, plan: Plan, name: str, topic: Topic, numbers: tuple[int, ...]
    ) -> list[tuple[int, TopicPart]]:
        """These partitions by leader; what has none goes to what is unknown of the plan."""
        is_whole = numbers == topic.partitions
        if is_whole and name in self._whole:
            return self._whole[name]
        by_leader: dict[int, list[int]] = {}
        leaders = self._leaders[name]
        for number in numbers:
            leader = leaders.get(number)
            if leader in self.brokers:
                by_leader.setdefault(leader, []).append(number)
                continue
            is_whole = False
            plan.unknown[TopicPartition(name, number)] = topic.missing or (
                f"topic {name} has no such partition"
                if leader is None
                else "the partition has no leader"
            )
        parts = [(leader, self.part(name, tuple(some))) for leader, some in by_leader.items()]
        if is_whole:
            self._whole[name] = parts
        return parts

    def leader(self, topic: str, number: int) -> Address | None:
        """Where a partition's leader is; None where it has none, or none that is known."""
        return self.brokers.get(self._leaders.get(topic, {}).get(number, -1))

    def part(self, topic: str, numbers: tuple[int, ...]) -> TopicPart:
        """The same part each time, with what it has encoded."""
        parts = self._parts.setdefault(topic, {})
        known = parts.get(numbers)
        if known is None:
            known = parts[numbers] = TopicPart(topic, numbers)
        return known

    def take_latest(
        self,
        level: IsolationLevel,
        parts: Iterable[TopicPart],
        answer: bytes,
        asked_s: float,
        now_s: float,
        confirmed: Collection[str] | None = None,
    ) -> tuple[set[str], set[str]]:
        """Take a leader's answer. Returns the topics whose metadata it shows to be out of date, and
        those that may have been created anew: these are not taken, until they are `confirmed`."""
        stale: set[str] = set()
        doubtful: set[str] = set()
        unknown = self.offsets.unknown
        asked = {part.topic: part.partitions for part in parts}
        for topic, answered in read_offsets(answer):
            if asked_s < self._since_s.get(topic, 0.0):
                continue  # It may be of the topic that had this name before.
            if confirmed is not None and topic not in confirmed:
                continue
            latest = self.offsets.latest[level].setdefault(topic, {})
            partitions = asked[topic]
            for number, error_code, _, offset in answered:
                last = latest.get(number)
                if last is not None and asked_s < last.asked_s:
                    continue  # A new leader was quicker than this one.
                if error_code or offset < 0:
                    error = for_code(error_code)
                    unknown[partitions[number]] = _leader_says(topic, error)
                    if error.invalid_metadata or error is TopicAuthorizationFailedError:
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
                    and last.offset < _FASTEST * (now_s - last.asked_s)
                ):
                    doubtful.add(topic)
                    break
                latest[number] = Latest(offset, asked_s)
                if unknown and unknown.pop(partitions[number], None) is not None:
                    self._receding.pop(partitions[number], None)
        return stale, doubtful

    def is_other(self, found: TopicMetadata) -> bool:
        """Whether this is not the topic that is known by its name."""
        known = self.offsets.topics.get(found.name)
        return known is None or known.topic_id != found.topic_id

    def take_earliest(self, parts: Iterable[TopicPart], answer: bytes, asked_s: float) -> None:
        """Take a leader's answer. What it does not know stays as it was."""
        asked = {part.topic: part.partitions for part in parts}
        for topic, answered in read_offsets(answer):
            if asked_s < self._since_s.get(topic, 0.0):
                continue
            earliest = self.offsets.earliest.setdefault(topic, {})
            partitions = asked[topic]
            for number, error_code, _, offset in answered:
                if error_code == 0 and offset >= 0:
                    if offset > earliest.get(number, offset):
                        partition = partitions[number]
                        known = self.offsets.advances.get(partition, _STANDING)
                        self.offsets.advances[partition] = known.with_step(asked_s, offset)
                    earliest[number] = offset

    def fail(self, partitions: Iterable[TopicPartition], reason: str, asked_s: float) -> None:
        """Remember why what was asked at `asked_s` came to nothing; the last values stay."""
        for partition in partitions:
            topic, number = partition
            values = (ends.get(topic, {}).get(number) for ends in self.offsets.latest.values())
            if all(value is None or value.asked_s <= asked_s for value in values):
                self.offsets.unknown[partition] = reason

    def keep_only(self, plans: Iterable[Plan], now_s: float) -> None:
        """Forget the topics and partitions that no plan needs."""
        topics: set[str] = set()
        numbers: dict[str, set[int]] = {}
        parts: dict[str, dict[tuple[int, ...], TopicPart]] = {}
        for plan in plans:
            topics |= plan.topics
            for topic, number in (*plan.unknown, *chain(*plan.without_position.values())):
                numbers.setdefault(topic, set()).add(number)
            for _, _, part in plan.parts:
                parts.setdefault(part.topic, {})[part.numbers] = part
                numbers.setdefault(part.topic, set()).update(part.numbers)
        self._parts = parts
        offsets = self.offsets
        for ends in offsets.latest.values():
            _keep_numbers(ends, numbers)
        _keep_numbers(offsets.earliest, numbers)
        _keep_partitions(offsets.advances, numbers)
        _keep_partitions(offsets.record_times, numbers)
        _keep_partitions(offsets.unknown, numbers)
        _keep_partitions(self._receding, numbers)
        for name in self._checked_s.keys() - topics:
            # An answer under way is not to bring it back.
            self._since_s[name] = now_s
        _keep_keys(offsets.topics, topics)
        for times in offsets.times.values():
            _keep_keys(times, topics)
        _keep_keys(self._leaders, topics)
        _keep_keys(self._whole, topics)
        _keep_keys(self._seen, topics)
        _keep_keys(self._checked_s, topics)
        for name in [name for name, since_s in self._since_s.items() if since_s < now_s - 60.0]:
            del self._since_s[name]

    def _may_recede(self, partition: TopicPartition, now_s: float) -> bool:
        """A log that ends earlier is believed once the topic's id was read again since."""
        since_s = self._receding.setdefault(partition, now_s)
        return self._checked_s.get(partition.topic, 0.0) > since_s

    def _drop(self, name: str, now_s: float) -> None:
        """Nothing of the topic that had this name, not even an answer still under way, stays."""
        self._since_s[name] = now_s
        # With them goes that their earliest offsets were asked for.
        self._parts.pop(name, None)
        self.offsets.earliest.pop(name, None)
        for level in self.offsets.latest:
            self.offsets.latest[level].pop(name, None)
            self.offsets.times[level].pop(name, None)
        seen = self._seen.pop(name, None)
        for number in seen.numbers if seen is not None else ():
            partition = TopicPartition(name, number)
            self.offsets.advances.pop(partition, None)
            self.offsets.record_times.pop(partition, None)
            self.offsets.unknown.pop(partition, None)
            self._receding.pop(partition, None)


def _keep_keys(table: dict[_Key, Any], wanted: Collection[_Key]) -> None:
    for key in [key for key in table if key not in wanted]:
        del table[key]


def _keep_numbers(by_topic: dict[str, dict[int, Any]], wanted: dict[str, set[int]]) -> None:
    _keep_keys(by_topic, wanted)
    for topic, by_number in by_topic.items():
        _keep_keys(by_number, wanted[topic])


def _keep_partitions(table: dict[TopicPartition, Any], wanted: dict[str, set[int]]) -> None:
    for key in [key for key in table if key.partition not in wanted.get(key.topic, ())]:
        del table[key]


def _created_anew(seen: _Seen, found: TopicMetadata) -> bool:
    if seen.topic_id is None or found.topic_id is None:
        # An old broker. Partitions are only ever added to a topic.
        return not seen.numbers <= found.leaders.keys()
    return seen.topic_id != found.topic_id


def _refusal(topic: str, error: type[KafkaError]) -> str:
    if error is UnknownTopicOrPartitionError:
        return f"topic {topic} does not exist"
    if error is TopicAuthorizationFailedError:
        return f"no right to describe topic {topic}"
    return f"topic {topic}: the broker answers {error.__name__}"


def _leader_says(topic: str, error: type[KafkaError]) -> str:
    if error is NoError:
        return "the leader knows no offset"
    if error is TopicAuthorizationFailedError:
        return f"no right to describe topic {topic}"
    return f"the leader answers {error.__name__}"
