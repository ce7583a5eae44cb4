"""Offsets committed to a group without joining it, as a real broker takes them."""

from __future__ import annotations

import pytest

from sparklag_kafka.brokers.group_offsets import commit_offsets
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_schemas.settings import ClusterAccess
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.groups import metadata_of

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("newest", [2, 99])
async def test_a_broker_takes_it_in_each_version(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, newest: int
) -> None:
    other = second_client.create(f"{topic_name}-other", 2)
    second_client.create(topic_name, 30)
    offsets = {topic_name: {n: 2**40 + n for n in range(30)}, other: {1: 0}}
    group = f"{topic_name}-ů"
    # With the first commit of all the group gets a coordinator.
    second_client.commit(group, {other: {0: 1}})
    async with BrokerPool(ClusterAccess(kafka.bootstrap_servers), timeout_s=30.0) as pool:
        broker = pool.connections()[0]
        connection = await broker.connect()
        if newest != 99:
            connection._versions |= {8: (0, newest)}
        codes = await commit_offsets(broker, group, offsets, "metadata ů")
        assert codes == {t: dict.fromkeys(numbers, 0) for t, numbers in offsets.items()}
        missing = await commit_offsets(broker, group, {"no-such-topic": {0: 5}}, "")
        assert missing == {"no-such-topic": {0: 3}}
    assert second_client.committed(group, topic_name) == offsets[topic_name]
    assert second_client.committed(group, other) == {0: 1, 1: 0}
    metadata = await metadata_of(kafka.bootstrap_servers, group)
    assert metadata[other] == {0: "", 1: "metadata ů"}
    assert set(metadata[topic_name].values()) == {"metadata ů"}
