"""Decodes Avro by the writer's schema, which is not trusted.

A schema is compiled to functions. Compiling checks that the schema is small, that no type contains
itself, and that every value takes at least one byte: so the size of a message bounds the time to
decode it. Fields that the message type does not have are skipped without creating objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from sparklag_schemas.errors import MalformedMessage, OutOfBounds

_MAX_PARTS: Final = 1_000
"""Limit of types and symbols in a schema; those of a named type count at each of its uses."""
_MAX_DEPTH: Final = 24
_MAX_BRANCHES: Final = 16
_ROOM: Final = 8 * 1024 * 1024
_ROOM_PER_BYTE: Final = 20
"""The memory budget for lists and maps of a message is `_ROOM` plus this for each of its bytes."""
_ITEM_BYTES: Final = 50
_ENTRY_BYTES: Final = 200
_LIST_BYTES: Final = 200
_MAP_BYTES: Final = 500
_STRUCT_BYTES: Final = 100
"""The approximate memory of each of these, decoded and converted."""
_SKIPS: Final = 200
_BYTES_PER_SKIP: Final = 6
"""The limit of items that are skipped one by one is `_SKIPS`, plus one for each this many bytes. It
bounds time. A memory budget does not: its base would let a small message block the loop."""
_LONG_BITS: Final = 63
_NOT_LAST: Final = bytes(range(128, 256))
"""All bytes of a variable-length number but the last."""

NOT_AVRO: Final = (IndexError, KeyError, ValueError, struct_error)
"""The errors that decoding raises for bytes that do not match the schema."""

_Option = TypeVar("_Option", bound=inspect.Type)


class Input:
    """The bytes of a message, and the position of the next one to read."""

    __slots__ = ("at", "data", "fields", "room", "skips")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.room = _ROOM + _ROOM_PER_BYTE * len(data)
        self.skips = _SKIPS + len(data) // _BYTES_PER_SKIP
        self.fields: dict[str, Any] = {}
        """The fields of the message."""

    def spend(self, room: int) -> None:
        """Take `room` bytes from the memory budget. Raises OutOfBounds where it is exhausted."""
        self.room -= room
        if self.room < 0:
            raise OutOfBounds("it has more parts than are read of so few bytes")


Decoder = Callable[[Input], Any]


def compile_decoder(schema: Any, message_type: type[Any] | None) -> Decoder:
    """A function that reads the fields of `message_type` from a value of `schema` into
    `Input.fields`: records as structs, a value of another shape as an ellipsis. None: no fields.

    The function raises OutOfBounds, msgspec.ValidationError and NOT_AVRO. Raises MalformedMessage
    for a schema that is not accepted.
    """
    target = None if message_type is None else inspect.type_info(message_type)
    return _Compiler().decoder(schema, target, 0)


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        """Types by name. None: the type is being compiled."""
        self._parts = 0

    def decoder(self, kind: Any, target: inspect.Type | None, depth: int) -> Decoder:
        self._count(1)
        if depth > _MAX_DEPTH:
            raise MalformedMessage(f"its types are nested more than {_MAX_DEPTH} deep")
        match kind:
            case [_, *_] if len(kind) <= _MAX_BRANCHES:
                decoders = (
                    (lambda _: None) if part == "null" else self.decoder(part, target, depth + 1)
                    for part in kind
                )
                return _union(list(decoders))
            case str() if kind in _SCALARS:
                return _SCALARS[kind][target is None]
            case str() if (named := self._named.get(_short(kind))) is not None:
                return self.decoder(named, target, depth + 1)
            case {"type": "array", "items": items}:
                of_list = _option(target, inspect.ListType)
                item = self.decoder(items, of_list and of_list.item_type, depth + 1)
                return _array(item) if of_list else _skipped(item)
            case {"type": "map", "values": values}:
                of_dict = _option(target, inspect.DictType)
                value = self.decoder(values, of_dict and of_dict.value_type, depth + 1)
                return _map(value) if of_dict else _skipped(_all([_skip_bytes, value]))
            case {"type": "record" | "enum" | "fixed", "name": str(name)}:
                if self._named.get(_short(name), kind) is not kind:
                    raise MalformedMessage(f"type {name[:60]} contains itself, or is there twice")
                self._named[_short(name)] = None
                decoder = self._of_named(kind, target, depth)
                self._named[_short(name)] = kind
                return decoder
            case {"type": str() | list() | dict() as inner}:
                return self.decoder(inner, target, depth + 1)
        # Null alone is refused too: as it takes no bytes, a short message could hold any number.
        raise MalformedMessage(f"type {str(kind)[:60]} is not read")

    def _of_named(self, kind: Any, target: inspect.Type | None, depth: int) -> Decoder:
        match kind:
            case {"fields": [_, *_] as fields}:
                struct = _option(target, inspect.StructType)
                types = {f.encode_name: f.type for f in struct.fields} if struct else {}
                decoders: dict[str, Decoder] = {}
                for field in fields:
                    match field:
                        case {"name": str(name), "type": inner} if name not in decoders:
                            decoders[name] = self.decoder(inner, types.get(name), depth + 1)
                        case _:
                            raise MalformedMessage(f"field {str(field)[:60]} is not read")
                if struct is None:
                    return _all(decoders.values())
                read = [(name, decoder, name in types) for name, decoder in decoders.items()]
                return _record(read, struct.cls if depth else None)
            case {"symbols": [_, *_] as symbols}:
                self._count(len(symbols))
                if target is None:
                    return _Numbers(1)
                words = dict(enumerate(symbols))
                return lambda source: words[_long(source)]
            case {"size": int(size)} if size > 0:
                return lambda source: _skip(source, size)
        raise MalformedMessage(f"type {str(kind)[:60]} is not read")

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > _MAX_PARTS:
            raise MalformedMessage(f"it has more than {_MAX_PARTS:,} types")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _option(kind: inspect.Type | None, wanted: type[_Option]) -> _Option | None:
    """The branch of `kind` that is of the type `wanted`."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, (_option(each, wanted) for each in kind.types)), None)
    return kind if isinstance(kind, wanted) else None


def _record(
    read: Sequence[tuple[str, Decoder, bool]], struct: type[msgspec.Struct] | None
) -> Decoder:
    def decode(source: Input) -> Any:
        source.spend(_STRUCT_BYTES)
        values = source.fields if struct is None else {}
        for name, decoder, is_kept in read:
            if is_kept:
                values[name] = decoder(source)
            else:
                decoder(source)
        # Converted at once: a dict takes several times as much memory.
        return struct and msgspec.convert(values, struct, str_keys=True)

    return decode


def _all(fields: Iterable[Decoder]) -> Decoder:
    decoders = tuple(fields)
    numbers = [decoder.count for decoder in decoders if isinstance(decoder, _Numbers)]
    if len(numbers) == len(decoders):
        return _Numbers(sum(numbers))

    def decode(source: Input) -> Any:
        for decoder in decoders:
            decoder(source)
        return ...

    return decode


def _union(branches: Sequence[Decoder]) -> Decoder:
    by_index = {number << 1: branch for number, branch in enumerate(branches)}

    def decode(source: Input) -> Any:
        index = source.data[source.at]
        source.at += 1
        return by_index[index](source)

    return decode


def _array(item: Decoder) -> Decoder:
    def decode(source: Input) -> Any:
        source.spend(_LIST_BYTES)
        values: list[Any] = []
        for count in _blocks(source, _ITEM_BYTES):
            values += [item(source) for _ in range(count)]
        return values

    return decode


def _map(value: Decoder) -> Decoder:
    def decode(source: Input) -> Any:
        source.spend(_MAP_BYTES)
        values: dict[str, Any] = {}
        for count in _blocks(source, _ENTRY_BYTES):
            for _ in range(count):
                key = _string(source)
                values[key] = value(source)
        return values

    return decode


def _skipped(item: Decoder) -> Decoder:
    def decode(source: Input) -> Any:
        if source.data[source.at] == 0:  # it is empty
            source.at += 1
            return ...
        for count in _blocks(source, 0):
            if isinstance(item, _Numbers):
                _skip_numbers(source, count * item.count)
                continue
            source.skips -= count
            if source.skips < 0:
                raise OutOfBounds("it has more unknown parts than are skipped of so few bytes")
            for _ in range(count):
                item(source)
        return ...

    return decode


def _blocks(source: Input, item_bytes: int) -> Iterator[int]:
    """The numbers of items in the blocks of an array or a map."""
    while count := _long(source):
        if count < 0:
            count = -count
            _skip_numbers(source, 1)  # the bytes of the block
        source.spend(count * item_bytes)
        yield count


def _long(source: Input) -> int:
    data, at = source.data, source.at
    number = data[at]
    at += 1
    if number > 127:
        number &= 127
        shift = 7
        while (byte := data[at]) > 127:
            number |= (byte & 127) << shift
            shift += 7
            at += 1
            if shift > _LONG_BITS:
                raise ValueError("a number has more than 64 bits")
        number |= byte << shift
        at += 1
    source.at = at
    return (number >> 1) ^ -(number & 1)


class _Numbers:
    """Skips `count` numbers that follow each other."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, source: Input) -> Any:
        if self.count > 1:
            _skip_numbers(source, self.count)
            return ...
        data, at = source.data, source.at
        while data[at] > 127:
            at += 1
        source.at = at + 1
        return ...


def _skip_numbers(source: Input, count: int) -> None:
    while count:
        begin = source.at
        _skip(source, count)
        count -= len(source.data[begin : source.at].translate(None, _NOT_LAST))


def _skip(source: Input, size: int) -> Any:
    source.at += size
    if size < 0 or source.at > len(source.data):
        raise ValueError("it ends too early")
    return ...


def _skip_bytes(source: Input) -> Any:
    return _skip(source, _long(source))


def _string(source: Input) -> str:
    size = _long(source)
    _skip(source, size)
    return source.data[source.at - size : source.at].decode()


def _boolean(source: Input) -> bool:
    _skip(source, 1)
    return (False, True)[source.data[source.at - 1]]


def _number(form: str) -> Decoder:
    packed = Struct(form)

    def decode(source: Input) -> Any:
        (number,) = packed.unpack_from(source.data, source.at)
        source.at += packed.size
        return number

    return decode


_SCALARS: Final[Mapping[str, tuple[Decoder, Decoder]]] = {
    "int": (_long, _Numbers(1)),
    "long": (_long, _Numbers(1)),
    "float": (_number("<f"), _number("<f")),
    "double": (_number("<d"), _number("<d")),
    "boolean": (_boolean, _Numbers(1)),
    "string": (_string, _skip_bytes),
    "bytes": (_skip_bytes, _skip_bytes),
}
"""The functions that read a value and that skip it, by type."""
