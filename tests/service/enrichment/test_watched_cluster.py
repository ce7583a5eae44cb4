"""Offsets from real brokers: each partition's error is its own, and the last good value stays."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.metadata import MetadataRequest, PartitionReplicas
from sparklag_schemas.settings import ClusterAccess
from sparklag_service.enrichment.watched_cluster import WatchedCluster
from sparklag_service.tracking.query_state import QueryState
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.asking import ask, of_sources, query, source, watching
from tests.service.second_broker import NODE_ID, frozen, place, second_broker
from tests.service.states import latest_of, unknown_of
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


@pytest.fixture
async def cluster(kafka: LocalKafka) -> AsyncIterator[WatchedCluster]:
    async with watching(kafka.bootstrap_servers, metadata_interval_s=1.0) as watched:
        yield watched


def latest(cluster: WatchedCluster, *, committed: bool = False) -> dict[TopicPartition, int]:
    return latest_of(cluster.offsets, "read_committed" if committed else "read_uncommitted")


def unknown(cluster: WatchedCluster) -> dict[TopicPartition, str]:
    return unknown_of(cluster.offsets)


async def requested_until(
    cluster: WatchedCluster, state: QueryState, condition: Callable[[], bool], what: str
) -> None:
    async def holds() -> bool:
        await ask(cluster, state)
        return condition()

    await eventually(holds, what)


async def measured(cluster: WatchedCluster, state: QueryState) -> None:
    wanted = {
        TopicPartition(topic, number)
        for one in state.sources
        for topic, numbers in (one.processed or {}).items()
        for number in numbers
    }
    await requested_until(
        cluster, state, lambda: wanted <= latest(cluster).keys(), "it is measured"
    )


async def test_healthy_partitions_are_answered_as_aiokafka_answers_them(
    kafka: LocalKafka, second_client: SecondClient, cluster: WatchedCluster, topic_name: str
) -> None:
    second_client.create(topic_name, 5)
    second_client.produce(topic_name, [b"x"] * 100)
    partitions = [TopicPartition(topic_name, number) for number in range(5)]
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as stock:
        expected = await stock.end_offsets(partitions)
        beginnings = await stock.beginning_offsets(partitions)
    first = {partition.partition: offset for partition, offset in beginnings.items()}
    await measured(cluster, query({topic_name: [0, 1, 2, 3, 4]}))
    assert latest(cluster) == expected
    assert sum(expected.values()) == 100
    await holds(
        lambda: cluster.offsets[topic_name].earliest == first,
        "the earliest offsets come by themselves",
    )


async def test_more_partitions_than_one_request_holds_are_all_answered(
    second_client: SecondClient, cluster: WatchedCluster, topic_name: str
) -> None:
    second_client.create(topic_name, 1_050)
    state = of_sources("new", source(topics=[topic_name]))
    await requested_until(cluster, state, lambda: len(latest(cluster)) == 1_050, "all are answered")
    assert cluster.offsets[topic_name].description.partitions == tuple(range(1_050))
    assert unknown(cluster) == {}


async def test_an_offset_is_requested_after_its_query(
    second_client: SecondClient, cluster: WatchedCluster, topic: str
) -> None:
    state = query({topic: [0]})
    await measured(cluster, state)
    for count in range(1, 4):
        second_client.produce(topic, [b"x"])
        requested_s = time.monotonic()
        await ask(cluster, state)
        result = cluster.offsets[topic].latest["read_uncommitted"][0]
        assert result.offset == count
        assert result.requested_s >= requested_s


@pytest.fixture(scope="module")
def creating() -> Iterator[LocalKafka]:
    """Creates requested topics. May be frozen and stopped."""
    with LocalKafka(auto_create_topics=True) as broker:
        yield broker


async def test_a_missing_topic_costs_only_itself_and_is_not_created(creating: LocalKafka) -> None:
    second = SecondClient(creating.bootstrap_servers)
    second.create("there", 1)
    there, gone = TopicPartition("there", 0), TopicPartition("gone", 0)
    async with watching(creating.bootstrap_servers) as cluster:
        state = query({"there": [0], "gone": [0]})
        for _ in range(3):
            await requested_until(
                cluster,
                state,
                lambda: (
                    latest(cluster) == {there: 0}
                    and "was ever seen" in unknown(cluster).get(gone, "")
                ),
                "the one is measured, the other named",
            )
        topic = cluster.offsets["gone"].description
        assert (topic.absent, topic.gone, cluster.unreadable) == (True, False, [])
    assert "gone" not in second.topics()


async def test_a_topic_deleted_while_it_is_watched_leaves_nothing_and_is_not_created_again(
    creating: LocalKafka, topic_name: str
) -> None:
    second = SecondClient(creating.bootstrap_servers)
    second.create(topic_name, 1)
    partition = TopicPartition(topic_name, 0)
    state = query({topic_name: [0]})
    # The leader's own answer is what has the metadata read again.
    async with watching(creating.bootstrap_servers, metadata_interval_s=1_000.0) as cluster:
        await measured(cluster, state)
        second.delete(topic_name)
        await requested_until(
            cluster,
            state,
            lambda: cluster.offsets[topic_name].description.gone and not latest(cluster),
            "the topic is gone",
        )
        assert cluster.offsets[topic_name].earliest == {}
        await ask(cluster, state)
        reason = f"topic {topic_name} does not exist"
        assert unknown(cluster) == {partition: reason}
        assert topic_name not in second.topics()


@pytest.mark.parametrize("refilled", [1, 9])
async def test_a_topic_created_anew_is_reported_by_its_id_and_starts_without_old_values(
    second_client: SecondClient, kafka: LocalKafka, topic_name: str, refilled: int
) -> None:
    second_client.create(topic_name, 2)
    second_client.produce(topic_name, [b"x"] * 5, partition=0)
    second_client.produce(topic_name, [b"x"] * 5, partition=1)
    state = query({topic_name: [0, 1]})
    # Shorter or longer, its metadata is read for that, and not in its turn.
    async with watching(kafka.bootstrap_servers, metadata_interval_s=1_000.0) as cluster:
        await measured(cluster, state)
        old_id = cluster.offsets[topic_name].description.topic_id
        assert old_id is not None
        assert len(old_id) == 22
        second_client.delete(topic_name)
        second_client.create(topic_name, 1)
        second_client.produce(topic_name, [b"x"] * refilled, partition=0)

        def is_new() -> bool:
            topic = cluster.offsets[topic_name].description
            if topic.topic_id not in (None, old_id):
                # From now on nothing of the old one is visible.
                assert TopicPartition(topic_name, 1) not in latest(cluster)
                assert latest(cluster).get(TopicPartition(topic_name, 0)) in (None, refilled)
            else:
                assert latest(cluster).get(TopicPartition(topic_name, 0)) in (None, 5)
            return topic.topic_id not in (None, old_id) and bool(latest(cluster))

        await requested_until(cluster, state, is_new, "the new topic is measured")
        assert cluster.offsets[topic_name].description.partitions == (0,)


async def test_a_partition_that_is_not_there_is_named(cluster: WatchedCluster, topic: str) -> None:
    beyond = TopicPartition(topic, 7)
    state = query({topic: [0, 7]})
    await requested_until(
        cluster, state, lambda: latest(cluster) == {TopicPartition(topic, 0): 0}, "measured"
    )
    assert unknown(cluster) == {beyond: f"topic {topic} has no such partition"}


async def test_a_frozen_broker_costs_its_deadline(creating: LocalKafka, topic_name: str) -> None:
    second = SecondClient(creating.bootstrap_servers)
    second.create(topic_name, 1)
    second.produce(topic_name, [b"x"] * 3)
    partition = TopicPartition(topic_name, 0)
    state = query({topic_name: [0]})
    async with watching(creating.bootstrap_servers, measure_timeout_s=1.0) as cluster:
        await measured(cluster, state)
        good = cluster.offsets[topic_name].latest["read_uncommitted"][0]
        creating.freeze()
        try:
            await requested_until(
                cluster,
                state,
                lambda: "did not answer within 1 s" in unknown(cluster).get(partition, ""),
                "the deadline has passed",
            )
            # It may have answered a request that came before the signal.
            kept = cluster.offsets[topic_name].latest["read_uncommitted"][0]
            assert kept.offset == good.offset
            await holds(lambda: cluster.unreachable is not None, "no broker of the cluster answers")
            assert str(cluster.unreachable).startswith("no broker answers")
        finally:
            creating.thaw()
        await requested_until(
            cluster, state, lambda: not unknown(cluster), "the broker answers again"
        )
        assert cluster.unreachable is None


async def test_read_committed_ends_at_the_last_stable_offset(
    kafka: LocalKafka, second_client: SecondClient, cluster: WatchedCluster, topic: str
) -> None:
    second_client.produce(topic, [b"settled"] * 3)
    partition = TopicPartition(topic, 0)
    position = {topic: {0: 0}}
    state = of_sources(
        "both",
        source(0, processed=position),
        source(1, processed=position, isolation_level="read_committed"),
    )
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"open", partition=0)
            await measured(cluster, state)
            assert latest(cluster) == {partition: 4}
            assert latest(cluster, committed=True) == {partition: 3}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[LocalKafka, LocalKafka]]:
    """Two nodes of a cluster; the second may be frozen, and killed by the last test."""
    with LocalKafka() as first, second_broker(first) as second_node:
        yield first, second_node


async def test_metadata_goes_on_if_a_broker_is_frozen(pair: tuple[LocalKafka, LocalKafka]) -> None:
    first, second_node = pair
    # Beside the frozen one none could be made: clients may take that for the controller.
    await place(first, {"here": [1], "new": [1]})
    async with watching(
        first.bootstrap_servers, metadata_interval_s=1.0, measure_timeout_s=120.0
    ) as cluster:
        await measured(cluster, query({"here": [0]}))
        assert "new" not in cluster.offsets
        cluster.pool.last_responder = cluster.table.brokers[NODE_ID]
        with frozen(second_node):
            state = of_sources("new", source(topics=["here", "new"]))
            await requested_until(
                cluster,
                state,
                lambda: (
                    "new" in cluster.offsets
                    and cluster.offsets["new"].description.partitions == (0,)
                ),
                "the other broker gives the metadata",
            )


async def test_a_partition_without_a_leader_costs_only_itself_and_keeps_its_last_value(
    pair: tuple[LocalKafka, LocalKafka],
) -> None:
    first, second_node = pair
    await place(first, {"spread": [1, 2]})
    SecondClient(first.bootstrap_servers).produce("spread", [b"x"] * 3, partition=0)
    here, there = TopicPartition("spread", 0), TopicPartition("spread", 1)
    state = query({"spread": [0, 1]})
    async with watching(first.bootstrap_servers) as cluster:
        await requested_until(
            cluster, state, lambda: latest(cluster) == {here: 3, there: 0}, "both are measured"
        )
        second_node.kill()
        await requested_until(
            cluster,
            state,
            lambda: unknown(cluster) == {there: "the partition has no leader"},
            "the lost partition is named as leaderless",
        )
        assert latest(cluster) == {here: 3, there: 0}
        requested_s = time.monotonic()
        await ask(cluster, state)
        good = cluster.offsets["spread"].latest["read_uncommitted"]
        here_s, there_s = (good[one.partition].requested_s for one in (here, there))
        assert here_s >= requested_s > there_s


async def test_metadata_of_an_old_broker_is_the_same_without_ids(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 3)
    pool = BrokerPool(ClusterAccess(kafka.bootstrap_servers), timeout_s=60.0)
    try:
        connection = await pool.connections()[0].connect()
        request = MetadataRequest([topic_name, f"{topic_name}-none"])
        brokers, topics = (await connection.send(request)).read()
        by_id = list(topics)
        connection._versions = {3: (0, 4)}
        old_brokers, topics = (await connection.send(request)).read()
        without_id = list(topics)
    finally:
        await pool.aclose()
    assert old_brokers == brokers
    assert [topic._replace(topic_id=None) for topic in by_id] == without_id
    assert [topic.leaders for topic in by_id] == [dict.fromkeys(range(3), 1), {}]
    assert by_id[0].replicas == dict.fromkeys(range(3), PartitionReplicas(1, 1, 1, 1))
