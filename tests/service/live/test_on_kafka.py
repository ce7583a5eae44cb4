"""Live stream and history of real services on a real broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import AsyncExitStack

import httpx
import pytest

from sparklag_schemas import Settings, encode
from sparklag_schemas.timestamps import epoch_ms
from sparklag_schemas.topics import key_of
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.instances import instance
from tests.service.live.live_server import StreamReader, deadline, reading
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.kafka
MINUTE, HOUR = 60_000, 3_600_000


def move(client: SecondClient, settings: Settings, topic: str, query_id: str, to: int) -> None:
    """The query is there now, says its driver."""
    observed = seen(topic, {0: to}, query_id=query_id, observed_at=epoch_ms())
    client.produce(settings.offsets_topic, [encode(observed)], key=key_of(query_id))


async def lag_of(reader: StreamReader, query_id: str, lag: int) -> None:
    """Read until the query is said to lag so much."""
    async with deadline():
        while True:
            event = await reader.next()
            assert event is not None, "the stream has ended"
            told = json.loads(event.data)
            if (told["query_id"], told.get("total_lag")) == (query_id, lag):
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
        await until_end(staying)
        move(second_client, service_settings, topic, query_id, 30)
        async with reading(port, "/stream", last_id) as reader:
            await lag_of(reader, query_id, 80)
            await lag_of(reader, query_id, 70)
    assert "Exception in ASGI application" not in caplog.text


async def until_end(reader: StreamReader) -> None:
    while await reader.next() is not None:
        pass


async def test_a_new_instance_answers_for_the_history_that_others_saw(
    service_settings: Settings, second_client: SecondClient
) -> None:
    second_client.create(service_settings.lag_topic)
    now_ms = epoch_ms()
    # The heartbeats of the last minutes: the view looks no further back.
    for ago_ms in (*range(3 * HOUR, 0, -5 * MINUTE), *range(3 * MINUTE, 0, -10_000)):
        at_ms = now_ms - ago_ms
        event = lag_event(
            query_id="a", query="orders", observed_at=at_ms, measured_at=at_ms, total_lag=ago_ms
        )
        second_client.produce(
            service_settings.lag_topic, [encode(event)], key=key_of("a"), at_ms=at_ms
        )
    async with (
        instance(service_settings) as (pipeline, port),
        httpx.AsyncClient(timeout=DEADLINE_S) as http,
    ):
        await asyncio.wait_for(pipeline.refill.done.wait(), DEADLINE_S)
        answer = await http.get(
            f"http://127.0.0.1:{port}/lag/orders/history", params={"since": "4h", "step": "5m"}
        )
        page = answer.json()
        lags = {point["max_total_lag"] for point in page["points"]}
        assert set(range(3 * HOUR, 5 * MINUTE, -5 * MINUTE)) <= lags
        assert page["complete_since"] <= now_ms - 4 * HOUR
