"""A second Kafka node beside a LocalKafka, to be killed or frozen with the partitions it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.local_kafka import LocalKafka
from tests.waiting import eventually

NODE_ID = 2


@contextmanager
def second_broker(first: LocalKafka) -> Iterator[LocalKafka]:
    """A broker of the same cluster, node 2; it has started, and may not have joined yet."""
    with LocalKafka(joins=first, node_id=NODE_ID) as broker:
        yield broker


@contextmanager
def frozen(broker: LocalKafka) -> Iterator[None]:
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


async def place(first: LocalKafka, topics: dict[str, list[int]]) -> None:
    """Create topics with each partition on the node that is named, once the second has joined."""
    admin = AIOKafkaAdminClient(bootstrap_servers=first.internal_servers)
    await admin.start()
    try:

        async def joined() -> bool:
            brokers = (await admin.describe_cluster())["brokers"]
            return NODE_ID in {broker["node_id"] for broker in brokers}

        await eventually(joined, "the second broker has joined")
        await admin.create_topics(
            [
                NewTopic(topic, -1, -1, replica_assignments={n: [at] for n, at in enumerate(nodes)})
                for topic, nodes in topics.items()
            ]
        )
    finally:
        await admin.close()
