"""Lag events in Avro, as the service writes them."""

from __future__ import annotations

import asyncio

from sparklag_schemas import LagEvent, RegistrySettings, Settings
from sparklag_schemas.avro.formats import MessageFormats
from tests.schema_registry import SchemaRegistryServer


def in_avro(registry: SchemaRegistryServer, topic: str, *events: LagEvent) -> list[bytes]:
    async def written() -> list[bytes]:
        settings = Settings(format="avro", registry=RegistrySettings(url=registry.url))
        writer = MessageFormats(settings).writer(LagEvent, topic)
        return [await writer.encode(event) for event in events]

    return asyncio.run(written())
