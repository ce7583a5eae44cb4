"""The service's clients, of a SimulatedKafka: a consumer with the methods of `ContractConsumer`, a
producer with those of `AcknowledgedProducer`, and a connection that answers the metadata and offset
requests of `BrokerPool`'s users in Kafka's own bytes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BytesIO
from typing import Any, Final
from unittest import mock

from aiokafka.errors import IllegalStateError, KafkaConnectionError
from aiokafka.protocol.types import CompactString, String, UnsignedVarInt32
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition

from sparklag_kafka.errors import KAFKA_FAILURES, KafkaUnavailable, error_text
from sparklag_schemas.codec import decode_lag_event
from sparklag_schemas.messages.topics import partition_of_key
from sparklag_schemas.runtime.tasks import cancel_and_wait
from tests.simulation.clock import current_process
from tests.simulation.kafka import Member, SimulatedKafka

compact_string: Callable[[str], bytes] = CompactString("utf-8").encode
string: Callable[[str], bytes] = String("utf-8").encode
varint: Callable[[int], bytes] = UnsignedVarInt32.encode

_ONE_POLL_MS: Final = 1_000
_FETCH_RETRY_S: Final = 0.5
_PORT: Final = 9_000
_THROTTLE_S: Final = 1.5
_VERSIONS: Final = dict.fromkeys(range(80), (0, 20))
_int32 = struct.Struct(">i").pack


class SimulatedConsumer:
    """With a group it gets its partitions from that; without one it has all of its topic."""

    def __init__(
        self, kafka: SimulatedKafka, group_id: str | None = None, **_options: object
    ) -> None:
        self._kafka = kafka
        self._group = None if group_id is None else kafka.group(group_id)
        self._member: Member | None = None
        self._listener: Any = None
        self._topic = ""
        self._topic_id = b""
        self._positions: dict[TopicPartition, int] = {}
        self._assigned: list[TopicPartition] = []
        self._coordination: asyncio.Task[None] | None = None
        self._has_assignment = asyncio.Event()
        self._is_rebalancing = False
        self._generation = 0
        """Counts assignments: what was fetched before one is not returned after it."""
        self._is_closed = False

    def subscribe(self, topics: list[str], listener: Any = None) -> None:
        (self._topic,) = topics
        self._listener = listener

    async def start(self) -> None:
        # Raises UnknownTopicOrPartitionError.
        await self._kafka.exchange(lambda: self._kafka.log(TopicPartition(self._topic, 0)))
        if self._group is None:
            self._refresh_assignment()
        else:
            self._is_rebalancing = True
            self._member = Member(current_process(), self._topic)
            self._coordination = asyncio.create_task(self._coordinate(self._member))
            await self._has_assignment.wait()

    def assignment(self) -> set[TopicPartition]:
        if self._group is None and not self._is_closed:
            self._refresh_assignment()
        return set(self._assigned)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        described = self._kafka.topics.get(topic)
        return None if described is None else set(range(len(described.logs)))

    async def position(self, partition: TopicPartition) -> int:
        self._require_assigned(partition)
        while partition not in self._positions:
            await self._set_first_position(partition)
            self._require_assigned(partition)
        return self._positions[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._require_assigned(partition)
        self._positions[partition] = offset

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = sorted(partitions)
        return await self._kafka.exchange(lambda: {p: self._kafka.log(p).end for p in wanted})

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        wanted = sorted(partitions)
        return await self._kafka.exchange(lambda: {p: self._kafka.log(p).start for p in wanted})

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        result = await self._kafka.exchange(
            lambda: {p: self._kafka.offset_for_time(p, time) for p, time in times.items()}
        )
        return {p: None if at is None else OffsetAndTimestamp(*at) for p, at in result.items()}

    async def committed(self, partition: TopicPartition) -> int | None:
        assert self._group is not None
        group = self._group
        return await self._kafka.exchange(lambda: group.committed.get(partition))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        assert self._group is not None
        assert self._member is not None
        self._require_assigned(*offsets)
        group, member, generation = self._group, self._member, self._member.generation
        await self._kafka.exchange(lambda: group.commit(member, generation, offsets))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        while True:
            wanted = list(partitions) or sorted(self.assignment())
            if not self._is_rebalancing:
                batches = await self._fetch(wanted, max_records)
                if batches:
                    return batches
            remaining_s = deadline_s - loop.time()
            if remaining_s <= 0 or not wanted:
                if remaining_s > 0:
                    await asyncio.sleep(remaining_s)
                return {}
            await self._until_appended(wanted, remaining_s)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        while True:
            for records in (
                await self.getmany(*partitions, timeout_ms=_ONE_POLL_MS, max_records=1)
            ).values():
                return records[0]

    async def leave_group(self, timeout_s: float, *first: Callable[[], Awaitable[None]]) -> None:
        for step in (*first, self.stop):
            with suppress(*KAFKA_FAILURES):
                await asyncio.wait_for(step(), timeout_s)

    async def stop(self) -> None:
        self._is_closed = True
        if self._coordination is not None:
            await cancel_and_wait(self._coordination)
        if self._group is not None and self._member is not None:
            group, member = self._group, self._member
            self._member, member.is_closed = None, True
            # It sends no heartbeat any more, should the group not learn that it leaves.
            group.lost(member)
            await self._kafka.exchange(lambda: group.leave(member))

    async def _fetch(
        self, wanted: list[TopicPartition], most: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        generation = self._generation
        for partition in wanted:
            if partition not in self._positions:
                await self._set_first_position(partition)
            if generation != self._generation:
                return {}
            position = self._positions[partition]
            if not self._kafka.has(partition):
                continue
            log = self._kafka.log(partition)
            if position < log.start or position > log.end:
                await self._reset(partition)
                return {}
            if position >= log.end:
                continue
            try:
                records = await self._kafka.exchange(
                    partial(self._kafka.read, partition, position, most)
                )
            except KAFKA_FAILURES:
                await asyncio.sleep(_FETCH_RETRY_S)
                continue
            if generation != self._generation:
                return {}
            if records:
                self._positions[partition] = records[-1].offset + 1
                return {partition: records}
        return {}

    async def _until_appended(self, wanted: list[TopicPartition], timeout_s: float) -> None:
        logs = [self._kafka.log(partition) for partition in wanted if self._kafka.has(partition)]
        # A dict keeps their order: with a set it would depend on addresses.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(timeout_s, _wake, waiter)
        for log in logs:
            log.waiters[waiter] = None
        try:
            await waiter
        finally:
            timer.cancel()
            for log in logs:
                log.waiters.pop(waiter, None)

    async def _set_first_position(self, partition: TopicPartition) -> None:
        committed, generation = None, self._generation
        if self._group is not None:
            committed = await self.committed(partition)
        if generation != self._generation:
            return
        if committed is None:
            await self._reset(partition)
        else:
            self._positions[partition] = committed

    async def _reset(self, partition: TopicPartition) -> None:
        generation = self._generation
        start = (await self.beginning_offsets([partition]))[partition]
        if generation == self._generation:
            self._positions[partition] = start

    def _require_assigned(self, *partitions: TopicPartition) -> None:
        if not self.assignment().issuperset(partitions):
            raise IllegalStateError("a partition is not assigned")

    def _refresh_assignment(self) -> None:
        topic = self._kafka.topics.get(self._topic)
        numbers = range(0 if topic is None else len(topic.logs))
        assigned = [TopicPartition(self._topic, number) for number in numbers]
        if assigned != self._assigned:
            # aiokafka keeps no position where another partition is assigned.
            self._assigned = assigned
            self._positions.clear()
            self._generation += 1

    async def _coordinate(self, member: Member) -> None:
        """Join whenever that is requested, and call the listener, as aiokafka does."""
        assert self._group is not None
        group = self._group
        await self._listener.on_partitions_revoked([])
        while True:
            try:
                await (await self._kafka.exchange(lambda: group.join(member), may_be_late=False))
            except KAFKA_FAILURES:
                await asyncio.sleep(_FETCH_RETRY_S)
                continue
            self._assigned = list(member.assigned)
            self._positions.clear()
            self._has_assignment.set()
            if member.process is not None:
                member.process.assignments += 1
            await self._listener.on_partitions_assigned(list(self._assigned))
            self._is_rebalancing = False
            await member.wait()
            self._is_rebalancing = True
            self._generation += 1
            await self._listener.on_partitions_revoked(list(self._assigned))


class SimulatedProducer:
    """Acknowledges what is in the log; what fails may be in it all the same."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self._kafka = kafka
        self.started = True
        self.uncompressed = None

    async def send(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        headers: Any,
        partitioner: Callable[[int], int] | None = None,
        query: str | None = None,
    ) -> None:
        process = current_process()
        event = None if value is None else decode_lag_event(value)
        if event is not None and process is not None:
            self._kafka.on_send(event, process)

        def append() -> None:
            described = self._kafka.topics.get(topic)
            count = 1 if described is None else len(described.logs)
            number = partition_of_key(key, count) if partitioner is None else partitioner(count)
            self._kafka.append(TopicPartition(topic, number), key, value, headers, process)

        try:
            await self._kafka.exchange(append)
        except KAFKA_FAILURES as error:
            raise KafkaUnavailable(f"not acknowledged: {error_text(error)}") from error
        if event is not None and process is not None:
            self._kafka.on_acknowledged(event, process)

    async def aclose(self) -> None:
        pass


class SimulatedConnection:
    """To one broker: answers Metadata, and ListOffsets of the partitions that it leads."""

    def __init__(self, kafka: SimulatedKafka, address: tuple[str, int], timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._kafka = kafka
        self._node = address[1] - _PORT
        self._is_closed = False

    async def connect(self) -> SimulatedConnection:
        if self._is_closed:
            raise KafkaConnectionError("the connection was closed")
        return self

    async def send(self, request: Any) -> Any:
        prepared = request.prepare(_VERSIONS)
        answer = {2: self._list_offsets, 3: self._metadata}[prepared.API_KEY]
        response = await asyncio.wait_for(
            self._answered(lambda: answer(prepared.encode())), self.timeout_s
        )
        return prepared.RESPONSE_TYPE.decode(BytesIO(response))

    async def _answered(self, execute: Callable[[], bytes]) -> bytes:
        throttled_s = self._kafka.throttled_until_s.get(self._node, 0.0) - self._kafka.loop.now_s
        if throttled_s > 0:
            await asyncio.sleep(min(throttled_s, _THROTTLE_S))
        return await self._kafka.exchange(execute)

    def drop(self, connection: object) -> None:
        pass

    async def aclose(self) -> None:
        self._is_closed = True

    def _list_offsets(self, body: bytes) -> bytes:
        is_committed = body[4] == 1
        (count,) = struct.unpack_from(">i", body, 5)
        at, topics = 9, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", body, at)
            name = body[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (partitions,) = struct.unpack_from(">i", body, at)
            at += 4
            answers = []
            for _ in range(partitions):
                number, spec = struct.unpack_from(">iq", body, at)
                at += 12
                answers.append(
                    struct.pack(">ihqq", *self._offset(name, number, spec, is_committed))
                )
            topics.append(string(name) + _int32(len(answers)) + b"".join(answers))
        return struct.pack(">ii", 0, len(topics)) + b"".join(topics)

    def _offset(
        self, name: str, number: int, spec: int, is_committed: bool
    ) -> tuple[int, int, int, int]:
        topic = self._kafka.topics.get(name)
        if topic is None or number >= len(topic.logs):
            return number, 3, -1, -1
        log = topic.logs[number]
        if log.leader != self._node:
            return number, 6, -1, -1
        end = log.stable_end(self._kafka.loop.now_s) if is_committed else log.end
        return number, 0, -1, end if spec == -1 else log.start

    def _metadata(self, body: bytes) -> bytes:
        names, at = [], 1
        for _ in range(body[0] - 1):
            at += 16
            length = body[at] - 1
            names.append(body[at + 1 : at + 1 + length].decode())
            at += 2 + length
        kafka = self._kafka
        brokers = b"".join(
            _int32(node) + compact_string("broker") + _int32(_PORT + node) + b"\0\0"
            for node in kafka.nodes
        )
        lies = {name: kafka.lie(self._node, name) for name in names}
        names = [name for name in names if lies[name] != "absent"]
        topics = b"".join(self._described(name, lies[name] is not None) for name in names)
        head = _int32(0) + varint(len(kafka.nodes) + 1) + brokers
        cluster = compact_string("simulated") + _int32(0)
        return head + cluster + varint(len(names) + 1) + topics + b"\0"

    def _described(self, name: str, is_unknown: bool) -> bytes:
        topic = None if is_unknown else self._kafka.topics.get(name)
        logs = [] if topic is None else topic.logs
        partitions = b""
        for number, log in enumerate(logs):
            error, leader = (5, -1) if log.leader is None else (0, log.leader)
            brokers = varint(2) + _int32(leader)
            partitions += struct.pack(">hiii", error, number, leader, 0) + brokers * 2 + b"\1\0"
        error_code = struct.pack(">h", 3 if topic is None else 0)
        topic_id = bytes(16) if topic is None else topic.topic_id
        head = error_code + compact_string(name) + topic_id + b"\0"
        return head + varint(len(logs) + 1) + partitions + _int32(0) + b"\0"


@contextmanager
def in_place_of_kafka(kafka: SimulatedKafka) -> Iterator[None]:
    package = "sparklag_service"

    def consumer(_settings: object, _on_unreadable: object, **options: Any) -> SimulatedConsumer:
        return SimulatedConsumer(kafka, options.get("group_id"))

    def connection(
        address: tuple[str, int], _options: object, _trusted: object, timeout_s: float
    ) -> SimulatedConnection:
        return SimulatedConnection(kafka, address, timeout_s)

    async def create_missing(_access: object, specs: Iterable[Any]) -> list[str]:
        def create() -> list[str]:
            missing = [spec for spec in specs if spec.name not in kafka.topics]
            for spec in missing:
                kafka.create_topic(spec.name, spec.partitions)
            return [spec.name for spec in missing]

        return await kafka.exchange(create)

    async def find_problems(*_: object) -> dict[str, list[str]]:
        return {}

    async def explain_error(error: BaseException, _access: object) -> str:
        return error_text(error)

    async def connection_problem(_access: object) -> None:
        return None

    async def wait_for_ever(_self: object) -> None:
        await asyncio.get_running_loop().create_future()

    replaced: dict[str, Any] = {
        f"{package}.intakes.topic.ContractConsumer": consumer,
        f"{package}.view.feed.ContractConsumer": consumer,
        f"{package}.publishing.own_topics.AcknowledgedProducer": (
            lambda _settings: SimulatedProducer(kafka)
        ),
        "sparklag_kafka.brokers.pool.BrokerConnection": connection,
        f"{package}.publishing.own_topics.create_missing": create_missing,
        f"{package}.publishing.own_topics.find_problems": find_problems,
        f"{package}.publishing.own_topics.explain_error": explain_error,
        f"{package}.publishing.own_topics.connection_problem": connection_problem,
        f"{package}.supervision.explain_error": explain_error,
        f"{package}.intakes.topic.explain_error": explain_error,
        "sparklag_kafka.brokers.pool.connection_problem": connection_problem,
        # Records' own times, the live stream and the history are not simulated.
        f"{package}.enrichment.record_times.RecordTimes.run": wait_for_ever,
        f"{package}.history.refill.Refill.run": wait_for_ever,
        f"{package}.live.hub.LiveHub.run": wait_for_ever,
    }
    with ExitStack() as stack:
        for target, replacement in replaced.items():
            stack.enter_context(mock.patch(target, replacement))
        yield


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
