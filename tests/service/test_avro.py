"""The service in Avro, with a real registry that comes late, goes, or lacks a schema."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from msgspec.structs import replace

from sparklag_schemas import LagEvent, Observation, RegistrySettings, Settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.avro.schema import declared
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from tests.logged import logged
from tests.messages import moved, seen
from tests.registry_proxy import registry_proxy
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.service.conftest import running, starting
from tests.waiting import holds

pytestmark = pytest.mark.kafka


def avro(settings: Settings, url: str, **registry: Any) -> Settings:
    return replace(
        settings,
        format="avro",
        registry=RegistrySettings(**{"url": url, "timeout_s": 20.0, **registry}),
    )


@pytest.fixture
def avro_settings(service_settings: Settings, registry: SchemaRegistryServer) -> Settings:
    return avro(service_settings, registry.url)


class AvroDriver:
    def __init__(self, settings: Settings, client: SecondClient) -> None:
        self._topic = settings.offsets_topic
        self._writer = MessageFormats(settings).writer(Observation, self._topic)
        self._client = client

    async def observe(self, *observations: Observation) -> None:
        for one in observations:
            value = await self._writer.encode(one)
            self._client.produce(self._topic, [value], key=key_of(one.query_id))


def generic_events(
    settings: Settings, client: SecondClient, query_id: str
) -> Iterator[dict[str, Any]]:
    """What a reader gets of `consumer-lag` that knows the registry alone. JSON is left out."""
    context = SerializationContext(settings.lag_topic, MessageField.VALUE)
    assert settings.registry.url is not None
    with SchemaRegistryClient({"url": settings.registry.url}) as registry:
        reader = AvroDeserializer(registry)
        for message in client.read_all(settings.lag_topic):
            value = message.value()
            if message.key() == key_of(query_id) and value is not None and value[:1] == b"\0":
                result = reader(value, context)
                assert result is not None
                yield result


async def test_from_avro_to_avro_and_json_for_whoever_asks(
    avro_settings: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2)
    second_client.produce(topic_name, [b"x"] * 70, partition=0)
    query = seen(topic_name, {0: 5, 1: 0})
    async with running(avro_settings, second_client) as service:
        await AvroDriver(avro_settings, second_client).observe(query)
        shown = await service.shows(query.query_id, lambda e: e.total_lag == 65, "lag 65")
        entry = service.pipeline.view.get(query.query_id)
        assert entry is not None
        assert msgspec.json.decode(entry.document, type=LagEvent) == entry.event
    first = next(generic_events(avro_settings, second_client, query.query_id))
    assert first["total_lag"] == 65
    assert first["processed_at"].timestamp() * 1000 == pytest.approx(query.processed_at)
    assert [p["lag"] for p in first["topics"][0]["partitions"]] == [65, 0]
    assert first["query"] == shown.query
    (record, *_) = (
        message
        for message in second_client.read_all(avro_settings.lag_topic)
        if message.key() == key_of(query.query_id)
    )
    assert dict(record.headers() or ())["content-type"] == b"application/avro"


async def test_a_change_of_format_and_back_loses_nobody(
    avro_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 9)
    json_settings = replace(avro_settings, format="json")
    early, late = seen(topic, {0: 1}), seen(topic, {0: 2})
    async with running(json_settings, second_client) as service:
        await service.measures(early, 8)
    async with running(avro_settings, second_client) as service:
        assert service.pipeline.view.get(early.query_id) is not None
        # A driver that has the old settings still.
        service.observe(moved(early, {0: 4}))
        await AvroDriver(avro_settings, second_client).observe(late)
        await service.shows(early.query_id, lambda e: e.total_lag == 5, "a JSON driver")
        await service.shows(late.query_id, lambda e: e.total_lag == 7, "an Avro driver")
    async with running(json_settings, second_client) as service:
        await service.shows(early.query_id, lambda e: e.total_lag == 5, "the one, from Avro")
        await service.shows(late.query_id, lambda e: e.total_lag == 7, "the other")
        await holds(service.pipeline.refill.done.is_set, "the history is read")
        for query in (early, late):
            assert service.pipeline.history.archive.rows(query.query_id, epoch_ms())
        assert service.pipeline.counters.refusals.counts.total() == 0


async def test_a_registry_that_is_away_at_the_start_is_waited_for(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 3)
    server = SchemaRegistryServer()
    settings = avro(service_settings, server.url, timeout_s=1.0)
    query = seen(topic, {0: 0})
    async with starting(settings, second_client) as service:
        await holds(
            lambda: "schema registry" in service.state.not_ready(), "it says what it waits for"
        )
        assert "refused" in service.state.not_ready()["schema registry"]
        service.observe(query)
        await holds(lambda: service.pipeline.counters.publish_failures, "it cannot publish")
        with closing(server):
            # Not on the loop: a service that stands still for so long is put out of its group.
            await asyncio.to_thread(server.start)
            await service.is_ready()
            await service.shows(query.query_id, lambda e: e.total_lag == 3, "it publishes")


async def test_a_registry_that_goes_stops_nothing(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    query = seen(topic, {0: 0})
    with SchemaRegistryServer() as server:
        settings = avro(service_settings, server.url)
        driver = AvroDriver(settings, second_client)
        async with running(settings, second_client) as service:
            await driver.observe(query)
            await service.shows(query.query_id, lambda e: e.total_lag == 0, "with the registry")
            server.stop()
            second_client.produce(topic, [b"x"] * 9)
            await driver.observe(moved(query, {0: 4}))
            await service.shows(query.query_id, lambda e: e.total_lag == 5, "without it")
            assert service.state.not_ready() == {}
            assert service.pipeline.counters.publish_failures == 0


async def test_unreadable_messages_are_counted_logged_and_skipped(
    avro_settings: Settings,
    second_client: SecondClient,
    registry: SchemaRegistryServer,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    second_client.create(topic_name, 1)
    offsets_topic = avro_settings.offsets_topic
    second_client.create(offsets_topic, 2)
    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    foreign = struct.pack(">bI", 0, registry.register(f"{topic_name}-value", order)) + b"\x02"
    unknown = b"\0\x7f\xff\xff\xff\x02"
    good = seen(topic_name, {0: 0})
    written = await MessageFormats(avro_settings).writer(Observation, offsets_topic).encode(good)
    corrupt = written[:40]
    with caplog.at_level(logging.WARNING):
        async with running(avro_settings, second_client) as service:
            for junk in (foreign, unknown, corrupt, b"\0", b"hello"):
                second_client.produce(offsets_topic, [junk], partition=1)
                second_client.produce(avro_settings.lag_topic, [junk], key=b"junk", partition=1)
            await AvroDriver(avro_settings, second_client).observe(good)
            await service.shows(good.query_id, lambda e: e.total_lag == 0, "the good one")
            refusals = service.pipeline.counters.refusals
            await holds(lambda: refusals.counts.total() == 10, "all are counted")
            reads_failed = service.pipeline.counters.reads_failed
    assert reads_failed == 0
    refused = [line for line in logged(caplog) if "refused a message" in line]
    for topic, expected in (
        (offsets_topic, "sparklag.Observation"),
        (avro_settings.lag_topic, "sparklag.LagEvent"),
    ):
        assert refusals.counts[topic, "malformed"] == 5
        (first,) = (line for line in refused if f" {topic}[1]@" in line)
        assert f"it is a Order, expected {expected}" in first


async def test_hostile_schemas_and_ids_hold_up_no_other_message(
    avro_settings: Settings, second_client: SecondClient, registry: SchemaRegistryServer, topic: str
) -> None:
    offsets_topic, lag_topic = avro_settings.offsets_topic, avro_settings.lag_topic
    query, driver = seen(topic, {0: 0}), AvroDriver(avro_settings, second_client)
    itself = {"name": "itself", "type": ["null", "Observation"]}
    recursive = {**declared(Observation), "fields": [itself]}
    value = struct.pack(">bI", 0, registry.register(f"{topic}-hostile", recursive))
    junk = [value + b"\2" * 5_000 + b"\0"] * 100
    junk += [struct.pack(">bI", 0, 1_000_000 + number) for number in range(2_900)]
    async with running(avro_settings, second_client) as service:
        for each in (offsets_topic, lag_topic):
            second_client.produce(each, junk, key=key_of(query.query_id))
        await driver.observe(query)
        await service.shows(query.query_id, lambda e: e.total_lag == 0, "the honest one")
        refusals = service.pipeline.counters.refusals
        await holds(lambda: refusals.counts.total() == 2 * len(junk), "all are counted")
        assert service.pipeline.counters.reads_failed == 0


async def test_an_unsigned_message_makes_no_request_to_a_registry(
    service_settings: Settings, registry: SchemaRegistryServer, second_client: SecondClient
) -> None:
    settings = replace(service_settings, signing_key="of the tests, and long")
    with registry_proxy(registry.url) as proxy:
        async with running(replace(avro(settings, proxy.url), format="json"), second_client) as (
            service
        ):
            for each in (settings.offsets_topic, settings.lag_topic):
                second_client.produce(each, [b"\0\0\0\0\7"], key=b"any")
            counts = service.pipeline.counters.refusals.counts
            await holds(lambda: counts.total() == 2, "both are refused")
            assert {kind for _, kind in counts} == {"signature"}
        assert list(proxy.log) == []


async def test_avro_that_comes_while_the_registry_is_away_is_read_when_it_is_back(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    query = seen(topic, {0: 0})
    with SchemaRegistryServer() as server:
        settings = avro(service_settings, server.url, timeout_s=1.0)
        # The service writes JSON: it has asked for no schema yet.
        json_settings = replace(settings, format="json")
        driver = AvroDriver(avro(service_settings, server.url), second_client)
        async with running(json_settings, second_client) as service:
            await driver._writer.prepare()
            server.freeze()
            await driver.observe(query)
            await holds(lambda: service.pipeline.counters.reads_failed > 0, "it cannot read")
            await holds(lambda: service.state.not_ready(), "it says so")
            server.thaw()
            await service.shows(query.query_id, lambda e: e.total_lag == 0, "it reads it")
            assert service.pipeline.counters.refusals.counts.total() == 0
