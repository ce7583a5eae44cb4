"""Avro schemas: sparklag's own, and those of received messages. Pure."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from sparklag_schemas.avro.decoder import Decoder, compile_decoder
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.messages.lag_event import LagEvent, PartitionRecord
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.text.printable import printable

_FOLDER: Final = files("sparklag_schemas.avro")
_FILES: Final[dict[type, str]] = {
    LagEvent: "lag_event.avsc",
    Observation: "observation.avsc",
    PartitionRecord: "partition_record.avsc",
}


def declared(message_type: type) -> dict[str, Any]:
    """The schema of that type's messages, from its file."""
    schema: dict[str, Any] = json.loads(_FOLDER.joinpath(_FILES[message_type]).read_bytes())
    return schema


def without_logical_types(node: Any) -> Any:
    """The schema, or a part of it, in which timestamps are numbers as in JSON."""
    if isinstance(node, dict):
        return {k: without_logical_types(v) for k, v in node.items() if k != "logicalType"}
    return [without_logical_types(item) for item in node] if isinstance(node, list) else node


_MAX_CHARACTERS: Final = 64 * 1024
"""Our schemas have up to 17,000."""


class AvroSchema:
    """A schema as a registry keeps it. `name` is the full name of its record."""

    def __init__(self, name: str, text: str) -> None:
        """`text`: a schema that `parse_schema` accepts."""
        self.name = name
        self.text = text
        self._decoders: dict[type[Any], Decoder] = {}

    @property
    def parsed(self) -> Any:
        """The schema without logical types: times stay epoch milliseconds. Not cached: a hostile
        schema takes twenty times the memory of its text."""
        return without_logical_types(msgspec.json.decode(self.text))

    def decoder(self, message_type: type[Any]) -> Decoder:
        """The decoder of that type's fields: see `compile_decoder`."""
        if message_type not in self._decoders:
            self._decoders[message_type] = compile_decoder(self.parsed, message_type)
        return self._decoders[message_type]


@cache
def schema_of(message_type: type) -> AvroSchema:
    """The schema that messages of this type are written in."""
    # Compact, whatever the layout of the file: a registry compares schemas as text.
    return parse_schema(json.dumps(declared(message_type), separators=(",", ":")))


def require_written_as(message_type: type, schema: AvroSchema) -> None:
    """Raises MalformedMessage where `schema` is not a version of the schema of `message_type`."""
    expected = schema_of(message_type).name
    if schema.name != expected:
        raise MalformedMessage(f"it is a {printable(schema.name, 100)}, expected {expected}")


def parse_schema(text: str) -> AvroSchema:
    """A writer's schema. Raises MalformedMessage for a schema that is not accepted."""
    if len(text) > _MAX_CHARACTERS:
        raise MalformedMessage(f"an Avro schema of more than {_MAX_CHARACTERS:,} characters")
    try:
        schema = msgspec.json.decode(text)
        match schema:
            case {"type": "record", "name": str(name)}:
                compile_decoder(schema, None)
            case _:
                raise MalformedMessage(f"no record: {text[:60]}")
    except (*NOT_JSON, MalformedMessage) as error:
        raise MalformedMessage(printable(f"not an accepted Avro schema: {error}")) from error
    namespace = schema.get("namespace")
    is_full = "." in name or not isinstance(namespace, str) or not namespace
    return AvroSchema(name if is_full else f"{namespace}.{name}", text)
