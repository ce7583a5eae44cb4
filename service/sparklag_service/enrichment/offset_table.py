"""The offsets and topic leaders of one cluster, updated from responses. Pure.

A failed read leaves the last value. A topic that was recreated starts without values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sparklag_kafka.errors import (
    NONE,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    error_name,
    is_metadata_stale,
)
from sparklag_kafka.protocol.list_offsets import TopicPart, read_offsets
from sparklag_kafka.protocol.metadata import Address, TopicMetadata
from sparklag_schemas import IsolationLevel, TopicLag
from sparklag_service.enrichment.cluster_offsets import Advances, Topic, TopicOffsets, Waiting
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.tracking.query_state import QueryState

_MAX_RATE: Final = 1_000_000
"""Records a second, more than any partition takes. A log that grew faster was not recreated."""
_NO_ADVANCES: Final = Advances()
_NEVER: Final = Topic()
_DENIALS_KEPT: Final = 100
_DENIALS: Final = 3
_DENIED_S: Final = 10.0
"""A topic is gone after so many answers, over so long, of two brokers where there are two."""
_FORMER_S: Final = 30.0
"""A broker may return a topic id that was replaced, for so long."""


@dataclass
class ReadPlan:
    """The reads that a query needs of one cluster, by leader. Valid for one metadata `epoch`."""

    state: QueryState
    epoch: int
    requested_s: float = 0.0
    parts: list[tuple[int, IsolationLevel, TopicPart]] = field(default_factory=list)
    unknown: dict[str, dict[int, str]] = field(default_factory=dict)
    """Partitions without a leader by topic, and the reason."""
    undescribed: dict[str, list[int]] = field(default_factory=dict)
    """Topics without metadata yet, with the partitions that the query names."""
    topics: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)


@dataclass(slots=True)
class WatchedTopic(TopicOffsets):
    """The offsets of a topic, with the state that reading them needs."""

    due_s: float = 0.0
    """When to read its metadata."""
    valid_from_s: float = float("inf")
    """Responses to earlier requests may belong to an earlier topic of this name."""
    identity: Topic | None = None
    """The topic's description when it last existed."""
    seen: bool = False
    """This or another instance has seen a topic of this name on this cluster."""
    denials: list[tuple[float, Address | None]] = field(default_factory=list)
    """The newest answers, if they say that the topic does not exist: when, and of which broker.
    The first and the last hundred."""
    former: tuple[str | None, float] = (None, 0.0)
    """The topic id that was replaced, and when."""
    leaders: dict[int, int] = field(default_factory=dict)
    receded_s: dict[tuple[IsolationLevel, int], float] = field(default_factory=dict)
    """When a log end was first read that is before the previous one, by level and partition."""
    parts: dict[tuple[int, ...], TopicPart] = field(default_factory=dict)
    all_led: list[tuple[int, TopicPart]] | None = None
    """All partitions by leader. None unless each has a leader."""

    def retain(self, numbers: set[int]) -> None:
        if not self.unknown and numbers == self.description.numbers:
            return
        tables: list[dict[int, Any]] = [*self.latest.values(), *self.without_records.values()]
        tables += [self.earliest, self.unknown, self.waiting]
        for table in (*tables, self.advances, self.record_times):
            for number in table.keys() - numbers:
                del table[number]

    def update_waiting(self, number: int, high_watermark: int, requested_s: float) -> None:
        """Compare a high watermark with the last stable offset."""
        stable = self.latest["read_committed"].get(number)
        before = self.waiting.pop(number, None)
        if stable is not None and high_watermark > stable.offset:
            if before is not None and before.stable == stable.offset:
                requested_s = before.since_s
            self.waiting[number] = Waiting(stable.offset, requested_s)

    def may_recede(self, level: IsolationLevel, number: int, now_s: float) -> bool:
        """Returns whether a log end that falls is accepted: only after newer metadata was read."""
        since_s = self.receded_s.setdefault((level, number), now_s)
        return self.described_s is not None and self.described_s > since_s


class OffsetTable:
    """The offsets of the cluster `alias`, and the leaders to read them from.

    `epoch` rises whenever an older plan may be outdated. Times are `time.monotonic()`.
    """

    def __init__(self, alias: str) -> None:
        self.epoch = 0
        self.brokers: dict[int, Address] = {}
        self.responder: Address | None = None
        self._alias = alias
        self.topics: dict[str, WatchedTopic] = {}
        self._planned: set[str] = set()
        """Topics planned since `retain` began."""

    def topic(self, name: str) -> WatchedTopic:
        """The record of a topic; a new topic has an empty one."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = WatchedTopic()
        return topic

    def update_brokers(self, brokers: dict[int, Address], responder: Address | None = None) -> None:
        """Store the brokers of the newest metadata, and which of them has returned it."""
        self.responder = responder
        if brokers != self.brokers:
            self.brokers = brokers
            for topic in self.topics.values():
                topic.all_led = None
            self.epoch += 1

    def adopt(self, before: TopicLag) -> WatchedTopic:
        """The record of a topic, with what another instance has seen."""
        topic = self.topic(before.topic)
        partitions = before.partitions
        is_gone = bool(partitions) and all(p.status == "GONE" for p in partitions)
        if is_gone and topic.described_s is None:
            topic.description = _refused(before.topic, UNKNOWN_TOPIC, seen=True, gone=True)
        has_ends = any(partition.latest_offset is not None for partition in partitions)
        topic.seen = topic.seen or is_gone or has_ends or before.topic_id is not None
        return topic

    def update_topic(self, metadata: TopicMetadata, requested_s: float, now_s: float) -> bool:
        """Store a topic's newest metadata. Returns whether all its partitions have leaders. That a
        topic no longer exists is stored once it is confirmed."""
        name, topic = metadata.name, self.topic(metadata.name)
        identity, (former_id, replaced_s) = topic.identity or _NEVER, topic.former
        is_refused = metadata.error_code != NONE and not metadata.leaders
        is_absent = is_refused and metadata.error_code == UNKNOWN_TOPIC
        ids = {identity.topic_id, metadata.topic_id} - {None}
        lacks = not is_refused and not identity.numbers <= metadata.leaders.keys()
        if metadata.topic_id is not None and (
            # Kafka removes no partitions, and uses no topic id again.
            (lacks and identity.topic_id == metadata.topic_id)
            or (former_id == metadata.topic_id and now_s < replaced_s + _FORMER_S)
        ):
            return False
        if topic.description.gone or not (is_absent and topic.seen):
            topic.denials.clear()
        elif topic.described_s is not None and not self._is_confirmed(topic, now_s):
            return False
        if is_refused:
            gone = topic.description.gone or bool(topic.denials)
            description = _refused(name, metadata.error_code, seen=topic.seen, gone=gone)
            is_another = description.gone and not topic.description.gone
        else:
            description = Topic(metadata.topic_id, tuple(sorted(metadata.leaders)))
            is_another = topic.description.gone or lacks or len(ids) == 2
        if is_another:
            # Discards all offsets, and the responses in flight.
            former = None if is_absent else identity.topic_id, now_s
            topic = self.topics[name] = WatchedTopic(due_s=topic.due_s, seen=True, former=former)
        is_new = topic.described_s is None
        topic.described_s = requested_s
        if is_new:
            topic.valid_from_s = now_s
        topic.replicas = metadata.replicas
        if not is_refused:
            topic.identity, topic.seen = description, True
        if is_new or topic.description != description or topic.leaders != metadata.leaders:
            topic.description = description
            topic.leaders = metadata.leaders
            topic.all_led = None
            self.epoch += 1
        return not is_refused and self.brokers.keys() >= set(metadata.leaders.values())

    def _is_confirmed(self, topic: WatchedTopic, now_s: float) -> bool:
        topic.denials[1:-_DENIALS_KEPT] = []
        topic.denials.append((now_s, self.responder))
        brokers = {broker for _, broker in topic.denials} & {*self.brokers.values()}
        is_long = now_s - topic.denials[0][0] >= _DENIED_S and len(topic.denials) >= _DENIALS
        return is_long and len(brokers) >= min(2, len(self.brokers))

    def plan(self, state: QueryState) -> ReadPlan:
        """The reads that `state` needs of this cluster, by the newest metadata."""
        plan = ReadPlan(state, self.epoch)
        for source in state.sources:
            if source.cluster != self._alias:
                continue
            if source.topic_pattern is not None:
                plan.patterns.add(source.topic_pattern)
            for name in source.watched_topics():
                plan.topics.add(name)
                self._planned.add(name)
                topic = self.topic(name)
                numbers = source.watched_partitions(name, topic.description.partitions)
                if topic.described_s is None:
                    plan.undescribed.setdefault(name, []).extend(numbers)
                    continue
                for leader, part in self._by_leader(plan, name, topic, tuple(numbers)):
                    plan.parts.append((leader, source.isolation_level, part))
        return plan

    def _by_leader(
        self, plan: ReadPlan, name: str, topic: WatchedTopic, numbers: tuple[int, ...]
    ) -> list[tuple[int, TopicPart]]:
        """These partitions by leader. Partitions without a leader are added to `plan.unknown`."""
        all_led = numbers == topic.description.partitions
        if all_led and topic.all_led is not None:
            return topic.all_led
        by_leader: dict[int, list[int]] = {}
        for number in numbers:
            leader = topic.leaders.get(number)
            if leader in self.brokers:
                by_leader.setdefault(leader, []).append(number)
                continue
            all_led = False
            plan.unknown.setdefault(name, {})[number] = topic.description.missing or (
                f"topic {name} has no such partition"
                if leader is None
                else "the partition has no leader"
            )
        parts = [(leader, self.part(name, tuple(led))) for leader, led in by_leader.items()]
        if all_led:
            topic.all_led = parts
        return parts

    def leader(self, name: str, number: int) -> Address | None:
        """The address of a partition's leader. None: it has no leader."""
        topic = self.topics.get(name)
        return self.brokers.get(topic.leaders.get(number, -1)) if topic is not None else None

    def part(self, name: str, numbers: tuple[int, ...]) -> TopicPart:
        """Returns the same part for equal arguments, with its cached bytes."""
        parts = self.topic(name).parts
        part = parts.get(numbers)
        if part is None:
            part = parts[numbers] = TopicPart(name, numbers)
        return part

    def take_latest(
        self,
        level: IsolationLevel,
        response: bytes,
        requested_s: float,
        now_s: float,
        confirmed: Collection[str] | None = None,
    ) -> tuple[set[str], set[str]]:
        """Store a leader's response. Returns the topics whose metadata proves stale, and the topics
        that may have been recreated: their offsets are not stored until they are `confirmed`."""
        stale: set[str] = set()
        doubtful: set[str] = set()
        for name, returned in read_offsets(response):
            topic = self.topics.get(name)
            if topic is None or requested_s < topic.valid_from_s:
                continue  # may belong to an earlier topic of this name
            if confirmed is not None and name not in confirmed:
                continue
            latest, unknown, denials = topic.latest[level], topic.unknown, topic.denials
            has_stable = level == "read_uncommitted" and bool(topic.latest["read_committed"])
            for number, error_code, _, offset in returned:
                last = latest.get(number)
                if last is not None and requested_s < last.requested_s:
                    continue  # a new leader responded first
                if last is None and topic.without_records[level]:
                    # Another instance has seen them, and the leader may have lost them since.
                    none = topic.without_records[level].get(number)
                    if none is not None and offset < none.end:
                        del topic.without_records[level][number]
                if error_code or offset < 0:
                    unknown[number] = _leader_text(name, error_code)
                    if is_metadata_stale(error_code) or error_code == TOPIC_FORBIDDEN:
                        stale.add(name)
                    continue
                if last is not None and offset < last.offset:
                    stale.add(name)
                    if not topic.may_recede(level, number, now_s):
                        unknown[number] = (
                            f"the log ends at {offset}, before {last.offset} where it ended"
                        )
                        continue
                    topic.earliest.pop(number, None)
                    topic.without_records[level].pop(number, None)
                elif (
                    confirmed is None
                    and last is not None
                    and offset > last.offset
                    and last.offset < _MAX_RATE * (now_s - last.requested_s)
                ):
                    doubtful.add(name)
                    break
                latest[number] = LatestOffset(offset, requested_s)
                if denials and requested_s > denials[0][0]:
                    denials.clear()
                if has_stable:
                    topic.update_waiting(number, offset, requested_s)
                if topic.receded_s:
                    topic.receded_s.pop((level, number), None)
                if unknown:
                    unknown.pop(number, None)
        return stale, doubtful

    def is_recreated(self, metadata: TopicMetadata) -> bool:
        """Returns whether `metadata` is of another topic than the one of its name in `topics`."""
        topic = self.topics.get(metadata.name)
        return topic is None or topic.description.topic_id != metadata.topic_id

    def take_earliest(self, response: bytes, requested_s: float) -> None:
        """Store a leader's response. A partition without an offset in it keeps the last one."""
        for name, returned in read_offsets(response):
            topic = self.topics.get(name)
            if topic is None or requested_s < topic.valid_from_s:
                continue
            earliest, advances = topic.earliest, topic.advances
            for number, error_code, _, offset in returned:
                if error_code == NONE and offset >= 0:
                    if offset > earliest.get(number, offset):
                        previous = advances.get(number, _NO_ADVANCES)
                        advances[number] = previous.with_step(requested_s, offset)
                    earliest[number] = offset

    def fail(self, name: str, numbers: Iterable[int], reason: str, requested_s: float) -> None:
        """Store why a read of latest offsets failed. The last offsets stay."""
        topic = self.topics.get(name)
        if topic is None:
            return  # forgotten meanwhile
        for number in numbers:
            values = (ends.get(number) for ends in topic.latest.values())
            if all(value is None or value.requested_s <= requested_s for value in values):
                topic.unknown[number] = reason

    def retain(self, plans: Iterable[ReadPlan]) -> Iterator[None]:
        """Forget the topics and partitions that no plan needs, in small steps. A topic that is
        planned between two steps stays unchanged."""
        self._planned.clear()
        wanted: dict[str, set[int]] = {}
        parts: dict[str, dict[tuple[int, ...], TopicPart]] = {}
        for plan in plans:
            for name in plan.topics:
                numbers = wanted.setdefault(name, set())
                numbers.update(plan.unknown.get(name, ()), plan.undescribed.get(name, ()))
            for _, _, part in plan.parts:
                wanted[part.topic].update(part.numbers)
                parts.setdefault(part.topic, {})[part.numbers] = part
            yield
        for name in list(self.topics):
            if name in self._planned:
                continue
            if name in wanted:
                self.topics[name].parts = parts.get(name, {})
                self.topics[name].retain(wanted[name])
            else:
                del self.topics[name]
            yield


def _refused(name: str, error_code: int, *, seen: bool, gone: bool) -> Topic:
    if error_code == TOPIC_FORBIDDEN:
        return Topic(missing=f"no right to describe topic {name}")
    if error_code != UNKNOWN_TOPIC:
        return Topic(missing=f"topic {name}: the broker answers {error_name(error_code)}")
    missing = f"topic {name} does not exist"
    if not seen:
        missing = (
            f"no topic {name} was ever seen on this cluster: it is of another cluster, of another"
            " source than Kafka, or does not exist yet"
        )
    return Topic(missing=missing, gone=gone, absent=True)


def _leader_text(topic: str, error_code: int) -> str:
    if error_code == NONE:
        return "the leader returned no offset"
    if error_code == TOPIC_FORBIDDEN:
        return f"no right to describe topic {topic}"
    return f"the leader answers {error_name(error_code)}"
