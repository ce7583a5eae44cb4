"""The Avro schemas of our messages, and those that messages were written in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro

from sparklag_schemas.avro.sources import declared, without_logical_types
from sparklag_schemas.errors import MalformedMessage


@dataclass(frozen=True)
class AvroSchema:
    """A schema as a registry keeps it: `name` is the full name of its record."""

    name: str
    text: str
    parsed: Any
    """fastavro's, without logical types: times stay epoch milliseconds, as in JSON."""


@cache
def schema_of(message_type: type) -> AvroSchema:
    """The schema that messages of this type are written in."""
    # One text, however the file is laid out: a registry takes another text for another schema.
    return parse_schema(json.dumps(declared(message_type), separators=(",", ":")))


def require_written_as(message_type: type, schema: AvroSchema) -> None:
    """Raises MalformedMessage where it is not the schema, of any version, of such messages."""
    expected = schema_of(message_type).name
    if schema.name != expected:
        raise MalformedMessage(f"it is a {schema.name}, here is {expected} expected")


def parse_schema(text: str) -> AvroSchema:
    """Raises MalformedMessage for what is no Avro schema of a record."""
    try:
        parsed = fastavro.parse_schema(without_logical_types(json.loads(text)))
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise MalformedMessage(f"not an Avro schema: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise MalformedMessage(f"an Avro schema of a record is needed, it is {text[:60]}")
    return AvroSchema(parsed["name"], text, parsed)
