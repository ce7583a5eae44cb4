"""Scrapes of a real service, on a real broker."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from sparklag_schemas.settings import MetricsSettings
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.metrics.rendering import QuerySeries
from tests.local_kafka import LocalKafka
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, settings_for
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


async def test_no_series_of_another_tools_name_is_shown_twice_while_queries_change_hands(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2)
    settings = replace(
        settings_for(kafka.bootstrap_servers, topic_partitions=8),
        metrics=MetricsSettings(compat=["kafka-lag-exporter", "kafka_exporter"]),
    )
    observations = [seen(topic_name, {0: 0, 1: 0}) for _ in range(12)]

    async def shown(*services: RunningService) -> list[set[str]]:
        rendering = (Exposition(service.state).render("", "") for service in services)
        return [
            {
                line.rpartition(b" ")[0].decode()
                for line in bytes(answer.body).splitlines()
                if line.startswith(b"kafka_")
            }
            for answer in await asyncio.gather(*rendering)
        ]

    async with running(settings, second_client) as first:
        first.observe(*observations)
        for observation in observations:
            await first.shows(observation.query_id, lambda event: event.total_lag == 0, "its lag")
        (everything,) = await shown(first)
        async with running(settings, second_client) as second:

            async def shared() -> bool:
                ours, theirs = await shown(first, second)
                assert not ours & theirs
                return bool(ours and theirs) and ours | theirs == everything

            await eventually(shared, "each series is shown by one of two")

        async def all_again() -> bool:
            return await shown(first) == [everything]

        await eventually(all_again, "the first shows all again")
