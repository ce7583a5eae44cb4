"""The Avro schemas of our messages, and those that messages were written in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import fastavro

from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation
from sparklag_schemas.partition_record import PartitionRecord

_FILES: Final[dict[type, str]] = {
    LagEvent: "lag_event.avsc",
    Observation: "observation.avsc",
    PartitionRecord: "partition_record.avsc",
}
_FOLDER: Final = files("sparklag_schemas.avro")


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
    source = _FOLDER.joinpath(_FILES[message_type]).read_text(encoding="utf-8")
    # One text, however the file is laid out: a registry takes another text for another schema.
    return parse_schema(json.dumps(json.loads(source), separators=(",", ":")))


def parse_schema(text: str) -> AvroSchema:
    """Raises MalformedMessage for what is no Avro schema of a record."""
    try:
        declared = json.loads(text)
        parsed = fastavro.parse_schema(_without_logical_types(declared))
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise MalformedMessage(f"not an Avro schema: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise MalformedMessage(f"an Avro schema of a record is needed, it is {text[:60]}")
    return AvroSchema(parsed["name"], text, parsed)


def _without_logical_types(node: Any) -> Any:
    match node:
        case dict():
            return {
                key: _without_logical_types(value)
                for key, value in node.items()
                if key != "logicalType"
            }
        case list():
            return [_without_logical_types(item) for item in node]
    return node
