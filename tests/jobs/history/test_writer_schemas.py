"""What the history learns of a schema id, from a real registry."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from sparklag_jobs.broker.child_process import free_port
from sparklag_jobs.history.events import WriterSchemas, look_up
from sparklag_schemas import RegistrySettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.avro.schema import declared
from sparklag_schemas.errors import RegistryUnavailable
from sparklag_schemas.messages.lag_event import LagEvent
from sparklag_schemas.settings import Settings
from tests.schema_registry import SchemaRegistryServer

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CACHED = WriterSchemas(has_registry=True, schemas={1: "{}"}, refused={2: "no"})


def test_a_lag_events_schema_is_known_from_then_on(registry: SchemaRegistryServer) -> None:
    topic = f"ids-{uuid.uuid4().hex[:8]}"
    settings = Settings(format="avro", registry=RegistrySettings(url=registry.url))
    asyncio.run(MessageFormats(settings).writer(LagEvent, topic).prepare())
    schema_id = registry.ask(f"/subjects/{topic}-value/versions/latest")["id"]
    result = look_up(CACHED, schema_id, settings.registry)
    assert set(result.schemas) == {1, schema_id}
    assert result.refused == {2: "no"}


def test_another_records_schema_is_refused_by_its_name(registry: SchemaRegistryServer) -> None:
    other = {**declared(LagEvent), "name": f"Order{uuid.uuid4().hex[:8]}"}
    schema_id = registry.register(f"{other['name']}-value", other)
    result = look_up(CACHED, schema_id, RegistrySettings(url=registry.url))
    assert result.refused[schema_id] == (
        f"it is a sparklag.{other['name']}, expected sparklag.LagEvent"
    )
    assert result.schemas == CACHED.schemas


def test_what_the_registry_does_not_have_is_refused(registry: SchemaRegistryServer) -> None:
    result = look_up(CACHED, 2_000_000_000, RegistrySettings(url=registry.url))
    assert "does not have it" in result.refused[2_000_000_000]


def test_a_registry_that_is_away_has_refused_nothing() -> None:
    away = RegistrySettings(url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(RegistryUnavailable):
        look_up(CACHED, 3, away)
