"""Avro with a real schema registry: schemas are registered once and cached, refusals reported."""

from __future__ import annotations

import asyncio
import json
import struct
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.message_examples import MessageType, example
from scripts.schema_documents import MESSAGES
from sparklag_schemas import LagEvent, RegistrySettings, Settings
from sparklag_schemas.avro.formats import MessageFormats, MessageReader
from sparklag_schemas.avro.schema import declared
from sparklag_schemas.errors import (
    ContractError,
    IncompatibleSchema,
    MalformedMessage,
    RegistryRefused,
    RegistryUnavailable,
)
from tests.certificates import Certificates
from tests.http_server import raw_path
from tests.messages import lag_event
from tests.registry_proxy import PASSWORD, USER, registry_proxy
from tests.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.kafka

Settled = MessageReader[LagEvent]


def formats(url: str, **registry: Any) -> MessageFormats:
    made = RegistrySettings(**{"url": url, "timeout_s": 20.0, **registry})
    return MessageFormats(Settings(format="avro", registry=made))


@pytest.fixture
def topic() -> str:
    return f"lag-{uuid.uuid4().hex[:8]}"


async def read(reader: MessageReader[LagEvent], value: bytes) -> LagEvent:
    await reader.learn([value])
    return reader.decode(value)


@pytest.mark.parametrize("message_type", MESSAGES)
async def test_a_written_message_is_read_again(
    registry: SchemaRegistryServer, topic: str, message_type: MessageType
) -> None:
    form = formats(registry.url)
    message = example(message_type)
    value = await form.writer(message_type, topic).encode(message)
    another = formats(registry.url).reader(message_type)
    await another.learn([value, None, b"{}"])
    assert another.decode(value) == message


@pytest.mark.parametrize(
    ("naming", "subject"),
    [
        ("topic", "{topic}-value"),
        ("record", "sparklag.LagEvent"),
        ("topic-record", "{topic}-sparklag.LagEvent"),
    ],
)
async def test_the_subject_is_named_by_the_settings_and_backward_compatible(
    registry: SchemaRegistryServer, topic: str, naming: str, subject: str
) -> None:
    await formats(registry.url, subjects=naming).writer(LagEvent, topic).prepare()
    wanted = subject.format(topic=topic)
    assert json.loads(registry.ask(f"/subjects/{wanted}/versions/latest")["schema"]) == declared(
        LagEvent
    )
    assert registry.ask(f"/config/{wanted}") == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize("level", ["FORWARD", "FULL"])
async def test_compatibility_stays(registry: SchemaRegistryServer, topic: str, level: str) -> None:
    registry.ask(f"/config/{topic}-value", {"compatibility": level}, method="PUT")
    await formats(registry.url).writer(LagEvent, topic).prepare()
    assert registry.ask(f"/config/{topic}-value") == {"compatibilityLevel": level}


async def test_all_share_one_request(registry: SchemaRegistryServer, topic: str) -> None:
    with registry_proxy(registry.url) as proxy:
        form = formats(proxy.url)
        writer, again = form.writer(LagEvent, topic), form.writer(LagEvent, topic)
        value = await writer.encode(lag_event())
        requested = len(proxy.log)
        for _ in range(10):
            assert await again.encode(lag_event()) == value
            assert await read(form.reader(LagEvent), value) == lag_event()
        assert len(proxy.log) == requested


async def test_a_second_start_registers_nothing(registry: SchemaRegistryServer, topic: str) -> None:
    await formats(registry.url).writer(LagEvent, topic).prepare()
    with registry_proxy(registry.url) as proxy:
        await formats(proxy.url).writer(LagEvent, topic).prepare()
        changes = [
            (request.method, raw_path(request))
            for request, _ in proxy.log
            # To look a schema up is a POST to the subject itself.
            if request.method != "GET" and raw_path(request) != f"/subjects/{topic}-value"
        ]
    assert changes == []


async def test_a_registry_that_hangs_delays_each_caller_by_one_timeout(topic: str) -> None:
    with SchemaRegistryServer() as server:
        server.freeze()
        form = formats(server.url, timeout_s=0.5)
        for _ in range(3):
            with pytest.raises(RegistryUnavailable):
                await form.writer(LagEvent, topic).prepare()
        server.thaw()
        assert server.ask("/subjects") == []


async def test_a_schema_that_is_incompatible_with_the_registered_one_is_refused(
    registry: SchemaRegistryServer, topic: str
) -> None:
    registry.ask(f"/config/{topic}-value", {"compatibility": "BACKWARD"}, method="PUT")
    fields = [{"name": "event_id", "type": "int"}]
    other = {"type": "record", "name": "LagEvent", "namespace": "sparklag", "fields": fields}
    registry.register(f"{topic}-value", other)
    form = formats(registry.url)
    with pytest.raises(IncompatibleSchema, match="incompatible"):
        await form.writer(LagEvent, topic).prepare()
    # The refusal of one subject is not that of another.
    await form.writer(LagEvent, f"{topic}-2").prepare()


async def test_a_schema_may_not_be_registered(registry: SchemaRegistryServer, topic: str) -> None:
    reading = formats(registry.url, register=False)
    with pytest.raises(RegistryRefused, match=r"not registered.*sparklag topics create"):
        await reading.writer(LagEvent, topic).prepare()
    assert f"{topic}-value" not in registry.ask("/subjects")
    await formats(registry.url).writer(LagEvent, topic).prepare()
    await formats(registry.url, register=False).writer(LagEvent, topic).prepare()


async def test_credentials_are_sent_or_refused(registry: SchemaRegistryServer, topic: str) -> None:
    with registry_proxy(registry.url, guarded=True) as proxy:
        with pytest.raises(RegistryUnavailable, match=r"without registry\.username \(401\)"):
            await formats(proxy.url).writer(LagEvent, topic).prepare()
        with pytest.raises(RegistryUnavailable, match=rf"user '{USER}' \(401\)") as refusal:
            await (
                formats(proxy.url, username=USER, password="wr0ng")
                .writer(LagEvent, topic)
                .prepare()
            )
        assert "wr0ng" not in str(refusal.value)
        form = formats(proxy.url, username=USER, password=PASSWORD)
        # This user may only read.
        with pytest.raises(RegistryRefused, match=rf"refuses user '{USER}' \(403\)"):
            await form.writer(LagEvent, topic).prepare()
        value = await formats(registry.url).writer(LagEvent, topic).encode(lag_event())
        assert await read(form.reader(LagEvent), value) == lag_event()


async def test_tls_uses_a_client_certificate_and_an_authority_of_the_settings(
    registry: SchemaRegistryServer, certificates: Certificates, topic: str
) -> None:
    with registry_proxy(registry.url, tls=certificates.server_context()) as proxy:
        form = formats(proxy.url, **certificates.client)
        value = await form.writer(LagEvent, topic).encode(lag_event())
        assert await read(form.reader(LagEvent), value) == lag_event()
        for wrong in ({}, {**certificates.client, "ssl_cafile": str(certificates.other_ca)}):
            with pytest.raises(RegistryUnavailable, match="certificate") as refusal:
                await formats(proxy.url, **wrong).writer(LagEvent, topic).prepare()
            assert "\n" not in str(refusal.value)
        nobody = formats(proxy.url, ssl_cafile=str(certificates.ca))
        with pytest.raises(RegistryUnavailable):
            await nobody.writer(LagEvent, topic).prepare()
        absent = formats(proxy.url, ssl_cafile="/no-such-file")
        with pytest.raises(RegistryRefused, match=r"TLS files \(/no-such-file\): .*No such file"):
            await absent.writer(LagEvent, topic).prepare()


async def test_an_address_that_is_no_registry_is_reported(registry: SchemaRegistryServer) -> None:
    base = registry.url.removesuffix("/apis/ccompat/v7")
    with pytest.raises(RegistryRefused, match="is this the address of Confluent's API"):
        await formats(base).writer(LagEvent, "any").prepare()


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (b"\0\0", "2 bytes, Avro takes 5"),
        (b"\0\xff\xff\xff\xf0\x02", "schema id 4294967280: schema registry .*: 404"),
        (b"\0\x7f\xff\xff\xff\x02", "schema id 2147483647: registry .* does not have it"),
        (b'{"query_id": 7}', "Expected `str`"),
        (b"hello", "JSON is malformed"),
    ],
)
async def test_a_value_that_cannot_be_read_is_refused_with_the_reason(
    registry: SchemaRegistryServer, value: bytes, printed: str
) -> None:
    with pytest.raises(MalformedMessage, match=printed) as refusal:
        await read(formats(registry.url).reader(LagEvent), value)
    assert "\n" not in str(refusal.value)


async def test_avro_without_a_registry_is_refused_with_what_is_missing() -> None:
    reader = MessageFormats(Settings()).reader(LagEvent)
    with pytest.raises(MalformedMessage, match=r"no registry\.url is set"):
        await read(reader, b"\0\0\0\0\x01\x02")


async def test_another_schema_kind_is_refused(registry: SchemaRegistryServer, topic: str) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    schema_id = registry.register(f"{topic}-value", schema, kind="JSON")
    with pytest.raises(MalformedMessage, match="it is JSON"):
        await read(formats(registry.url).reader(LagEvent), struct.pack(">bI", 0, schema_id) + b"{}")


@pytest.fixture
def settled(registry: SchemaRegistryServer) -> tuple[Settled, bytes]:
    async def prepared() -> tuple[Settled, bytes]:
        form = formats(registry.url)
        value = await form.writer(LagEvent, "settled").encode(example(LagEvent))
        reader = form.reader(LagEvent)
        await reader.learn([value])
        return reader, value

    return asyncio.run(prepared())


def test_corrupt_avro_is_at_most_refused(settled: tuple[Settled, bytes]) -> None:
    reader, value = settled

    @given(st.data())
    def corrupt(data: st.DataObject) -> None:
        broken = bytearray(value)
        for _ in range(data.draw(st.integers(1, 8))):
            at = data.draw(st.integers(5, len(broken) - 1))
            broken[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(5, len(broken)))
        with suppress(ContractError):
            reader.decode(bytes(broken[:cut]))

    corrupt()


def test_bytes_after_the_message_are_refused(settled: tuple[Settled, bytes]) -> None:
    reader, value = settled
    with pytest.raises(MalformedMessage, match="3 bytes more"):
        reader.decode(value + b"abc")
