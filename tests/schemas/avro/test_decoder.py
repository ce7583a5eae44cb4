"""Messages of unknown schemas take no more memory than their bytes allow."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from scripts.message_examples import MessageType, example_value
from sparklag_schemas import LagEvent, Observation
from sparklag_schemas.avro.codec import decode
from sparklag_schemas.avro.schema import parse_schema, schema_of
from sparklag_schemas.errors import ContractError, UnsupportedVersion
from tests.schemas.avro.test_encoder import by_fastavro

FRAME = b"\0\0\0\0\1"
MANY = b"\x80\x89\x7a"
"""A million."""
SHAPES: list[Any] = [
    "boolean",
    ["null", "int"],
    {"type": "array", "items": "int"},
    {"type": "map", "values": "int"},
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
    {"type": "record", "name": "Part", "fields": [{"name": "partition", "type": "int"}]},
]


def schema_with(message: MessageType, name: str, kind: Any) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(schema_of(message).text)
    fields = [field for field in schema["fields"] if field["name"] != name]
    return {**schema, "fields": [{"name": name, "type": kind}, *fields]}


def record(name: str, **kinds: Any) -> dict[str, Any]:
    fields = [{"name": field, "type": kind} for field, kind in kinds.items()]
    return {"type": "record", "name": name, "fields": fields}


def peak_of(schema: Any, data: bytes, message: MessageType) -> int:
    parsed = parse_schema(json.dumps(schema))
    tracemalloc.start()
    try:
        with suppress(ContractError):
            decode(FRAME + data, parsed, message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["mood", "query", "topics", "batch"])
@pytest.mark.parametrize("items", SHAPES, ids=str)
def test_a_million_items_in_a_million_bytes(name: str, items: Any) -> None:
    schema = schema_with(LagEvent, name, {"type": "array", "items": items})
    data = MANY + bytes(1_000_000)
    assert peak_of(schema, data, LagEvent) < 20 * len(data) + 10_000_000


MAPS = {"type": "map", "values": {"type": "map", "values": "long"}}


@pytest.mark.parametrize(
    "entries",
    [
        [b"\x06%03d\0" % (n % 1_000) for n in range(200_000)],
        [b"\x0a%05d\2\2a\2\0" % n for n in range(100_000)],
        [b"\2t" + b"\x80\xb5\x18", *(b"\x0c%06d\0" % n for n in range(200_000)), b"\0"],
    ],
    ids=["empty topics", "topics of one partition", "partitions of a topic"],
)
def test_maps_of_many_entries(entries: Sequence[bytes]) -> None:
    sources = {"type": "array", "items": record("SourcePosition", source="int", processed=MAPS)}
    data = b"\2\0" + MANY + b"".join(entries)
    assert peak_of(schema_with(Observation, "sources", sources), data, Observation) < (
        20 * len(data) + 10_000_000
    )


@pytest.mark.parametrize("message", [Observation, LagEvent])
def test_fields_that_a_later_version_adds_are_skipped(message: MessageType) -> None:
    fields = {
        "numbers": {"type": "array", "items": ["null", record("New", a="long", b="double")]},
        "names": {"type": "map", "values": {"type": "array", "items": "string"}},
        "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        "raw": record("Raw", bytes="bytes", fixed={"type": "fixed", "name": "Four", "size": 4}),
    }
    schema: dict[str, Any] = json.loads(schema_of(message).text)
    schema["fields"][2:2] = record("x", **fields)["fields"]
    added = {
        "numbers": [None, {"a": -(2**40), "b": 1.5}] * 40,
        "names": {"é": ["a" * 200, ""]},
        "kind": "B",
        "raw": {"bytes": b"\xff" * 300, "fixed": b"abcd"},
    }
    parsed, value = parse_schema(json.dumps(schema)), example_value(message)
    result = decode(FRAME + by_fastavro(parsed.parsed, {**value, **added}), parsed, message)
    ours = schema_of(message)
    assert result == decode(FRAME + by_fastavro(ours.parsed, value), ours, message)
    newer = {**value, **added, "schema_version": "2.0", "cause": "x" * 200}
    with pytest.raises(UnsupportedVersion):
        decode(FRAME + by_fastavro(parsed.parsed, newer), parsed, message)
