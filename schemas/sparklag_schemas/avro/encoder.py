"""Encodes our messages in Avro's binary encoding, directly from their attributes.

A function is compiled for each record of a schema, as `dataclasses` does for each class: five times
as fast as fastavro, for the same bytes (`benchmarks/publishing.py`). The format is that of
https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

_BITS: Final = 14
_MASK: Final = (1 << _BITS) - 1
# Two bytes of a variable-length number, low bits first: the last two, or with more to come.
_LAST: Final = [
    bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(1 << _BITS)
]
_MORE: Final = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(1 << _BITS)]
_END: Final = _LAST[0]
_STRINGS: Final = 4_096

_SCALARS: Final = {
    "int": "long({})",
    "long": "long({})",
    "double": "double({})",
    "string": "string({})",
    "boolean": "boolean[{}]",
}


def compile_encoder(schema: Mapping[str, Any]) -> Callable[[Any], bytes]:
    """A function that encodes objects with the fields of `schema` as attributes. `schema`, one of
    ours, has only records, arrays, maps, enumerations and nullable types.

    The function raises OverflowError for a number of more than 64 bits, KeyError for an unknown
    symbol of an enumeration, TypeError for null in a field that is not nullable.
    """
    names: dict[str, Any] = {
        "long": _long,
        "double": Struct("<d").pack,
        "string": _string,
        "boolean": (_LAST[0], _LAST[1]),
        "array": _array,
        "mapping": _mapping,
        "join": b"".join,
    }
    encode: Callable[[Any], bytes] = _function(_expression(schema, "value", names), names)
    return encode


def _function(expression: str, names: dict[str, Any]) -> Any:
    return eval(f"lambda value: {expression}", names)  # the schema is one of ours


def _expression(kind: Any, value: str, names: dict[str, Any]) -> str:
    """A Python expression for the bytes of `value`. It uses `names`, and adds to them."""
    match kind:
        case [_, _]:
            null = kind.index("null")
            item = _expression(kind[1 - null], "item", names)
            return (
                f"({_long(null)!r} if (item := {value}) is None else {_long(1 - null)!r} + {item})"
            )
        case str() if kind in _SCALARS:
            return _SCALARS[kind].format(value)
        case str():
            return f"{_identifier(kind)}({value})"
        case {"type": "record", "name": name, "fields": fields}:
            parts = [_expression(each["type"], f"value.{each['name']}", names) for each in fields]
            names[_identifier(name)] = _function(f"join(({', '.join(parts)},))", names)
            return f"{_identifier(name)}({value})"
        case {"type": "enum", "name": name, "symbols": symbols}:
            words = {symbol: _long(number) for number, symbol in enumerate(symbols)}
            names[_identifier(name)] = words.__getitem__
            return f"{_identifier(name)}({value})"
        case {"type": "array", "items": items}:
            return f"array({value}, lambda value: {_expression(items, 'value', names)})"
        case {"type": "map", "values": values}:
            return f"mapping({value}, lambda value: {_expression(values, 'value', names)})"
        case {"type": inner}:
            return _expression(inner, value, names)
    raise TypeError(f"no encoding of {kind}")


def _identifier(name: str) -> str:
    return f"_{name.replace('.', '_')}"


def _long(value: int) -> bytes:
    """Zigzag, then seven bits a byte."""
    number = value << 1 if value >= 0 else ~(value << 1)
    if number <= _MASK:
        return _LAST[number]
    encoded = _MORE[number & _MASK]
    number >>= _BITS
    if number <= _MASK:  # most offsets
        return encoded + _LAST[number]
    if number >> 50:
        raise OverflowError(f"{value} has more than 64 bits")
    while number > _MASK:
        encoded += _MORE[number & _MASK]
        number >>= _BITS
    return encoded + _LAST[number]


@lru_cache(_STRINGS)
def _string(value: str) -> bytes:
    encoded = value.encode()
    return _long(len(encoded)) + encoded


def _array(items: Sequence[Any], encode: Callable[[Any], bytes]) -> bytes:
    return _long(len(items)) + b"".join(map(encode, items)) + _END if items else _END


def _mapping(items: Mapping[Any, Any], encode: Callable[[Any], bytes]) -> bytes:
    if not items:
        return _END
    pairs = [_string(str(key)) + encode(value) for key, value in items.items()]
    return _long(len(items)) + b"".join(pairs) + _END
