"""The Avro schemas of our messages, and of the writers of messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro

from sparklag_schemas.avro.schema_files import declared, without_logical_types
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.printable import printable


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
    # One text, however the file is laid out: to a registry another text is another schema.
    return parse_schema(json.dumps(declared(message_type), separators=(",", ":")))


def require_written_as(message_type: type, schema: AvroSchema) -> None:
    """Raises MalformedMessage where it is not the schema, of any version, of such messages."""
    expected = schema_of(message_type).name
    if schema.name != expected:
        raise MalformedMessage(f"it is a {schema.name}, expected {expected}")


def parse_schema(text: str) -> AvroSchema:
    """Raises MalformedMessage for what is no Avro schema of a record."""
    try:
        parsed = fastavro.parse_schema(without_logical_types(json.loads(text)))
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise MalformedMessage(
                f"an Avro schema of a record is needed, it is {printable(text, 60)}"
            )
        _takes_no_bytes(parsed, {})
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RecursionError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise MalformedMessage(printable(f"not an Avro schema: {error}")) from error
    return AvroSchema(parsed["name"], text, parsed)


def _takes_no_bytes(kind: Any, named: dict[str, bool]) -> bool:
    """Whether values of that type are written in no bytes. `named`: the same of types by name.

    Raises MalformedMessage for an array of such: a few bytes could claim 2⁶² items.
    """
    if isinstance(kind, list):  # a union, which begins with its index
        for branch in kind:
            _takes_no_bytes(branch, named)
        return False
    if isinstance(kind, str):
        return kind == "null" or named.get(kind, False)
    match kind["type"]:
        case "record" | "error":
            named[kind["name"]] = False
            empty = [_takes_no_bytes(field["type"], named) for field in kind["fields"]]
            named[kind["name"]] = all(empty)
            return all(empty)
        case "fixed":
            named[kind["name"]] = kind["size"] == 0
            return named[kind["name"]]
        case "enum":
            return False
        case "array":
            if _takes_no_bytes(kind["items"], named):
                raise MalformedMessage("not a schema of ours: an array of items without a size")
            return False
        case "map":
            _takes_no_bytes(kind["values"], named)
            return False
    return _takes_no_bytes(kind["type"], named)
