"""Our encoding of messages in Avro: the same bytes as fastavro's."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.message_examples import MessageType, example
from sparklag_schemas import LagEvent, Observation, PartitionRecord
from sparklag_schemas.avro.encoder import compile_encoder
from sparklag_schemas.avro.schema import schema_of

MESSAGES: list[MessageType] = [Observation, LagEvent, PartitionRecord]
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text(),
}
LONG: Any = fastavro.parse_schema(
    {"type": "record", "name": "test.Number", "fields": [{"name": "value", "type": "long"}]}
)


def by_fastavro(schema: Any, value: Any) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def values(kind: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    match kind:
        case list():
            return st.one_of([values(branch, named) for branch in kind])
        case str():
            return SCALARS[kind] if kind in SCALARS else values(named[kind], named)
        case {"type": "record", "name": name, "fields": fields}:
            named[name] = kind
            return st.fixed_dictionaries(
                {field["name"]: values(field["type"], named) for field in fields}
            )
        case {"type": "enum", "name": name, "symbols": symbols}:
            named[name] = kind
            return st.sampled_from(symbols)
        case {"type": "array", "items": items}:
            return st.lists(values(items, named), max_size=3)
        case {"type": "map", "values": below}:
            return st.dictionaries(st.text(max_size=5), values(below, named), max_size=3)
    return values(kind["type"], named)


def objects(value: Any, kind: Any, named: dict[str, Any]) -> Any:
    match kind:
        case list():
            (some,) = (branch for branch in kind if branch != "null")
            return None if value is None else objects(value, some, named)
        case str() if kind in named:
            return objects(value, named[kind], named)
        case {"type": "record", "name": name, "fields": fields}:
            named[name] = kind
            return SimpleNamespace(
                **{
                    field["name"]: objects(value[field["name"]], field["type"], named)
                    for field in fields
                }
            )
        case {"type": "array", "items": items}:
            return [objects(each, items, named) for each in value]
        case {"type": "map", "values": below}:
            return {key: objects(each, below, named) for key, each in value.items()}
    return value


@pytest.mark.parametrize("message", MESSAGES)
@given(data=st.data())
def test_any_message_has_the_bytes_of_fastavro(message: MessageType, data: st.DataObject) -> None:
    schema = schema_of(message).parsed
    value = data.draw(values(schema, {}))
    encoded = compile_encoder(schema)(objects(value, schema, {}))
    assert encoded == by_fastavro(schema, value)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_encoded_from_its_type(message: MessageType) -> None:
    value, schema = example(message), schema_of(message).parsed
    as_dicts = msgspec.to_builtins(value, str_keys=True)
    assert compile_encoder(schema)(value) == by_fastavro(schema, as_dicts)


def test_numbers_of_every_length() -> None:
    encode = compile_encoder(LONG)
    for power in range(64):
        for number in (2**power - 1, -(2**power), 2**power - 2, 1 - 2**power):
            expected = by_fastavro(LONG, {"value": number})
            assert encode(SimpleNamespace(value=number)) == expected


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**70, 2**80])
def test_a_number_of_more_than_64_bits_is_refused(number: int) -> None:
    with pytest.raises(OverflowError, match="has more than 64 bits"):
        compile_encoder(LONG)(SimpleNamespace(value=number))


def test_null_where_there_is_none_is_refused() -> None:
    with pytest.raises(TypeError):
        compile_encoder(LONG)(SimpleNamespace(value=None))


def test_a_word_that_an_enumeration_does_not_have_is_refused() -> None:
    schema = {"type": "enum", "name": "test.Word", "symbols": ["A", "B"]}
    encode = compile_encoder(schema)
    assert encode("B") == by_fastavro(fastavro.parse_schema(schema), "B")
    with pytest.raises(KeyError, match="C"):
        encode("C")
