"""Consumer groups as the group intake meets them, and the intake under test."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.types import CompactString, UnsignedVarInt32
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.protocol.encoding import PreparedRequest, Versions
from sparklag_schemas import (
    Cause,
    ClusterSettings,
    GroupSettings,
    KafkaSettings,
    Observation,
    Settings,
)
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings import ClusterAccess
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery, SourceContext, TrackedQuery, delivery_queue
from sparklag_service.intakes.group_observations import GroupObservations
from sparklag_service.intakes.groups import GroupIntake
from tests.background_task import background
from tests.waiting import holds

compact_string, varint = CompactString("utf-8").encode, UnsignedVarInt32.encode

Offsets = dict[str, dict[int, int]]


Commit = Callable[[Offsets], Awaitable[None]]


@asynccontextmanager
async def committing(bootstrap_servers: str, group: str) -> AsyncIterator[Commit]:
    """A function that commits without joining: the group has no members."""
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False
    ) as consumer:

        async def commit_all(offsets: Offsets) -> None:
            by_partition = {
                TopicPartition(topic, number): offset
                for topic, numbers in offsets.items()
                for number, offset in numbers.items()
            }
            consumer.assign(list(by_partition))
            await consumer.commit(by_partition)

        yield commit_all


async def commit(bootstrap_servers: str, group: str, offsets: Offsets) -> None:
    async with committing(bootstrap_servers, group) as commit_all:
        await commit_all(offsets)


async def metadata_of(bootstrap_servers: str, group: str) -> dict[str, dict[int, str]]:
    """The metadata of a group's offsets: librdkafka returns more than there is."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        result: dict[str, dict[int, str]] = {}
        for at, committed in (await admin.list_consumer_group_offsets(group)).items():
            result.setdefault(at.topic, {})[at.partition] = committed.metadata
        return result
    finally:
        await admin.close()


@asynccontextmanager
async def member(
    bootstrap_servers: str, group: str, *topics: str
) -> AsyncIterator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        yield consumer


@dataclass
class Watch:
    intake: GroupIntake
    queue: NewestQueue[Delivery]
    observed: list[Observation] = field(default_factory=list)

    def of(self, group: str) -> list[Observation]:
        while not self.queue.empty():
            delivery = self.queue.get_nowait()
            delivery.done()
            self.observed.append(delivery.observation)
        return [observation for observation in self.observed if observation.query == group]

    def positions(self, group: str) -> list[Offsets | None]:
        return [o.sources[0].processed if o.sources else None for o in self.of(group)]

    def causes(self, group: str) -> list[str]:
        """Why the group was observed, without refreshes: its members may be reported anew."""
        return [o.cause for o in self.of(group) if o.cause != "refresh"]

    async def shows(
        self, group: str, condition: Callable[[Observation], bool], what: str
    ) -> Observation:
        await holds(lambda: any(map(condition, self.of(group))), what)
        return next(filter(condition, self.of(group)))

    async def at(self, group: str, offsets: Offsets, cause: Cause = "group") -> Observation:
        return await self.shows(
            group,
            lambda o: o.cause == cause and bool(o.sources) and o.sources[0].processed == offsets,
            f"{group} is at {offsets} ({cause})",
        )

    async def fails(self, text: str) -> str:
        await holds(
            lambda: any(text in reason for reason in self.intake.failing.values()),
            f"failing: {text}",
        )
        return next(reason for reason in self.intake.failing.values() if text in reason)

    async def fails_no_more(self) -> None:
        await holds(lambda: not self.intake.failing, "nothing fails")


@asynccontextmanager
async def watching(
    bootstrap_servers: str,
    *allow: str,
    alias: str = "default",
    kafka: KafkaSettings | None = None,
    deny: tuple[str, ...] = (),
    interval_s: float = 0.2,
    find_interval_s: float = 1.0,
    heartbeat_s: float = 600.0,
    owns: Callable[[str], bool] = lambda query_id: True,
    queries: Mapping[str, TrackedQuery] | None = None,
) -> AsyncIterator[Watch]:
    """An intake of the groups that match `allow`; afterwards it is cancelled and gone."""
    queue = delivery_queue(10_000, Counters())
    groups = GroupSettings(
        allow=list(allow), deny=list(deny), interval_s=interval_s, find_interval_s=find_interval_s
    )
    cluster = ClusterSettings(
        bootstrap_servers=bootstrap_servers, kafka=kafka or KafkaSettings(), groups=groups
    )
    settings = Settings(heartbeat_s=heartbeat_s).resolved(bootstrap_servers)
    context = SourceContext(settings, queue, owns, queries or {})
    intake = GroupIntake(alias, cluster, GroupObservations(alias, context))
    async with background(intake.run()) as running:
        yield Watch(intake, queue)
        assert not running.done()


def speaking(monkeypatch: pytest.MonkeyPatch, versions: Versions) -> None:
    """Use no newer versions of requests than these."""
    connect = BrokerConnection.connect

    async def older(broker: BrokerConnection) -> Any:
        connection = await connect(broker)
        connection._versions |= versions
        return connection

    monkeypatch.setattr(BrokerConnection, "connect", older)


class _MovePartitions:
    """AlterPartitionReassignments, which no client here has: each partition to one broker."""

    def __init__(self, topic: str, nodes: dict[int, int]) -> None:
        moves = (
            b"".join((struct.pack(">i", number), varint(2), struct.pack(">i", node), b"\0"))
            for number, node in nodes.items()
        )
        self._body = b"".join(
            (
                struct.pack(">i", 60_000),
                *(varint(2), compact_string(topic), varint(len(nodes) + 1), *moves, b"\0\0"),
            )
        )

    def prepare(self, versions: Versions) -> PreparedRequest:
        return PreparedRequest(45, 0, self._body, True, bytes)


async def move_partitions(internal_servers: str, topic: str, nodes: dict[int, int]) -> None:
    """Have the brokers move partitions; they take their time."""
    async with BrokerPool(ClusterAccess(internal_servers), timeout_s=60.0) as pool:
        response = await pool.connections()[0].send(_MovePartitions(topic, nodes))
    (error_code,) = struct.unpack_from(">h", response, 4)
    assert error_code == 0
