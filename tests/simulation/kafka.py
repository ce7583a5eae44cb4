"""A simulated Kafka: logs, groups, and a network that loses and delays. No real broker has a part
in it; `test_conformance.py` runs one script against both.

What a client asks is executed once it has arrived; the response may come late, or never.
"""

from __future__ import annotations

import asyncio
import base64
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiokafka.errors import (
    IllegalGenerationError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_schemas import LagEvent
from tests.simulation.clock import Process, VirtualLoop, current_process, epoch_ms

SESSION_TIMEOUT_S: Final = 15.0
HEARTBEAT_S: Final = 1.0
REBALANCE_TIMEOUT_S: Final = 20.0
REQUEST_TIMEOUT_S: Final = 10.0
_LOG_APPEND_TIME: Final = 1

_Result = TypeVar("_Result")
OnAppend = Callable[[ConsumerRecord, "Process | None"], None]
OnEvent = Callable[[LagEvent, "Process"], None]
OnCommit = Callable[[TopicPartition, int, "Process | None"], None]


@dataclass
class Log:
    """One partition. `records` are kept only of sparklag's own topics."""

    start: int = 0
    end: int = 0
    leader: int | None = 0
    records: list[ConsumerRecord] = field(default_factory=list)
    ends: list[tuple[float, int]] = field(default_factory=lambda: [(-1.0, 0)])
    """When the log ended where."""
    transactions: list[tuple[int, float]] = field(default_factory=list)
    """First offset and end of each transaction that stays open for long, seconds."""
    markers: int = 0
    """Records at the end that nobody can read: a transaction's markers."""
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)

    def grow(self, count: int, at_s: float) -> None:
        """Append `count` records that nobody reads here."""
        self.end += count
        self.markers = 0 if count else self.markers
        self.ends.append((at_s, self.end))

    def mark_end(self, at_s: float) -> None:
        """Append a transaction's marker."""
        markers = self.markers + 1
        self.grow(1, at_s)
        self.markers = markers

    def begin(self, at_s: float, lasts_s: float) -> None:
        """Append a transaction's records. Readers of committed ones see none before it ends."""
        self.transactions.append((self.end, at_s + lasts_s))
        self.grow(1_000, at_s)

    def truncate(self, count: int, at_s: float) -> None:
        """Lose the last records, as under a leader that had not caught up."""
        self.end = max(self.start, self.end - count)
        self.markers = 0
        self.ends.append((at_s, self.end))

    def stable_end(self, since_s: float) -> int:
        """The last stable offset: the first offset of the transactions open at `since_s` or
        later."""
        return min([self.end, *(first for first, end_s in self.transactions if end_s > since_s)])

    def ends_since(self, at_s: float) -> list[int]:
        """Where the log ended at that time and later."""
        first = max(0, bisect_left(self.ends, (at_s, -1)) - 1)
        return [end for _, end in self.ends[first:]]

    def wake(self) -> None:
        for waiter in list(self.waiters):
            _resolve(waiter, None)

    def end_at(self, at_s: float) -> int:
        at = bisect_left(self.ends, (at_s, -1))
        return self.ends[at - 1][1] if at else 0

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))
        while self.records and self.records[0].offset < self.start:
            self.records.pop(0)


@dataclass
class Topic:
    name: str
    topic_id: bytes
    logs: list[Log]


class Network:
    """How long a request takes, and whether it, or its response, is lost."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self.loss = 0.0
        """Share of the exchanges that fail."""
        self.slow = 0.0
        """Share of the requests, and of the responses, that take long."""
        self.is_away = False

    def delay_s(self) -> float:
        if self._random.random() < self.slow:
            return 2.0
        return self._random.choice((0.001, 0.002, 0.005, 0.02))

    def outcome(self) -> str:
        """`answered`, `lost` (it never arrives), `unanswered` (it was executed), or `late` (it is
        executed after its sender gave up)."""
        if self.is_away:
            return "lost"
        if self._random.random() >= self.loss:
            return "answered"
        return self._random.choice(("lost", "unanswered", "late"))


class SimulatedKafka:
    """One cluster. Its methods are executed at a broker: clients reach them by `exchange`."""

    def __init__(self, loop: VirtualLoop, randomness: random.Random, nodes: int = 3) -> None:
        self.loop = loop
        self.network = Network(randomness)
        self.nodes = list(range(nodes))
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.lies: dict[tuple[int, str], tuple[str, float]] = {}
        """By broker and topic: what its metadata wrongly answers (`unknown` or `absent`), and until
        when; 0: once."""
        self.throttled_until_s: dict[int, float] = {}
        """By broker."""
        self.coordinator_moves_until_s = 0.0
        self.on_append: OnAppend = lambda record, writer: None
        self.on_send: OnEvent = lambda event, writer: None
        self.on_acknowledged: OnEvent = lambda event, writer: None
        self.on_commit: OnCommit = lambda partition, offset, member: None
        self._random = randomness
        self._created = 0

    async def exchange(self, execute: Callable[[], _Result], may_be_late: bool = True) -> _Result:
        """The result of `execute` at a broker. Raises one of KAFKA_FAILURES; in a process that
        is dead CancelledError."""
        process = current_process()
        if process is not None and not process.is_alive:
            raise asyncio.CancelledError  # Whatever it was doing ends.
        outcome, network = self.network.outcome(), self.network
        response: asyncio.Future[_Result] = self.loop.create_future()

        def arrive(answer: bool) -> None:
            try:
                result = execute()
            except Exception as error:
                if answer:
                    self.loop.call_world(network.delay_s(), _fail, response, error)
            else:
                if answer:
                    self.loop.call_world(network.delay_s(), _resolve, response, result)

        if outcome in ("answered", "unanswered"):
            self.loop.call_world(network.delay_s(), arrive, outcome == "answered")
        if outcome != "answered":
            failure = RequestTimedOutError("no response came")
            self.loop.call_world(REQUEST_TIMEOUT_S, _fail, response, failure)
        if outcome == "late" and may_be_late:
            self.loop.call_world(REQUEST_TIMEOUT_S + 10 * self._random.random(), arrive, False)
        return await response

    def lie(self, node: int, topic: str) -> str | None:
        """What the broker's metadata wrongly answers of the topic now."""
        kind, until_s = self.lies.get((node, topic), (None, 0.0))
        if until_s <= self.loop.now_s:
            self.lies.pop((node, topic), None)
        return kind if not until_s or until_s > self.loop.now_s else None

    def heal(self) -> None:
        """End every trouble, but for what was lost."""
        self.network.loss, self.network.slow, self.network.is_away = 0.0, 0.0, False
        self.lies.clear()
        self.throttled_until_s.clear()
        self.coordinator_moves_until_s = 0.0
        for topic in self.topics.values():
            for number, log in enumerate(topic.logs):
                log.leader = self.nodes[number % len(self.nodes)]
                log.transactions = [(at, min(s, self.loop.now_s)) for at, s in log.transactions]

    # Topics

    def create_topic(self, name: str, partitions: int) -> Topic:
        self._created += 1
        topic = Topic(
            name,
            self._created.to_bytes(16, "big"),
            [Log(leader=number % len(self.nodes)) for number in range(partitions)],
        )
        for log in topic.logs:
            log.ends = [(self.loop.now_s, 0)]
        self.topics[name] = self.topics_by_id[topic_id_text(topic.topic_id)] = topic
        return topic

    def add_partition(self, name: str) -> None:
        logs = self.topics[name].logs
        logs.append(Log(leader=len(logs) % len(self.nodes), ends=[(self.loop.now_s, 0)]))
        for group in self.groups.values():
            group.partitions_changed(name)

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        for log in topic.logs if topic is not None else ():
            log.wake()
        for group in self.groups.values():
            group.committed = {p: at for p, at in group.committed.items() if p.topic != name}

    def has(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition < len(topic.logs)

    def log(self, partition: TopicPartition) -> Log:
        """Raises UnknownTopicOrPartitionError."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.logs):
            raise UnknownTopicOrPartitionError(f"{partition.topic}[{partition.partition}]")
        log: Log = topic.logs[partition.partition]
        return log

    def append(
        self,
        partition: TopicPartition,
        key: bytes,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes]],
        writer: Process | None = None,
    ) -> int:
        log = self.log(partition)
        record = ConsumerRecord(
            topic=partition.topic,
            partition=partition.partition,
            offset=log.end,
            timestamp=epoch_ms(self.loop.now_s),
            timestamp_type=_LOG_APPEND_TIME,
            key=key,
            value=value,
            checksum=None,
            serialized_key_size=len(key),
            serialized_value_size=-1 if value is None else len(value),
            headers=tuple(headers),
        )
        log.records.append(record)
        log.grow(1, self.loop.now_s)
        log.wake()
        self.on_append(record, writer)
        return int(record.offset)

    def read(self, partition: TopicPartition, offset: int, most: int) -> list[ConsumerRecord]:
        log = self.log(partition)
        first = offset - (log.end - len(log.records))
        return log.records[max(0, first) : max(0, first) + most]

    def offset_for_time(self, partition: TopicPartition, time_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is as new."""
        log = self.log(partition)
        at = bisect_left(log.records, time_ms, key=lambda record: record.timestamp)
        return (
            (log.records[at].offset, log.records[at].timestamp) if at < len(log.records) else None
        )

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(self)
        return self.groups[name]


class Member(asyncio.Event):
    """Of a group. Set: it has to join again."""

    def __init__(self, process: Process | None, topic: str) -> None:
        super().__init__()
        self.process = process
        self.topic = topic
        self.generation = -1
        self.assigned: list[TopicPartition] = []
        self.joined: asyncio.Future[None] | None = None
        self.is_closed = False

    @property
    def heartbeats(self) -> bool:
        process = self.process
        remains_still = process is not None and (process.remains_still or not process.is_alive)
        return not self.is_closed and not remains_still


class Group:
    """Kafka's classic group protocol, with eager rebalancing and the round-robin assignor."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self._kafka = kafka
        self.members: list[Member] = []
        self.generation = 0
        self.committed: dict[TopicPartition, int] = {}
        self._is_rebalancing = False
        self._rebalance = 0
        """Counts them, so that the time-out of an earlier one is known as such."""

    def join(self, member: Member) -> asyncio.Future[None]:
        """Join, or join again; done once the group has its next generation. Raises
        NotCoordinatorForGroupError while its coordinator moves."""
        self._require_coordinator()
        if member not in self.members:
            self.members.append(member)
        if not member.heartbeats:
            # It died while this was on its way.
            self.lost(member)
        if not self._is_rebalancing:
            self._begin()
        member.clear()
        member.joined = self._kafka.loop.create_future()
        joined = member.joined
        self._end_if_all_joined()
        return joined

    def leave(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            member.generation = -1
            self._begin()
            self._end_if_all_joined()

    def lost(self, member: Member) -> None:
        """It has stopped sending heartbeats: after the session time-out it is out."""
        self._kafka.loop.call_world(SESSION_TIMEOUT_S, self._expire, member)

    def commit(
        self, member: Member, generation: int, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Raises IllegalGenerationError for a member of an earlier generation. One that knows that
        it is out has none: its commit is accepted while the group is empty."""
        self._require_coordinator()
        is_current = member in self.members and generation == self.generation
        if not is_current and (self.members or generation >= 0):
            raise IllegalGenerationError("the group has another generation")
        for partition, offset in offsets.items():
            self.committed[partition] = offset
            self._kafka.on_commit(partition, offset, member.process)

    def expel(self, member: Member) -> None:
        """End its session. The response to its heartbeat, or to its request to join, tells it."""
        joined, member.joined = member.joined, None
        if joined is not None:
            _fail(joined, IllegalGenerationError("the session has expired"))
        self.leave(member)
        member.set()

    def partitions_changed(self, topic: str) -> None:
        if any(member.topic == topic for member in self.members):
            self._begin()

    def _begin(self) -> None:
        self._is_rebalancing = True
        self._rebalance += 1
        for member in self.members:
            if member.joined is None:
                self._kafka.loop.call_world(HEARTBEAT_S, self._ask, member, self._rebalance)
        self._kafka.loop.call_world(REBALANCE_TIMEOUT_S, self._time_out, self._rebalance)

    def _ask(self, member: Member, rebalance: int) -> None:
        if rebalance == self._rebalance and member in self.members and member.joined is None:
            member.set()

    def _time_out(self, rebalance: int) -> None:
        if rebalance == self._rebalance and any(member.joined for member in self.members):
            for member in [member for member in self.members if member.joined is None]:
                self.members.remove(member)
                member.generation = -1
                member.set()
            self._end_if_all_joined()

    def _expire(self, member: Member) -> None:
        if member in self.members and not member.heartbeats:
            self.expel(member)

    def _require_coordinator(self) -> None:
        if self._kafka.loop.now_s < self._kafka.coordinator_moves_until_s:
            raise NotCoordinatorForGroupError("the group's coordinator moves")

    def _end_if_all_joined(self) -> None:
        if not self.members or any(member.joined is None for member in self.members):
            return
        self.generation += 1
        self._is_rebalancing = False
        self._rebalance += 1
        for member in self.members:
            member.generation = self.generation
            member.assigned = []
        for topic in sorted({member.topic for member in self.members}):
            described = self._kafka.topics.get(topic)
            count = 0 if described is None else len(described.logs)
            sharing = [member for member in self.members if member.topic == topic]
            for number in range(count):
                owner = sharing[number % len(sharing)]
                owner.assigned.append(TopicPartition(topic, number))
        for member in self.members:
            joined, member.joined = member.joined, None
            if joined is not None:
                self._kafka.loop.call_world(self._kafka.network.delay_s(), _resolve, joined, None)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # Whoever waited may be dead, or its response lost.


def topic_id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
