"""What the types of messages say of their fields."""

from __future__ import annotations

from typing import Any

from msgspec import inspect


def options_of(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def with_texts(value: Any, kind: inspect.Type, text: str) -> Any:
    """The document with `text` wherever any text of that length is allowed."""
    for option in options_of(kind):
        if isinstance(option, inspect.StrType) and option.pattern is None:
            return text[: option.max_length]
        if isinstance(option, inspect.ListType) and isinstance(value, list):
            return [with_texts(part, option.item_type, text) for part in value]
        if isinstance(option, inspect.DictType) and isinstance(value, dict):
            return {
                with_texts(key, option.key_type, text): with_texts(part, option.value_type, text)
                for key, part in value.items()
            }
        if isinstance(option, inspect.StructType) and isinstance(value, dict):
            return {
                field.encode_name: with_texts(value.get(field.encode_name), field.type, text)
                for field in option.fields
            }
    return value
