"""Each released version reads every newer one, and is read by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import msgspec
import pytest

from scripts.message_examples import MessageType, example, example_value, file_stem
from scripts.schema_documents import FOLDER as DOCUMENTS
from scripts.schema_documents import MESSAGES
from sparklag_schemas import SCHEMA_VERSION, Observation
from sparklag_schemas.avro.schema import declared, parse_schema
from sparklag_schemas.codec import JsonDecoder, converted, encode
from tests.schemas.avro.test_encoder import by_fastavro

PACKAGE = DOCUMENTS.parent
RELEASED = PACKAGE.parent / "released"
VERSIONS = sorted(path.name for path in RELEASED.iterdir())
EACH = [(version, message) for version in VERSIONS for message in MESSAGES]

each = pytest.mark.parametrize(("version", "message"), EACH)


def released(version: str, message: MessageType, ending: str) -> Any:
    file = RELEASED / version / f"{file_stem(message)}{ending}"
    return json.loads(file.read_text(encoding="utf-8"))


def resolved(value: Any, writer: Any, reader: Any) -> Any:
    """A value written in one Avro schema and read in another. Timestamps stay numbers."""
    written_in, read_in = (parse_schema(json.dumps(each)).parsed for each in (writer, reader))
    written = BytesIO(by_fastavro(written_in, value))
    return fastavro.schemaless_reader(written, written_in, read_in)


def with_open_words(schema: Any) -> Any:
    """The Avro schema with strings for its enumerations, except for the isolation level.

    Version 1.0, which no release carried, declared enumerations. Avro's own rules do not resolve
    an enumeration with a string, so a generic reader of 1.0 is held to this.
    """
    match schema:
        case {"type": "enum", "name": name} if name != "IsolationLevel":
            return "string"
        case dict():
            return {key: with_open_words(value) for key, value in schema.items()}
        case list():
            return [with_open_words(item) for item in schema]
        case "Status" | "TimeLagMethod":
            return "string"
    return schema


def least(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in schema["required"]}


def without_later_fields(printed: Any, document: Any) -> Any:
    """`printed`, without the fields that its released `document` does not have."""
    if isinstance(document, dict):
        return {name: without_later_fields(printed[name], document[name]) for name in document}
    if isinstance(document, list):
        return [without_later_fields(*each) for each in zip(printed, document, strict=True)]
    return printed


@each
def test_json_of_a_released_version_is_read(version: str, message: MessageType) -> None:
    written = released(version, message, ".json")
    schema = released(version, message, ".schema.json")
    jsonschema.Draft202012Validator(schema).validate(written)
    for document in (written, least(written, schema)):
        result = JsonDecoder(message).decode(json.dumps(document).encode())
        printed = msgspec.to_builtins(result, str_keys=True)
        assert without_later_fields(printed, document) == document


@each
def test_a_released_version_reads_json_of_this_one(version: str, message: MessageType) -> None:
    schema = released(version, message, ".schema.json")
    written = json.loads(encode(example(message)))
    for document in (written, least(written, schema)):
        jsonschema.Draft202012Validator(schema).validate(document)


@each
def test_avro_of_a_released_version_is_read(version: str, message: MessageType) -> None:
    written = released(version, message, ".json")
    writer = released(version, message, ".avsc")
    # Our own reader goes by the writer's schema alone; a generic one resolves it.
    assert converted(resolved(written, writer, writer), message) == converted(written, message)
    generic = resolved(written, with_open_words(writer), declared(message))
    assert set(generic) == {field["name"] for field in declared(message)["fields"]}


@each
def test_a_released_version_reads_avro_of_this_one(version: str, message: MessageType) -> None:
    reader = with_open_words(released(version, message, ".avsc"))
    result = resolved(example_value(message), declared(message), reader)
    assert set(result) == {field["name"] for field in reader["fields"]}
    written = without_later_fields(example_value(message), result)
    assert msgspec.convert(result, message, str_keys=True) == converted(written, message)


@each
def test_a_later_minor_version_adds_and_changes_nothing(version: str, message: MessageType) -> None:
    older = with_open_words(released(version, message, ".avsc"))
    assert _broken_promises(older, declared(message)) == []


@pytest.mark.parametrize("message", MESSAGES)
def test_a_released_version_is_never_changed(message: MessageType) -> None:
    """A change of the contract takes a new minor version (`enumerations.SCHEMA_VERSION`); when
    that is released, its files are copied to `schemas/released`."""
    if SCHEMA_VERSION not in VERSIONS:
        newest = max(VERSIONS, key=lambda version: [*map(int, version.split("."))])
        assert [*map(int, SCHEMA_VERSION.split("."))] > [*map(int, newest.split("."))]
        return
    for folder, ending in (("avro", ".avsc"), ("documents", ".schema.json")):
        now = json.loads((PACKAGE / folder / f"{file_stem(message)}{ending}").read_text())
        then = released(SCHEMA_VERSION, message, ending)
        # Words may be put better.
        assert _without_words(now) == _without_words(then)


def field(schema: Any, name: str) -> Any:
    (result,) = (field for field in schema["fields"] if field["name"] == name)
    return result


def isolation_level(schema: Any) -> Any:
    return field(field(schema, "sources")["type"]["items"], "isolation_level")


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["fields"].remove(field(schema, "run_id")),
        lambda schema: schema["fields"].append({"name": "mood", "type": "string"}),
        lambda schema: schema["fields"][0].update(type="bytes"),
        lambda schema: isolation_level(schema)["type"]["symbols"].append("read_tea_leaves"),
        lambda schema: field(schema, "cluster").update(default="other"),
        lambda schema: schema.update(name="Sighting"),
    ],
    ids=["no field", "no default", "another type", "a new word", "another default", "another name"],
)
def test_a_change_that_breaks_readers_is_detected(change: Callable[[Any], None]) -> None:
    newer = declared(Observation)
    change(newer)
    assert len(_broken_promises(declared(Observation), newer)) == 1


def test_a_field_with_a_default_may_be_added_anywhere() -> None:
    newer = declared(Observation)
    newer["fields"].insert(3, {"name": "mood", "type": ["null", "string"], "default": None})
    assert _broken_promises(declared(Observation), newer) == []
    value = {**example_value(Observation), "mood": "good"}
    assert "mood" not in resolved(value, newer, declared(Observation))
    assert resolved(example_value(Observation), declared(Observation), newer)["mood"] is None


def _broken_promises(older: Any, newer: Any, where: str = "") -> list[str]:
    """The places at which `newer` does more than add fields with defaults."""
    match older, newer:
        case {"fields": _}, {"fields": _}:
            if older["name"] != newer["name"]:
                return [f"{where}{older['name']} has another name"]
            were = {field["name"]: field for field in older["fields"]}
            are = {field["name"]: field for field in newer["fields"]}
            broken = [f"{where}{name} is gone" for name in were.keys() - are.keys()]
            broken += [
                f"{where}{name} has no default"
                for name in are.keys() - were.keys()
                if "default" not in are[name]
            ]
            for name in were.keys() & are.keys():
                was, now = were[name], are[name]
                # It is the version itself.
                if name != "schema_version" and was.get("default", ...) != now.get("default", ...):
                    broken.append(f"{where}{name} has another default")
                broken += _broken_promises(was["type"], now["type"], f"{where}{name}.")
            return broken
        case list(), list() if len(older) == len(newer):
            pairs = zip(older, newer, strict=True)
            return [one for was, now in pairs for one in _broken_promises(was, now, where)]
        case {"type": "array", "items": was}, {"type": "array", "items": now}:
            return _broken_promises(was, now, where)
    same = _without_words(older) == _without_words(newer)
    return [] if same else [f"{where}: {older} became {newer}"]


def _without_words(node: Any) -> Any:
    match node:
        case dict():
            words = ("doc", "description", "examples", "title", "$id")
            return {
                name: _without_words(inner)
                for name, inner in node.items()
                # A field may have one of these names too.
                if name not in words or isinstance(inner, dict)
            }
        case list():
            return [_without_words(inner) for inner in node]
    return node


def test_the_released_versions_are_whole() -> None:
    assert VERSIONS
    for version in VERSIONS:
        names = {path.name for path in Path(RELEASED / version).iterdir()}
        assert names == {
            f"{file_stem(message)}{ending}"
            for message in MESSAGES
            for ending in (".json", ".avsc", ".schema.json")
        }
