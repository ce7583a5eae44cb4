"""The words of enumerations: closed where sparklag writes, open where it reads."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, get_args

import fastavro
import jsonschema
import msgspec
import pytest

from scripts.message_examples import MessageType, example_value
from scripts.schema_documents import MESSAGES, json_schema
from sparklag_schemas import LagEvent, MalformedMessage, Observation, Origin, PartitionRecord
from sparklag_schemas.avro.schema import schema_of
from sparklag_schemas.codec import JsonDecoder, converted, encode
from sparklag_schemas.messages.enumerations import ORIGINS, OriginTraits, register_origin, traits_of
from tests.schemas.avro.test_encoder import by_fastavro


def test_every_origin_that_is_written_has_traits() -> None:
    assert [*ORIGINS] == [*get_args(Origin)]
    assert all(traits.label for traits in ORIGINS.values())


def test_an_unknown_origin_is_treated_as_a_driver_that_reports_batches() -> None:
    assert traits_of("telepathy") == OriginTraits()


def test_another_origin_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklag_schemas.messages.enumerations.ORIGINS", dict(ORIGINS))
    flink = OriginTraits("its savepoints", step="checkpoint")
    register_origin("flink", flink)
    register_origin("flink", flink)
    assert traits_of("flink") is flink
    with pytest.raises(ValueError, match="'flink' is registered with other traits"):
        register_origin("flink", OriginTraits())


NEW: str = "a word of 1.9"
FIELDS: list[tuple[MessageType, tuple[str | int, ...]]] = [
    *(
        (message, (name,))
        for message in (Observation, LagEvent)
        for name in ("cause", "origin", "activity", "driver_end", "mode")
    ),
    (LagEvent, ("measured_by",)),
    (LagEvent, ("status",)),
    (LagEvent, ("topics", 0, "partitions", 0, "status")),
    (LagEvent, ("topics", 0, "partitions", 0, "time_lag_method")),
    (PartitionRecord, ("status",)),
    (PartitionRecord, ("query_status",)),
    (PartitionRecord, ("time_lag_method",)),
]
each = pytest.mark.parametrize(
    ("message", "path"), FIELDS, ids=[f"{m.__name__}.{p[-1]}" for m, p in FIELDS]
)


def test_every_open_word_is_tried() -> None:
    # Only open words have examples in the schemas.
    declared = set()
    for message in MESSAGES:
        schema = json_schema(message)
        for part in (schema, *schema["$defs"].values()):
            for name, field in part["properties"].items():
                if any("examples" in form for form in field.get("anyOf", [field])):
                    declared.add((message, name))
    assert declared == {(message, path[-1]) for message, path in FIELDS}


def written(message: MessageType, path: tuple[str | int, ...], word: str) -> dict[str, Any]:
    """A message of a newer minor version, with that word at `path`."""
    value = example_value(message)
    value["schema_version"] = "1.9"
    *steps, name = path
    inner: Any = value
    for step in steps:
        inner = inner[step]
    assert name in inner
    inner[name] = word
    return value


@each
def test_json_keeps_an_unknown_word(message: MessageType, path: tuple[str | int, ...]) -> None:
    value = written(message, path, NEW)
    jsonschema.Draft202012Validator(json_schema(message)).validate(value)
    read = JsonDecoder(message).decode(json.dumps(value).encode())
    assert json.loads(encode(read)) == value


@each
def test_avro_keeps_an_unknown_word(message: MessageType, path: tuple[str | int, ...]) -> None:
    value = written(message, path, NEW)
    schema = schema_of(message).parsed
    data = by_fastavro(schema, value)
    result = fastavro.schemaless_reader(BytesIO(data), schema, None)
    read = converted(result, message)
    assert read == converted(value, message)
    assert by_fastavro(schema, msgspec.to_builtins(read, str_keys=True)) == data


@each
def test_a_too_long_word_is_refused(message: MessageType, path: tuple[str | int, ...]) -> None:
    value = written(message, path, "x" * 101)
    with pytest.raises(MalformedMessage, match="length <= 100"):
        converted(value, message)
