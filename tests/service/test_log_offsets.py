"""Offsets from a real broker: each partition's error is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

from sparklag_pipeline.local_kafka import LocalKafka
from sparklag_service.log_offsets import LogOffsets
from tests.second_client import SecondClient
from tests.service.second_broker import NODE_ID, second_broker
from tests.waiting import eventually

pytestmark = pytest.mark.kafka


def log_offsets(bootstrap_servers: str, **fields: Any) -> LogOffsets:
    return LogOffsets(
        **{
            "bootstrap_servers": bootstrap_servers,
            "isolation_level": "read_uncommitted",
            "timeout_s": 30.0,
            "metadata_interval_s": 30.0,
            **fields,
        }
    )


async def answered(offsets: LogOffsets, partition: TopicPartition) -> bool:
    return partition in (await offsets.end_offsets([partition])).known


@pytest.fixture
async def offsets(kafka: LocalKafka) -> AsyncIterator[LogOffsets]:
    async with log_offsets(kafka.bootstrap_servers) as consumer:
        yield consumer


async def test_healthy_partitions_are_answered_as_aiokafka_answers_them(
    kafka: LocalKafka, second_client: SecondClient, offsets: LogOffsets, topic_name: str
) -> None:
    second_client.create(topic_name, 5)
    second_client.produce(topic_name, [b"x"] * 100)
    partitions = [TopicPartition(topic_name, number) for number in range(5)]
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as stock:
        expected = await stock.end_offsets(partitions)
        first = await stock.beginning_offsets(partitions)
    assert (await offsets.end_offsets(partitions)).known == expected
    assert (await offsets.beginning_offsets(partitions)).known == first
    assert sum(expected.values()) == 100


async def test_a_missing_topic_costs_only_its_own_partitions_and_is_not_created() -> None:
    # This broker creates what it is asked for, when it is asked the usual way.
    with LocalKafka(auto_create_topics=True) as broker:
        second = SecondClient(broker.bootstrap_servers)
        second.create("there", 1)
        async with log_offsets(broker.bootstrap_servers) as offsets:
            for _ in range(3):
                found = await offsets.end_offsets(
                    [TopicPartition("there", 0), TopicPartition("gone", 0)]
                )
                assert found.known == {TopicPartition("there", 0): 0}
                assert found.unknown == {TopicPartition("gone", 0): "topic gone does not exist"}
        assert "gone" not in second.topics()


async def test_a_topic_deleted_while_it_is_watched_is_not_created_again(
    topic_name: str,
) -> None:
    with LocalKafka(auto_create_topics=True) as broker:
        second = SecondClient(broker.bootstrap_servers)
        second.create(topic_name, 1)
        partition = TopicPartition(topic_name, 0)
        async with log_offsets(broker.bootstrap_servers) as offsets:
            assert partition in (await offsets.end_offsets([partition])).known
            second.delete(topic_name)
            found = await offsets.end_offsets([partition])
            assert partition in found.unknown
            assert topic_name not in second.topics()


async def test_a_partition_the_topic_does_not_have_is_named(
    second_client: SecondClient, offsets: LogOffsets, topic_name: str
) -> None:
    second_client.create(topic_name, 1)
    beyond = TopicPartition(topic_name, 7)
    found = await offsets.end_offsets([TopicPartition(topic_name, 0), beyond])
    assert found.known == {TopicPartition(topic_name, 0): 0}
    assert found.unknown == {beyond: f"topic {topic_name} has no such partition"}


async def test_a_topic_that_appears_later_is_found(
    second_client: SecondClient, offsets: LogOffsets, topic_name: str
) -> None:
    partition = TopicPartition(topic_name, 0)
    assert partition in (await offsets.end_offsets([partition])).unknown
    second_client.create(topic_name, 1)
    await eventually(lambda: answered(offsets, partition), "the new topic is found")


async def test_a_frozen_broker_costs_its_deadline_and_no_more_and_comes_back() -> None:
    with LocalKafka() as broker:
        second = SecondClient(broker.bootstrap_servers)
        second.create("orders", 1)
        partition = TopicPartition("orders", 0)
        async with log_offsets(broker.bootstrap_servers, timeout_s=1.0) as offsets:
            assert partition in (await offsets.end_offsets([partition])).known
            broker.freeze()
            try:
                found = await asyncio.wait_for(offsets.end_offsets([partition]), 30)
            finally:
                broker.thaw()
            assert "did not answer within 1 s" in found.unknown[partition]
            await eventually(lambda: answered(offsets, partition), "the broker answers again")


async def test_read_committed_ends_at_the_last_stable_offset(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 1)
    second_client.produce(topic_name, [b"settled"] * 3)
    partition = TopicPartition(topic_name, 0)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic_name
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic_name, b"open", partition=0)
            ends = {}
            for level in ("read_committed", "read_uncommitted"):
                async with log_offsets(kafka.bootstrap_servers, isolation_level=level) as offsets:
                    ends[level] = (await offsets.end_offsets([partition])).known[partition]
    assert ends == {"read_committed": 3, "read_uncommitted": 4}


async def test_asking_for_nothing_asks_nobody(offsets: LogOffsets) -> None:
    assert await offsets.end_offsets([]) == ({}, {})


async def test_a_partition_without_a_leader_costs_only_itself(tmp_path: Path) -> None:
    with LocalKafka() as first, second_broker(first, tmp_path) as second_node:
        client = SecondClient(first.bootstrap_servers)
        admin = AIOKafkaAdminClient(bootstrap_servers=first.internal_servers)
        await admin.start()
        try:

            async def joined() -> bool:
                brokers = (await admin.describe_cluster())["brokers"]
                return NODE_ID in {broker["node_id"] for broker in brokers}

            await eventually(joined, "the second broker has joined")
            spread = NewTopic("spread", -1, -1, replica_assignments={0: [1], 1: [NODE_ID]})
            await admin.create_topics([spread])
        finally:
            await admin.close()
        client.produce("spread", [b"x"] * 3, partition=0)
        here, there = TopicPartition("spread", 0), TopicPartition("spread", 1)
        async with log_offsets(
            first.internal_servers, metadata_interval_s=1.0, timeout_s=5.0
        ) as offsets:

            async def both() -> bool:
                known = (await offsets.end_offsets([here, there])).known
                return bool(known == {here: 3, there: 0})

            await eventually(both, "both partitions are answered for")
            second_node.kill()

            async def leaderless() -> bool:
                found = await offsets.end_offsets([here, there])
                assert found.known.get(here) == 3
                return bool(found.unknown.get(there) == "the partition has no leader")

            await eventually(leaderless, "the lost partition is named as leaderless")
