"""Clients read the metadata of their own topics: of a whole cluster they may be megabytes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata

from sparklag_kafka.clients.producer import AcknowledgedProducer
from sparklag_listener.lag.topic_source import TopicSource
from sparklag_schemas import Settings, encode
from sparklag_schemas.messages.topics import key_of
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.kafka


async def test_producers_and_consumers_request_their_topics_alone(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_client.create(topic_name, 1)
    settings = Settings(lag_topic=topic_name).resolved(kafka.bootstrap_servers)
    requested: list[set[str]] = []
    request = AIOKafkaClient._metadata_update

    async def noted(
        client: AIOKafkaClient, metadata: ClusterMetadata, topics: Collection[str] | None
    ) -> bool:
        requested.append(set(topics or ()))
        return bool(await request(client, metadata, topics))

    monkeypatch.setattr(AIOKafkaClient, "_metadata_update", noted)
    event = lag_event()
    producer = AcknowledgedProducer(settings)
    try:
        await producer.send(topic_name, key=key_of(event.query_id), value=encode(event), headers=[])
    finally:
        await producer.aclose()
    source = TopicSource(settings)
    assert await asyncio.to_thread(source.find, event.query_id, DEADLINE_S) == event
    assert len(requested) >= 2
    assert all(topics == {topic_name} for topics in requested)
