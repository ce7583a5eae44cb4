"""Which schemas the values of `consumer-lag` are written in that are Avro: asked of the registry
when the first such value comes."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.errors import StreamingQueryException

from sparklag_schemas import LagEvent, MalformedMessage, RegistrySettings

ASK: Final = "sparklag: what is schema id "
"""What a query fails with that meets an id which is not known; the id follows."""

_ID: Final = re.compile(rf"{ASK}(\d+)")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AvroIds:
    """What is known of them."""

    has_registry: bool = False
    """Whether others can be asked for."""
    schemas: Mapping[int, str] = field(default_factory=dict)
    """The schema that values of an id were written in."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why values of an id are none that can be read."""


NO_AVRO: Final = AvroIds()
"""Where there is no registry."""


def asked_for(error: StreamingQueryException) -> int | None:
    """The id that a query failed for. None: it failed for something else."""
    found = _ID.search(str(error))
    return int(found[1]) if found else None


def learned(ids: AvroIds, schema_id: int, registry: RegistrySettings) -> AvroIds:
    """What is known once the registry has said what that id is.

    Raises RegistryError.
    """
    # Packages that only who reads Avro has: `observe` has said it where they are missing.
    from sparklag_schemas.avro.registry import SchemaRegistry
    from sparklag_schemas.avro.schema import require_written_as

    known = SchemaRegistry(registry)
    asyncio.run(known.learn(schema_id))
    try:
        schema = known.schema(schema_id)
        require_written_as(LagEvent, schema)
    except MalformedMessage as error:
        log.warning("values of schema id %d are left out: %s", schema_id, error)
        return replace(ids, refused={**ids.refused, schema_id: str(error)})
    log.info("values of schema id %d are lag events", schema_id)
    return replace(ids, schemas={**ids.schemas, schema_id: schema.text})
