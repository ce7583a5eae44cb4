"""A real broker and the simulated one answer one script of client calls equally."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pkgutil import resolve_name
from typing import Any, Final, NamedTuple

import pytest
from aiokafka import ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.brokers.logs import read_topic_ids
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ResolvedSettings, Settings, encode
from sparklag_schemas.messages.topics import partition_of_key
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.simulation.clients import in_place_of_kafka
from tests.simulation.clock import virtual_time
from tests.simulation.kafka import SimulatedKafka
from tests.waiting import eventually, holds

_VALUE: Final = encode(lag_event())
_SETTINGS: Final = Settings(metadata_interval_s=0.5)
_EVICTION_MS: Final = 6_000
"""How long a real group waits for a member that does not join again."""


class Cluster(NamedTuple):
    """How clients reach it, and what its administrator and retention do."""

    settings: ResolvedSettings
    create: Callable[[str, int], Awaitable[object]]
    add_partition: Callable[[str, int], Awaitable[object]]
    """The topic, and how many it has then."""
    delete: Callable[[str], Awaitable[object]]
    delete_before: Callable[[str, int], Awaitable[object]]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.before_release: Callable[[], Awaitable[object]] | None = None

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.calls.append(("revoked", _numbers(revoked)))
        if self.before_release is not None:
            await self.before_release()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.calls.append(("assigned", _numbers(assigned)))


@asynccontextmanager
async def _consumer(
    cluster: Cluster,
    topic: str,
    group: str | None = None,
    listener: Listener | None = None,
    rebalance_timeout_ms: int = 60_000,
) -> AsyncIterator[Any]:
    # By its name in the service: in_place_of_kafka replaces it there.
    consumer = resolve_name("sparklag_service.intakes.topic:ContractConsumer")(
        cluster.settings,
        lambda *_: None,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=rebalance_timeout_ms,
    )
    consumer.subscribe([topic], listener=listener or Listener())
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def _produce(cluster: Cluster, topic: str, keys: str, value: bytes | None = _VALUE) -> None:
    create = resolve_name("sparklag_service.publishing.own_topics:AcknowledgedProducer")
    producer = create(cluster.settings)
    try:
        for key in keys:
            headers = [("key", key.encode())]
            await producer.send(topic, key=key.encode(), value=value, headers=headers)
    finally:
        await producer.aclose()


async def _read(consumer: Any, count: int) -> list[ConsumerRecord]:
    """The next `count` records, those of a partition in the order in which they come."""
    records: list[ConsumerRecord] = []

    async def are_read() -> bool:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            records.extend(batch)
        return len(records) >= count

    await eventually(are_read, f"{count} records are read")
    return sorted(records, key=lambda record: record.partition)


async def _offsets(consumer: Any, count: int) -> list[int]:
    return [record.offset for record in await _read(consumer, count)]


async def _each(
    call: Callable[[TopicPartition], Awaitable[object]], partitions: Iterable[TopicPartition]
) -> list[object]:
    return [await call(partition) for partition in sorted(partitions)]


async def _fails(call: Awaitable[object]) -> bool:
    try:
        await call
    except KAFKA_FAILURES:
        return True
    return False


def _numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(partition.partition for partition in partitions)


def _is_past(time_ms: int) -> bool:
    return epoch_ms() > time_ms


async def _records(cluster: Cluster, topic: str) -> list[object]:
    """Keys decide partitions, and records are read back in order, from any position."""
    await cluster.create(topic, 3)
    await _produce(cluster, topic, "abcadfa")
    await _produce(cluster, topic, "ab", None)
    async with _consumer(cluster, topic) as consumer:
        partitions = consumer.assignment()
        outcome: list[object] = [
            consumer.partitions_for_topic(topic),
            sorted((await consumer.beginning_offsets(partitions)).values()),
            sorted((p.partition, at) for p, at in (await consumer.end_offsets(partitions)).items()),
            await _each(consumer.position, partitions),
            [
                (r.partition, r.offset, r.key, r.value == _VALUE, r.headers, r.timestamp_type)
                for r in await _read(consumer, 9)
            ],
            await _each(consumer.position, partitions),
        ]
        of_a = TopicPartition(topic, partition_of_key(b"a", 3))
        end = await consumer.position(of_a)
        # One behind the end is reset to the start.
        for offset, count in ((1, end - 1), (end + 1, end)):
            consumer.seek(of_a, offset)
            outcome += [await consumer.position(of_a), await _offsets(consumer, count)]
        return outcome


async def _times(cluster: Cluster, topic: str) -> list[object]:
    """The offset for a time is that of the first record that is as new."""
    await cluster.create(topic, 1)
    partition = TopicPartition(topic, 0)
    times: list[int] = []
    async with _consumer(cluster, topic) as consumer:
        for key in "ab":
            await _produce(cluster, topic, key)
            (record,) = await _read(consumer, 1)
            times.append(record.timestamp)
            is_past = partial(_is_past, record.timestamp)
            await holds(is_past, "the next record is newer")
        outcome: list[object] = []
        for time_ms in (0, times[0], times[0] + 1, times[1], times[1] + 1):
            at = (await consumer.offsets_for_times({partition: time_ms}))[partition]
            outcome.append(at and (at.offset, times.index(at.timestamp)))
        return outcome


async def _retention(cluster: Cluster, topic: str) -> list[object]:
    """A position below the start is reset to the start, whatever is committed."""
    await cluster.create(topic, 1)
    partition = TopicPartition(topic, 0)
    await _produce(cluster, topic, "abcd")
    outcome: list[object] = []
    async with _consumer(cluster, topic, topic) as consumer:
        await consumer.commit({partition: 3})
        for start in (2, 4):
            await cluster.delete_before(topic, start)
            outcome += (await consumer.beginning_offsets([partition])).values()
            outcome += (await consumer.end_offsets([partition])).values()
            at = (await consumer.offsets_for_times({partition: 0}))[partition]
            outcome.append(at and at.offset)
            consumer.seek(partition, 0)
            outcome += [await consumer.position(partition), await _offsets(consumer, 4 - start)]
        await _produce(cluster, topic, "e")
        outcome.append(await _offsets(consumer, 1))
    async with _consumer(cluster, topic, topic) as consumer:
        outcome += [await consumer.committed(partition), await _offsets(consumer, 1)]
    return outcome


async def _group(cluster: Cluster, topic: str) -> list[object]:
    """Members share the partitions, and each begins where the owner before it has committed."""
    await cluster.create(topic, 3)
    await _produce(cluster, topic, "abcdefg")
    zero, one, two = partitions = [TopicPartition(topic, number) for number in range(3)]
    ours, theirs = Listener(), Listener()
    async with _consumer(cluster, topic, topic, ours) as first:
        outcome: list[object] = [
            _numbers(first.assignment()),
            await _each(first.committed, partitions),
            await _each(first.position, partitions),
            await _fails(first.commit({zero: 1})),
        ]
        # While the group rebalances, the generation is still the same.
        ours.before_release = partial(first.commit, {one: 2})
        async with _consumer(cluster, topic, topic, theirs) as second:
            await holds(lambda: len(ours.calls) == 4 and len(theirs.calls) == 2, "they share")
            ours.before_release = None
            # Which of them has which share is by chance.
            shares = sorted([_numbers(first.assignment()), _numbers(second.assignment())])
            outcome += [shares, ours.calls[:3], theirs.calls[:1]]
            outcome += [len(calls) for calls in (ours.calls, theirs.calls)]
            outcome.append(sorted([ours.calls[3][1], theirs.calls[1][1]]))
            outcome.append(await _each(second.committed, partitions))
            owners = {p: each for each in (first, second) for p in each.assignment()}
            outcome.append([await owners[p].position(p) for p in partitions])
            outcome.append(await _fails(owners[two].commit({two: 1})))
            foreign = min(second.assignment())
            outcome.append(await _fails(first.position(foreign)))
            outcome.append(await _fails(first.commit({foreign: 0})))
            await cluster.add_partition(topic, 4)
            members = (first, second)
            await holds(lambda: sum(len(m.assignment()) for m in members) == 4, "it is assigned")
            outcome.append(sorted(_numbers(member.assignment()) for member in members))
        await holds(lambda: ours.calls[-1][1] == [0, 1, 2, 3], "the first has all again")
        outcome += [ours.calls[-2][0], ours.calls[-1], await _each(first.position, partitions)]
        return outcome


async def _eviction(cluster: Cluster, topic: str) -> list[object]:
    """A member that is late to release its partitions is out, and what it commits is refused; in an
    empty group it is accepted, as that of a client that is no member."""
    await cluster.create(topic, 3)
    partition = TopicPartition(topic, 0)
    ours, release = Listener(), asyncio.Event()
    ours.before_release = release.wait
    release.set()
    async with _consumer(cluster, topic, topic, ours, _EVICTION_MS) as late:
        await late.commit({partition: 1})
        release.clear()
        async with _consumer(cluster, topic, topic, None, _EVICTION_MS) as other:
            outcome: list[object] = [
                _numbers(other.assignment()),
                await _fails(late.commit({partition: 2})),
                await other.committed(partition),
            ]
        outcome += [await _fails(late.commit({partition: 3})), await late.committed(partition)]
        release.set()
        await holds(lambda: len(ours.calls) == 4, "it has joined again")
        return [*outcome, ours.calls]


async def _without_a_group(cluster: Cluster, topic: str) -> list[object]:
    await cluster.create(topic, 2)
    await _produce(cluster, topic, "abd")
    async with _consumer(cluster, topic) as consumer:
        outcome: list[object] = [_numbers(consumer.assignment())]
        await _read(consumer, 3)
        await cluster.add_partition(topic, 3)
        await holds(lambda: len(consumer.assignment()) == 3, "it has the new partition")
        outcome.append(await _each(consumer.position, consumer.assignment()))
        return [*outcome, consumer.partitions_for_topic(topic)]


async def _recreation(cluster: Cluster, topic: str) -> list[object]:
    """A topic that is created anew has another id, and nobody has committed anything there."""
    access, partition = cluster.settings.access, TopicPartition(topic, 0)
    await cluster.create(topic, 1)
    await _produce(cluster, topic, "ab")
    async with _consumer(cluster, topic, topic) as member:
        await member.commit({partition: 2})
    async with _consumer(cluster, topic) as consumer:
        await _read(consumer, 2)
        before = await read_topic_ids([topic], access)
        await cluster.delete(topic)
        await holds(lambda: not consumer.assignment(), "its partition is gone")
        outcome: list[object] = [
            consumer.partitions_for_topic(topic),
            await read_topic_ids([topic], access),
        ]
        await cluster.create(topic, 1)
        outcome.append(await read_topic_ids([topic], access) != before)
        await holds(consumer.assignment, "it has the new topic's partition")
        outcome.append(await consumer.position(partition))
    async with _consumer(cluster, topic, topic) as member:
        return [*outcome, await member.committed(partition), await member.position(partition)]


async def _absence(cluster: Cluster, topic: str) -> list[object]:
    await cluster.create(topic, 1)
    absent, partition = f"{topic}-absent", TopicPartition(topic, 1)

    async def start(group: str | None) -> None:
        async with _consumer(cluster, absent, group):
            pass

    async with _consumer(cluster, topic) as consumer:
        calls = [start(None), start(absent), _produce(cluster, absent, "a")]
        calls += [consumer.end_offsets([partition]), consumer.beginning_offsets([partition])]
        calls += [consumer.position(partition)]
        return [consumer.partitions_for_topic(absent), *await asyncio.gather(*map(_fails, calls))]


_STEPS = (_records, _times, _retention, _group, _eviction, _without_a_group, _recreation, _absence)


async def _script(cluster: Cluster, name: str) -> dict[str, object]:
    """The outcome of each step. They run at the same time: most of it is waiting."""
    names = [step.__name__[1:] for step in _STEPS]
    steps = [step(cluster, f"{name}-{of}") for step, of in zip(_STEPS, names, strict=True)]
    return dict(zip(names, await asyncio.gather(*steps), strict=True))


def _on_real(broker: LocalKafka, client: SecondClient, name: str) -> dict[str, object]:
    threaded = partial(partial, asyncio.to_thread)
    cluster = Cluster(
        _SETTINGS.resolved(broker.bootstrap_servers),
        threaded(client.create, message_timestamp_type="LogAppendTime"),
        threaded(client.add_partitions),
        threaded(client.delete),
        threaded(lambda topic, offset: client.delete_records(topic, {0: offset})),
    )
    return asyncio.run(_script(cluster, name))


def _on_simulated(name: str) -> dict[str, object]:
    def at_once(call: Callable[..., object]) -> Callable[..., Awaitable[object]]:
        async def called(*args: object) -> None:
            call(*args)

        return called

    with virtual_time(1) as loop:
        kafka = SimulatedKafka(loop, random.Random(1))
        cluster = Cluster(
            _SETTINGS.resolved("broker:9000"),
            at_once(kafka.create_topic),
            at_once(lambda topic, _: kafka.add_partition(topic)),
            at_once(kafka.delete_topic),
            at_once(lambda topic, at: kafka.log(TopicPartition(topic, 0)).delete_before(at)),
        )
        with in_place_of_kafka(kafka):
            return loop.run_until_complete(_script(cluster, name))


@pytest.mark.kafka
def test_the_simulated_kafka_does_what_a_real_one_does(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    assert _on_simulated(topic_name) == _on_real(kafka, second_client, topic_name)
