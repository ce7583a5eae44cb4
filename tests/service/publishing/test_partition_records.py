"""`consumer-lag-partitions` on a real broker: keyed, only what changed, tombstones when gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import Settings
from sparklag_schemas.messages.topics import key_of, partition_of
from tests.messages import moved, seen
from tests.second_client import SecondClient
from tests.service.conftest import running
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


@pytest.fixture
def by_partition(service_settings: Settings) -> Settings:
    return replace(
        service_settings,
        partition_records=True,
        partition_topic=service_settings.lag_topic.replace("lag", "lag-partitions"),
    )


class Table:
    def __init__(self, settings: Settings, client: SecondClient) -> None:
        self._topic = settings.partition_topic
        self._client = client

    def changes(self, query_id: str) -> list[tuple[str, Any]]:
        """Key without the query and value of each record, in order of each key; None: gone."""
        return [
            (
                (message.key() or b"").decode().removeprefix(f"{query_id}/"),
                None if message.value() is None else json.loads(message.value() or b""),
            )
            for message in self._client.read_all(self._topic)
            if (message.key() or b"").startswith(query_id.encode())
        ]

    async def comes_to(self, query_id: str, lags: dict[str, int]) -> None:
        async def remains() -> bool:
            newest = dict(await asyncio.to_thread(self.changes, query_id))
            result = {key: value["lag"] for key, value in newest.items() if value is not None}
            return result == lags

        await eventually(remains, f"lags {lags}")


async def test_each_partition_has_a_record_of_its_own_that_changes_with_it(
    by_partition: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 3)
    second_client.produce(topic_name, [b"x"] * 9, partition=1)
    query = seen(topic_name, {0: 0, 1: 0, 2: 0})
    table = Table(by_partition, second_client)
    async with running(by_partition, second_client) as service:
        service.observe(query)
        lags = {f"0/{topic_name}/{n}": lag for n, lag in enumerate((0, 9, 0))}
        await table.comes_to(query.query_id, lags)
        service.observe(moved(query, {0: 0, 1: 4, 2: 0}))
        lags[f"0/{topic_name}/1"] = 5
        await table.comes_to(query.query_id, lags)
        assert service.pipeline.counters.partition_failures == 0
    written = [key for key, _ in table.changes(query.query_id)]
    assert written.count(f"0/{topic_name}/0") == 1
    assert written.count(f"0/{topic_name}/1") == 2
    (first, *_) = second_client.read_all(by_partition.partition_topic)
    key = (first.key() or b"").decode()
    assert first.partition() == partition_of(key, 2)
    assert dict(first.headers() or ())["ce_type"] == b"sparklag.partition.v1"


async def test_a_query_that_is_forgotten_leaves_one_for_each_partition(
    by_partition: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2)
    query = seen(topic_name, {0: 0, 1: 0}, cause="terminated")
    table = Table(by_partition, second_client)
    async with running(replace(by_partition, keep_s=0.0), second_client) as service:
        service.observe(query)
        await holds(lambda: service.pipeline.counters.tombstones, "it is forgotten")
        await holds(lambda: service.pipeline.counters.partition_records >= 4, "all are written")
    for number in (0, 1):
        of_one = [v for key, v in table.changes(query.query_id) if key.endswith(f"/{number}")]
        assert [value and value["lag"] for value in of_one] == [0, None]


async def test_another_instance_goes_on_with_the_same_table(
    by_partition: Settings, second_client: SecondClient, topic: str
) -> None:
    query = seen(topic, {0: 0})
    table = Table(by_partition, second_client)
    async with running(by_partition, second_client) as service:
        service.observe(query)
        await table.comes_to(query.query_id, {f"0/{topic}/0": 0})
    async with running(replace(by_partition, keep_s=0.0), second_client) as service:
        service.observe(replace(moved(query, {0: 0}), cause="terminated"))
        await table.comes_to(query.query_id, {})


async def test_a_query_may_have_a_partition_of_consumer_lag_to_itself(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    by_name = seen(topic, {0: 0}, query=f"{topic}-alone")
    by_id = seen(topic, {0: 0})
    others = [seen(topic, {0: 0}) for _ in range(8)]
    settings = replace(
        service_settings, topic_partitions=4, own_partitions=[f"{topic}-alone", by_id.query_id]
    )
    queries = [by_name, by_id, *others]
    async with running(settings, second_client) as service:
        service.observe(*queries)
        for query in queries:
            await service.shows(query.query_id, lambda e: e.total_lag == 0, "it is measured")
    where = {
        message.key(): message.partition() for message in second_client.read_all(settings.lag_topic)
    }
    assert where[key_of(by_name.query_id)] == 2
    assert where[key_of(by_id.query_id)] == 3
    for query in others:
        assert where[key_of(query.query_id)] == partition_of(query.query_id, 2)
