"""Live stream and history of real services on a real broker."""

from __future__ import annotations

import json
import uuid
from contextlib import AsyncExitStack

import pytest

from sparklag_schemas import Settings
from sparklag_schemas.timestamps import epoch_ms
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.conftest import send
from tests.service.instances import instance
from tests.service.live.live_server import StreamReader, deadline, reading

pytestmark = pytest.mark.kafka
MINUTE, HOUR = 60_000, 3_600_000


def move(client: SecondClient, settings: Settings, topic: str, query_id: str, to: int) -> None:
    observed = seen(topic, {0: to}, query_id=query_id, observed_at=epoch_ms())
    send(client, settings.offsets_topic, observed)


async def lag_of(reader: StreamReader, query_id: str, lag: int) -> None:
    async with deadline():
        while True:
            event = await reader.next()
            assert event is not None, "the stream has ended"
            document = json.loads(event.data)
            if (document["query_id"], document.get("total_lag")) == (query_id, lag):
                return


async def test_a_reader_goes_on_at_another_instance_and_misses_nothing(
    service_settings: Settings,
    second_client: SecondClient,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = second_client.create(topic_name)
    second_client.produce(topic, [b"order"] * 100)
    query_id = str(uuid.uuid4())
    async with AsyncExitStack() as opened, instance(service_settings) as (_, port):
        async with instance(service_settings) as (_, other_port):
            async with reading(other_port, "/stream") as reader:
                move(second_client, service_settings, topic, query_id, 10)
                await lag_of(reader, query_id, 90)
            last_id = reader.last_id
            staying = await opened.enter_async_context(
                reading(other_port, f"/lag/{query_id}/stream")
            )
            move(second_client, service_settings, topic, query_id, 20)
            await lag_of(staying, query_id, 80)
        while await staying.next() is not None:
            """Read until the end."""
        move(second_client, service_settings, topic, query_id, 30)
        async with reading(port, "/stream", last_id) as reader:
            await lag_of(reader, query_id, 80)
            await lag_of(reader, query_id, 70)
    assert "Exception in ASGI application" not in caplog.text
