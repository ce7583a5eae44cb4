"""The Avro schemas of our messages, and of the writers of messages."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

import msgspec

from sparklag_schemas.avro.decoder import Decoder, compile_decoder
from sparklag_schemas.avro.schema_files import declared, without_logical_types
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.printable import printable

_MAX_CHARACTERS: Final = 64 * 1024
"""Ours have up to 17,000."""


class AvroSchema:
    """A schema as a registry keeps it: `name` is the full name of its record."""

    def __init__(self, name: str, text: str) -> None:
        """`text` is accepted: see `parse_schema`."""
        self.name = name
        self.text = text
        self._decoders: dict[type[Any], Decoder] = {}

    @property
    def parsed(self) -> Any:
        """As JSON, without logical types: times stay epoch milliseconds."""
        return without_logical_types(msgspec.json.decode(self.text))

    def decoder(self, message_type: type[Any]) -> Decoder:
        """Reads what that type has: see `compile_decoder`."""
        if message_type not in self._decoders:
            self._decoders[message_type] = compile_decoder(self.parsed, message_type)
        return self._decoders[message_type]


@cache
def schema_of(message_type: type) -> AvroSchema:
    """The schema that messages of this type are written in."""
    # One text, however the file is laid out: to a registry another text is another schema.
    return parse_schema(json.dumps(declared(message_type), separators=(",", ":")))


def require_written_as(message_type: type, schema: AvroSchema) -> None:
    """Raises MalformedMessage where it is not the schema, of any version, of such messages."""
    expected = schema_of(message_type).name
    if schema.name != expected:
        raise MalformedMessage(f"it is a {printable(schema.name, 100)}, expected {expected}")


def parse_schema(text: str) -> AvroSchema:
    """A writer's schema. Raises MalformedMessage for one that is not accepted."""
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
