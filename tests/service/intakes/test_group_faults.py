"""A bad group or broker costs only itself, and is no deletion."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from sparklag_schemas import KafkaSettings
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import moved, seen
from tests.second_client import SecondClient
from tests.secured_kafka import grant, login
from tests.service.groups import commit, committing, move_partitions, speaking, watching
from tests.service.mirror.mirroring import committed, mirroring
from tests.service.second_broker import NODE_ID, frozen, place, second_broker
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka

_OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True)
class Two:
    """A cluster of two brokers, and a topic on the first."""

    first: LocalKafka
    second: LocalKafka
    client: SecondClient
    topic: str

    async def groups(self, prefix: str) -> tuple[str, str]:
        results: dict[int, str] = {}
        for number in count():
            group = f"{prefix}-{number}"
            results.setdefault(await self.coordinator(group), group)
            if results.keys() >= {1, NODE_ID}:
                break
        return results[1], results[NODE_ID]

    async def committed_groups(self, prefix: str) -> tuple[str, str]:
        here, there = await self.groups(prefix)
        for group in (here, there):
            await commit(self.first.internal_servers, group, {self.topic: {0: 5}})
        return here, there

    async def coordinator(self, group: str) -> int:
        """The id of the broker that coordinates a group; 0 while none does."""
        admin = AdminClient({"bootstrap.servers": self.first.internal_servers})

        def describe() -> int:
            try:
                described: Any = admin.describe_consumer_groups([group])[group].result(60)
            except KafkaException:
                return 0
            return int(described.coordinator.id)

        return await asyncio.to_thread(describe)


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    with LocalKafka() as first, second_broker(first) as second:
        # The topic of the groups' own offsets is made by the first commit; both have joined then.
        asyncio.run(place(first, {"orders": [1]}))
        yield Two(first, second, SecondClient(first.internal_servers), "orders")


async def test_a_coordinator_that_hangs_costs_only_its_own_groups(
    two: Two, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = await two.committed_groups(topic_name)
    async with watching(
        two.first.bootstrap_servers,
        f"{re.escape(topic_name)}.*",
        heartbeat_s=0.5,
        kafka=KafkaSettings(request_timeout_s=2.0),
    ) as watch:
        for group in (here, there):
            await watch.at(group, {two.topic: {0: 5}})
        async with committing(two.first.internal_servers, here) as commit_here:
            await commit_here({two.topic: {0: 6}})
            with frozen(two.second):
                why = await watch.fails(f"broker {NODE_ID} did not answer within 2 s")
                assert why.startswith("Kafka cluster default: ")
                for offset in range(7, 10):
                    await commit_here({two.topic: {0: offset}})
                    await watch.at(here, {two.topic: {0: offset}})
                await watch.at(here, {two.topic: {0: 9}}, cause="refresh")
                # What cannot be read has no heartbeat.
                printed = len(watch.of(there))
                for offset in range(10, 12):
                    await commit_here({two.topic: {0: offset}})
                    await watch.at(here, {two.topic: {0: offset}}, cause="refresh")
                assert len(watch.of(there)) == printed
            await watch.fails_no_more()
        await commit(two.first.internal_servers, there, {two.topic: {0: 6}})
        await watch.at(there, {two.topic: {0: 6}})
        assert "terminated" not in {o.cause for o in watch.of(there)}
    assert sum("broker 2 did not answer" in message for message in logged(caplog)) <= 2


async def test_a_dead_coordinator_is_no_deletion_and_read_again(two: Two, topic_name: str) -> None:
    here, there = await two.committed_groups(topic_name)
    async with watching(two.first.bootstrap_servers, f"{re.escape(topic_name)}.*") as watch:
        for group in (here, there):
            await watch.at(group, {two.topic: {0: 5}})
        two.second.kill()
        # Every broker that is left answers, and none lists it.
        await watch.fails(f"group {there}: it has no coordinator now")
        await commit(two.first.internal_servers, here, {two.topic: {0: 6}})
        await watch.at(here, {two.topic: {0: 6}})
        assert len(watch.of(there)) == 1
        await asyncio.to_thread(two.second.start)
        await watch.fails_no_more()
        await commit(two.first.internal_servers, there, {two.topic: {0: 6}})
        await watch.at(there, {two.topic: {0: 6}})
        assert watch.causes(there) == ["group", "group"]


async def test_a_coordinator_without_list_is_retried_at_once(two: Two, topic_name: str) -> None:
    here, there = await two.committed_groups(topic_name)
    async with AsyncExitStack() as hangs:
        hangs.enter_context(frozen(two.second))
        async with watching(
            two.first.bootstrap_servers,
            f"{re.escape(topic_name)}.*",
            find_interval_s=3600.0,
            kafka=KafkaSettings(request_timeout_s=2.0),
        ) as watch:
            await watch.at(here, {two.topic: {0: 5}})
            await watch.fails(f"broker {NODE_ID} did not answer within 2 s")
            await hangs.aclose()
            await watch.at(there, {two.topic: {0: 5}})
            await watch.fails_no_more()


async def test_a_group_whose_coordinator_moves_goes_on(two: Two, topic_name: str) -> None:
    _, there = await two.committed_groups(topic_name)
    partitions = two.client.partitions(_OFFSETS_TOPIC)
    async with (
        spread_afterwards(two),
        watching(two.first.bootstrap_servers, re.escape(there), find_interval_s=600.0) as watch,
    ):
        await watch.at(there, {two.topic: {0: 5}})
        for node in (1, NODE_ID):
            await move_partitions(
                two.first.internal_servers, _OFFSETS_TOPIC, dict.fromkeys(range(partitions), node)
            )

            async def moved(node: int = node) -> bool:
                return await two.coordinator(there) == node

            await eventually(moved, f"broker {node} coordinates it")
            await commit(two.first.internal_servers, there, {two.topic: {0: 5 + node}})
            await watch.at(there, {two.topic: {0: 5 + node}})
        await watch.fails_no_more()
        assert watch.causes(there) == ["group"] * 3


@asynccontextmanager
async def spread_afterwards(two: Two) -> AsyncIterator[None]:
    """Spread the partitions again for the next test, also after a failure."""
    partitions = two.client.partitions(_OFFSETS_TOPIC)
    spread = {number: (1, NODE_ID)[number % 2] for number in range(partitions)}

    async def is_there() -> bool:
        return await asyncio.to_thread(two.client.leaders, _OFFSETS_TOPIC) == spread

    try:
        yield
    finally:
        await move_partitions(two.first.internal_servers, _OFFSETS_TOPIC, spread)
        await eventually(is_there, "each partition is led where it was")


async def test_a_mirror_goes_on_if_a_coordinator_hangs_or_moves(two: Two, topic_name: str) -> None:
    here, there = await two.groups(f"spark-{topic_name}-mirror")
    queries = [seen(two.topic, {0: 5}, query=g.removeprefix("spark-")) for g in (here, there)]
    kafka = KafkaSettings(request_timeout_s=2.0)
    partitions = two.client.partitions(_OFFSETS_TOPIC)
    async with spread_afterwards(two), mirroring(two.first.bootstrap_servers, kafka=kafka) as one:
        one.observe(*queries)
        for group in (here, there):
            await committed(two.client, group, two.topic, {0: 5})
        with frozen(two.second):
            one.observe(*(moved(query, {0: 6}) for query in queries))
            await one.fails(f"broker {NODE_ID} did not answer within 2 s; groups not mirrored: 1")
            # Another client could be waiting for that one too.
            await holds(lambda: one.counters.mirror_commits >= 3, "the other is mirrored")
        for group in (here, there):
            await committed(two.client, group, two.topic, {0: 6})
        await move_partitions(
            two.first.internal_servers, _OFFSETS_TOPIC, dict.fromkeys(range(partitions), 1)
        )

        async def has_moved() -> bool:
            return await two.coordinator(there) == 1

        await eventually(has_moved, "the first broker coordinates it")
        one.observe(moved(queries[1], {0: 7}, after_ms=2_000))
        await committed(two.client, there, two.topic, {0: 7})
        await one.fails_no_more()


async def test_a_cluster_that_is_away_is_named_once_and_tried_until_it_is_back(
    topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalKafka() as broker:
        SecondClient(broker.bootstrap_servers).create(topic_name, 1)
        await commit(broker.bootstrap_servers, topic_name, {topic_name: {0: 5}})
        await asyncio.to_thread(broker.stop)
        async with watching(broker.bootstrap_servers, ".*", alias="east", heartbeat_s=1.0) as watch:
            why = await watch.fails("no broker answers")
            assert why == (
                "Kafka cluster east: consumer groups cannot be read, no broker answers:"
                f" {broker.bootstrap_servers}: connection refused: is a broker listening there?"
            )
            await asyncio.to_thread(broker.start)
            first = await watch.at(topic_name, {topic_name: {0: 5}})
            await watch.fails_no_more()
            await asyncio.to_thread(broker.stop)
            await watch.fails("no broker answers")
            await asyncio.to_thread(broker.start)
            await watch.fails_no_more()
            await watch.shows(
                topic_name, lambda o: o.observed_at > first.observed_at, "it is read again"
            )
            assert {o.cause for o in watch.of(topic_name)} == {"group", "refresh"}
    away = [line for line in logged(caplog, logging.WARNING) if "no broker answers" in line]
    assert len(away) == 2


async def test_a_forbidden_group_is_named_alone(scram_kafka: LocalKafka, topic_name: str) -> None:
    SecondClient(scram_kafka.internal_servers).create(topic_name, 1)
    allowed, forbidden = f"{topic_name}-allowed", f"{topic_name}-forbidden"
    for group in (allowed, forbidden):
        await commit(scram_kafka.internal_servers, group, {topic_name: {0: 5}})
    describe = AclOperation.DESCRIBE
    for user in ("sparklag", "admin"):
        grant(scram_kafka, ResourceType.TOPIC, topic_name, describe, user=user)
        grant(scram_kafka, ResourceType.GROUP, allowed, describe, user=user)
    # A list has every group for those who may describe the cluster.
    grant(scram_kafka, ResourceType.BROKER, "kafka-cluster", describe, user="admin")
    pattern = f"{re.escape(topic_name)}-.*"
    servers = scram_kafka.bootstrap_servers
    async with watching(servers, pattern, kafka=login("admin")) as watch:
        await watch.at(allowed, {topic_name: {0: 5}})
        why = await watch.fails(forbidden)
        assert why == f"Kafka cluster default: group {forbidden}: no right to describe it"
        assert not watch.of(forbidden)
        grant(scram_kafka, ResourceType.GROUP, forbidden, describe, user="admin")
        await watch.at(forbidden, {topic_name: {0: 5}})
        await watch.fails_no_more()
    # For others it has the groups that they may describe: no failure.
    async with watching(servers, pattern, kafka=login()) as watch:
        await watch.at(allowed, {topic_name: {0: 5}})
        assert not watch.intake.failing
        assert not watch.of(forbidden)


async def test_a_wrong_password_is_named_and_not_shown(scram_kafka: LocalKafka) -> None:
    servers = scram_kafka.bootstrap_servers
    async with watching(servers, ".*", kafka=login(password="secret-pass")) as watch:
        why = await watch.fails("wrong user name or password for 'sparklag'")
    assert "secret-pass" not in why
    assert "\n" not in why


@pytest.mark.parametrize("offset_fetch", [2, 3, 7])
async def test_brokers_of_older_versions_are_read_one_group_at_a_time(
    second_client: SecondClient, topic_name: str, offset_fetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking(monkeypatch, {9: (0, offset_fetch), 10: (0, 2), 16: (0, 2)})
    second_client.create(topic_name, 3)
    groups = [f"{topic_name}-{kind}" for kind in ("a", "b", "ů")]
    for group in groups:
        await commit(second_client.bootstrap_servers, group, {topic_name: {0: 5, 2: 7}})
    async with watching(second_client.bootstrap_servers, f"{re.escape(topic_name)}-.*") as watch:
        for group in groups:
            await watch.at(group, {topic_name: {0: 5, 2: 7}})
        admin = AdminClient({"bootstrap.servers": second_client.bootstrap_servers})
        deleting = admin.delete_consumer_groups([groups[0]])[groups[0]]
        await asyncio.to_thread(deleting.result, 60)
        await watch.at(groups[0], {topic_name: {0: 5, 2: 7}}, cause="terminated")
        await commit(second_client.bootstrap_servers, groups[1], {topic_name: {0: 6, 2: 7}})
        await watch.at(groups[1], {topic_name: {0: 6, 2: 7}})
