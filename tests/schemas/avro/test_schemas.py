"""Schemas of unknown writers: which are accepted, and which refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklag_schemas.avro.schema import parse_schema
from sparklag_schemas.errors import MalformedMessage


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"string"', '{"type": "record"}', '{"type": "lonk"}']
)
def test_a_text_that_is_no_schema_of_a_record_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MalformedMessage) as refusal:
        parse_schema(text)
    assert "\n" not in str(refusal.value)


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
    # An array of 2**62 of them takes ten bytes.
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
