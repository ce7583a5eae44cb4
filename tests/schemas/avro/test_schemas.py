"""The `.avsc` files and the types hold each other to the same contract."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import msgspec.inspect as inspect
import pytest

from scripts.message_examples import MessageType
from sparklag_schemas import LagEvent, Observation, PartitionRecord
from sparklag_schemas.avro.schema import declared, parse_schema
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.messages import enumerations
from tests.message_types import options_of

MESSAGES: list[MessageType] = [Observation, LagEvent, PartitionRecord]
ENUMERATIONS = {
    frozenset(get_args(words)): name
    for name, words in vars(enumerations).items()
    if name[0].isupper() and get_args(words) and isinstance(get_args(words)[0], str)
}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}


def parts(schema: Any, kind: str) -> list[dict[str, Any]]:
    """Every record or enumeration that is declared in it."""
    match schema:
        case dict():
            inner = [part for value in schema.values() for part in parts(value, kind)]
            return [schema, *inner] if schema.get("type") == kind else inner
        case list():
            return [part for value in schema for part in parts(value, kind)]
    return []


def expected(kind: inspect.Type, field: str) -> Any:
    """What a field of that type is in Avro; records and enumerations by their names."""
    match kind:
        case inspect.Metadata():
            return expected(kind.type, field)
        case inspect.UnionType():
            return {"null"} | {
                str(expected(one, field))
                for one in kind.types
                if not isinstance(one, inspect.NoneType)
            }
        case inspect.IntType():
            if field.endswith("_at") or field == "status_since":
                return str(MOMENT)
            return "int" if field in ("partition", "source", "assigned") else "long"
        case inspect.FloatType():
            return "double"
        case inspect.BoolType():
            return "boolean"
        case inspect.StrType():
            return "string"
        case inspect.LiteralType():
            return ENUMERATIONS[frozenset(str(value) for value in kind.values)]
        case inspect.DictType():
            return str({"map": expected(kind.value_type, field)})
        case inspect.ListType():
            return str({"array": expected(kind.item_type, field)})
        case inspect.StructType():
            return kind.cls.__name__
    raise AssertionError(kind)


def result(schema: Any) -> Any:
    """The same of what is declared."""
    match schema:
        case list():
            return {str(result(one)) for one in schema}
        case {"type": "record" | "enum", "name": name}:
            return name
        case {"type": "map", "values": values}:
            return str({"map": result(values)})
        case {"type": "array", "items": items}:
            return str({"array": result(items)})
        case dict():
            return str(schema)
    return schema


@pytest.mark.parametrize("message", MESSAGES)
def test_every_field_is_declared_as_the_type_has_it(message: MessageType) -> None:
    schemas = {record["name"]: record for record in parts(declared(message), "record")}
    structs = _structs(message)
    assert set(schemas) == set(structs)
    for name, struct in structs.items():
        kind = inspect.type_info(struct)
        assert isinstance(kind, inspect.StructType)
        fields = {field["name"]: field for field in schemas[name]["fields"]}
        assert list(fields) == [field.encode_name for field in kind.fields], name
        described = msgspec.json.schema(struct)["$defs"][name]["properties"]
        for field in kind.fields:
            where, ours = f"{name}.{field.encode_name}", fields[field.encode_name]
            assert result(ours["type"]) == expected(field.type, field.encode_name), where
            assert ours["doc"] == described[field.encode_name]["description"], where
            assert ("default" in ours) == (not field.required), where
            if not field.required:
                assert ours["default"] == described[field.encode_name]["default"], where


@pytest.mark.parametrize("message", MESSAGES)
def test_every_word_is_declared(message: MessageType) -> None:
    for words, name in ENUMERATIONS.items():
        for enumeration in parts(declared(message), "enum"):
            if enumeration["name"] == name:
                assert set(enumeration["symbols"]) == words


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"string"', '{"type": "record"}', '{"type": "lonk"}']
)
def test_what_is_no_schema_of_a_record_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MalformedMessage) as refusal:
        parse_schema(text)
    assert "\n" not in str(refusal.value)


def _structs(message: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    _, components = msgspec.json.schema_components([message])
    kinds: dict[str, type[msgspec.Struct]] = {}
    todo: list[inspect.Type] = [inspect.type_info(message)]
    while todo:
        for option in options_of(todo.pop()):
            if isinstance(option, inspect.StructType):
                kinds[option.cls.__name__] = option.cls
                todo += [field.type for field in option.fields]
            elif isinstance(option, inspect.ListType):
                todo.append(option.item_type)
    assert set(kinds) == set(components)
    return kinds


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "record", "name": "Nulls", "fields": [{"name": "a", "type": "null"}]},
        {"type": "fixed", "name": "Nothing", "size": 0},
    ],
    ids=str,
)
def test_a_type_whose_values_take_no_bytes_is_refused(items: Any) -> None:
    # Ten bytes say that an array has 2**62 of them.
    array: dict[str, Any] = {"name": "a", "type": ["null", {"type": "array", "items": items}]}
    schema = {"type": "record", "name": "r", "fields": [array]}
    with pytest.raises(MalformedMessage, match=r"^not an accepted Avro schema: .* is not read$"):
        parse_schema(json.dumps(schema))
    array["type"] = {"type": "array", "items": ["null", "int"]}
    assert parse_schema(json.dumps(schema)).name == "r"


def _record(kind: Any, name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": kind}]}


def _nested(kind: Any, depth: int) -> Any:
    return kind if depth == 0 else {"type": "array", "items": _nested(kind, depth - 1)}


_DOUBLING: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "f0", "type": _record("int", "R0")},
        *(
            {
                "name": f"f{n}",
                "type": {
                    "type": "record",
                    "name": f"R{n}",
                    "fields": [{"name": each, "type": f"R{n - 1}"} for each in "ab"],
                },
            }
            for n in range(1, 20)
        ),
    ],
}
"""Each of its types has twice the last one: they are a million."""


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("[" * 10_000, "."),
        (_record(["null", "r"]), "type r is not read"),
        (_record({"type": "array", "items": "x.r"}), "type x.r is not read"),
        (_record({"type": "map", "values": _record("R", "R")}), "type R is not read"),
        (_record(_record("int", "s.r")), "contains itself, or is there twice"),
        (_record([_record("int", "s.A"), _record("int", "t.A")]), "or is there twice"),
        (_record(_nested("int", 25)), "nested more than 24 deep"),
        (_record({"type": {"type": {"type": "null"}}}), "type null is not read"),
        (_DOUBLING, "more than 1,000 types"),
        (_record({"type": "enum", "name": "E", "symbols": ["A"] * 1_001}), "1,000 types"),
        (_record(["int"] * 17), "is not read"),
        (_record([]), "is not read"),
        (_record({"type": "fixed", "name": "F", "size": -1}), "is not read"),
        (_record({**_record("int", "A"), "fields": [{"name": 1}]}), "is not read"),
        ({**_record("int"), "doc": "x" * 70_000}, "more than 65,536 characters"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:20],
)
def test_a_schema_is_refused_in_one_line_for(schema: Any, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why) as refusal:
        parse_schema(schema if isinstance(schema, str) else json.dumps(schema))
    assert "\n" not in str(refusal.value)


def test_a_type_that_is_named_twice_is_accepted() -> None:
    schema = _record(_record("int", "x.A"))
    schema["fields"].append({"name": "b", "type": ["null", "x.A"]})
    assert parse_schema(json.dumps(schema)).name == "r"
