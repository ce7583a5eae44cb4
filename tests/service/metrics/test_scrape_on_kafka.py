"""Scrapes of a real service, on a real broker."""

from __future__ import annotations

import asyncio

import pytest

from sparklag_service.metrics.exposition import Exposition
from sparklag_service.metrics.rendering import QuerySeries
from tests.local_kafka import LocalKafka
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService
from tests.service.metrics.scraped import Scrape, parse_text, settings
from tests.waiting import eventually

pytestmark = pytest.mark.kafka


async def series_of(exposition: Exposition, query_id: str) -> dict[str, float]:
    answer = await exposition.render("", "")
    return {
        sample.name: sample.value
        for family in parse_text(bytes(answer.body).decode())
        for sample in family.samples
        if sample.labels.get("query_id") == query_id and sample.labels.get("partition", "0") == "0"
    }


async def shows(exposition: Exposition, query_id: str, name: str, value: float) -> None:
    async def shown() -> bool:
        return (await series_of(exposition, query_id)).get(name) == value

    await eventually(shown, f"{name} {value}")


async def test_what_is_produced_shows_in_the_scrape_without_any_event_of_the_query(
    service: RunningService, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"record"] * 7)
    observation = seen(topic, {0: 3})
    service.observe(observation)
    exposition = Exposition(service.state)
    await shows(exposition, observation.query_id, "sparklag_partition_lag", 4.0)
    second_client.produce(topic, [b"record"] * 2)
    await shows(exposition, observation.query_id, "sparklag_partition_lag", 6.0)
    result = await series_of(exposition, observation.query_id)
    assert result["sparklag_partition_processed_offset"] == 3.0
    assert result["sparklag_partition_latest_offset"] == 9.0
    assert result["sparklag_query_lag"] == 6.0
    assert result["sparklag_query_measured_age_seconds"] < 60.0


async def test_a_topics_replicas_are_shown_as_another_client_sees_them(
    service: RunningService, kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 3)
    service.observe(seen(topic_name, {0: 0}))
    shown = QuerySeries(settings(compat=["kafka_exporter"]))

    async def scraped() -> Scrape:
        events = [entry.event for entry in service.state.view]
        return await asyncio.to_thread(Scrape, shown, *events, clusters=service.state.metadata)

    async def described() -> bool:
        return len((await scraped()).values("kafka_topic_partition_replicas")) == 3

    await eventually(described, "the topic's replicas")
    result = await scraped()
    described_there = second_client.described(topic_name)
    for number, partition in described_there.items():
        at = (("partition", str(number)), ("topic", topic_name))
        assert result.values("kafka_topic_partition_leader")[at] == partition.leader
        assert result.values("kafka_topic_partition_replicas")[at] == len(partition.replicas)
        assert result.values("kafka_topic_partition_in_sync_replica")[at] == len(partition.isrs)
        preferred = partition.leader == partition.replicas[0]
        assert result.values("kafka_topic_partition_leader_is_preferred")[at] == preferred
    labels, _ = result.only("kafka_broker_info")
    assert labels == {"id": "1", "address": kafka.bootstrap_servers}
