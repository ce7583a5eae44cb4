"""A real service in this process, on the shared broker, with topics and a group of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from sparklag_schemas import LagEvent, Observation, Settings, decode_lag_event, encode
from sparklag_schemas.messages.topics import key_of
from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from tests.background_task import background
from tests.local_kafka import LocalKafka
from tests.loop_guard import own_work
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.service.live.live_server import LiveServer, live_server
from tests.service.pipelines import complete_pipeline_of, pipeline_of
from tests.service.rest_client import rest_client
from tests.waiting import holds, nothing_is_left


def send(
    client: SecondClient, topic: str, *messages: Observation | LagEvent, at_ms: int = 0
) -> None:
    """Write them with their keys. `at_ms`: the records' time; 0 is now."""
    for message in messages:
        key = key_of(message.query_id)
        client.produce(topic, [encode(message)], key=key, at_ms=at_ms)


class RunningService:
    def __init__(self, pipeline: Pipeline, client: SecondClient) -> None:
        self.pipeline = pipeline
        self.state = InstanceState(pipeline)
        self.settings = pipeline.settings
        self._client = client

    @own_work
    def observe(self, *observations: Observation) -> None:
        send(self._client, self.settings.offsets_topic, *observations)

    @own_work
    def published(self, query_id: str) -> list[LagEvent | None]:
        """The query's events on `consumer-lag`, in order; None is a tombstone."""
        return [
            decode_lag_event(value) if (value := message.value()) is not None else None
            for message in self._client.read_all(self.settings.lag_topic)
            if message.key() == key_of(query_id)
        ]

    async def shows(
        self, query_id: str, condition: Callable[[LagEvent], bool], what: str
    ) -> LagEvent:
        result: list[LagEvent] = []

        def is_shown() -> bool:
            entry = self.pipeline.view.get(query_id)
            if entry is not None and condition(entry.event):
                result.append(entry.event)
            return bool(result)

        await holds(is_shown, what)
        return result[0]

    async def measures(self, observed: Observation, lag: int) -> LagEvent:
        """It is observed, and lags so much."""
        self.observe(observed)
        return await self.shows(observed.query_id, lambda e: e.total_lag == lag, f"lag {lag}")

    def shown(self, query_id: str) -> LagEvent:
        entry = self.pipeline.view.get(query_id)
        assert entry is not None
        return entry.event

    async def is_ready(self) -> None:
        await nothing_is_left(self.state.not_ready, "the service is ready")


@pytest.fixture
def service_settings(kafka: LocalKafka) -> Settings:
    """Topics and a group that no other test uses; everything else as it is by default."""
    return settings_for(kafka.bootstrap_servers)


def settings_for(bootstrap_servers: str, **fields: Any) -> Settings:
    unique = uuid.uuid4().hex[:8]
    return Settings(
        **{
            "bootstrap_servers": bootstrap_servers,
            "offsets_topic": f"processed-offsets-{unique}",
            "lag_topic": f"consumer-lag-{unique}",
            "group_id": f"sparklag-{unique}",
            "topic_partitions": 2,
            **fields,
        }
    )


@pytest.fixture
def topic(second_client: SecondClient, topic_name: str) -> str:
    return second_client.create(topic_name)


@pytest.fixture
async def pipeline() -> Pipeline:
    """One that does not run, as if it had read its whole view: no Kafka is needed."""
    return complete_pipeline_of(Settings())


@pytest.fixture
async def http(pipeline: Pipeline) -> AsyncIterator[httpx.AsyncClient]:
    async with rest_client(pipeline) as client:
        yield client


class LagLog:
    """`consumer-lag` of a service that does not run, as instances wrote it."""

    def __init__(self, settings: Settings, client: SecondClient, **topic_settings: str) -> None:
        self.settings, self.client = settings, client
        self.topic = client.create(settings.lag_topic, 1, **topic_settings)

    def write(self, query_id: str, at_ms: int, **fields: Any) -> None:
        """An event of that time, by the log's clock too."""
        event = lag_event(query_id=query_id, observed_at=at_ms, measured_at=at_ms, **fields)
        send(self.client, self.topic, event, at_ms=at_ms)


@pytest.fixture
def log(service_settings: Settings, second_client: SecondClient) -> LagLog:
    return LagLog(service_settings, second_client)


@asynccontextmanager
async def running(settings: Settings, client: SecondClient) -> AsyncIterator[RunningService]:
    """A ready service; afterwards it is drained and gone."""
    async with starting(settings, client) as service:
        await service.is_ready()
        yield service


@asynccontextmanager
async def starting(settings: Settings, client: SecondClient) -> AsyncIterator[RunningService]:
    """The same, which need not become ready."""
    pipeline = pipeline_of(settings)
    async with background(pipeline.run()):
        yield RunningService(pipeline, client)
        await pipeline.drain(30)


@pytest.fixture
async def service(
    service_settings: Settings, second_client: SecondClient
) -> AsyncIterator[RunningService]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(running(service_settings, second_client))


@pytest.fixture
async def live() -> AsyncIterator[LiveServer]:
    """A service without Kafka, with the settings that it has by default."""
    async with live_server() as server:
        yield server
