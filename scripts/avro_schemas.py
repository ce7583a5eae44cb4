"""Avro schemas of the messages, made from their types."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, get_args

from msgspec import NODEFAULT, Struct
from msgspec import inspect as types

from sparklag_schemas.messages import enumerations
from sparklag_schemas.text.field_docs import field_docs

_TIMESTAMP: Final = {"type": "long", "logicalType": "timestamp-millis"}
_INT_FIELDS: Final = ("partition", "source", "assigned")
"""The fields of 32 bits; other integers are long."""
_SIMPLE: Final[Mapping[type[types.Type], str]] = {
    types.NoneType: "null",
    types.FloatType: "double",
    types.BoolType: "boolean",
    types.StrType: "string",
}


def avro_schema(message: type[Struct]) -> dict[str, Any]:
    """The schema of a message, with its parts where they are first used."""
    schema = _record(message)
    return {"type": "record", "name": schema["name"], "namespace": "sparklag"} | schema


def _record(struct: type[Struct]) -> dict[str, Any]:
    kind = types.type_info(struct)
    assert isinstance(kind, types.StructType)
    summary = inspect.cleandoc(struct.__doc__ or "").partition("\n\n")[0]
    return {
        "type": "record",
        "name": struct.__name__,
        "doc": " ".join(summary.split()),
        "fields": [_field(field, field_docs(struct)) for field in kind.fields],
    }


def _field(field: types.Field, docs: Mapping[str, str]) -> dict[str, Any]:
    name, default = field.encode_name, {}
    if not field.required:
        is_made = field.default_factory is not NODEFAULT
        default = {"default": field.default_factory() if is_made else field.default}
    kind = _avro_type(field.type, name)
    if isinstance(kind, list) and default.get("default") is not None:
        kind.reverse()  # A default has the type of the first branch.
    return {"name": name, "type": kind, **default, "doc": docs[name]}


def _avro_type(kind: types.Type, field: str) -> Any:
    match kind:
        case types.Metadata():
            return _avro_type(kind.type, field)
        case types.UnionType():
            branches = [_avro_type(branch, field) for branch in kind.types]
            return sorted(branches, key=lambda branch: branch != "null")
        case types.IntType():
            if field.endswith(("_at", "_since")):
                return _TIMESTAMP
            return "int" if field in _INT_FIELDS else "long"
        case types.LiteralType():
            words = set(kind.values)
            (symbols,) = (
                (name, get_args(value))
                for name, value in vars(enumerations).items()
                if name[0].isupper() and set(map(str, get_args(value))) == words
            )
            return {"type": "enum", "name": symbols[0], "symbols": list(symbols[1])}
        case types.DictType():
            return {"type": "map", "values": _avro_type(kind.value_type, field)}
        case types.ListType():
            return {"type": "array", "items": _avro_type(kind.item_type, field)}
        case types.StructType():
            return _record(kind.cls)
    return _SIMPLE[type(kind)]
