"""Settings from values as they were read, with one line about the first that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.settings.section import shown_setting
from sparklag_schemas.settings.settings import Settings
from sparklag_schemas.text.printable import printable

_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
"""A step of the path to a setting: a name, or the index of an item."""

_JSON_ARRAY = re.compile(r"\s*\[\s*[\"\]]")
"""A regular expression may begin with a bracket too."""

_Section = TypeVar("_Section", bound=Struct)


def convert_settings(merged: dict[str, Any]) -> Settings:
    """Raises SettingsError with one line naming the setting, what it got and what it takes."""
    _split_lists(merged, Settings)
    for name, kind in get_type_hints(Settings, include_extras=True).items():
        if get_origin(kind) is dict and isinstance(merged.get(name), Mapping):
            # Each by itself: msgspec does not name the key of a mapping that is wrong.
            merged[name] = {
                key: _section(values, get_args(kind)[1], f"{name}.{key}.")
                for key, values in merged[name].items()
            }
    return _section(merged, Settings, "")


def sections_in(
    into: type[Struct], name: str, value: object
) -> Iterator[tuple[str, Mapping[str, Any], type[Struct]]]:
    """The sections in setting `name`: the path, the values and the type of each."""
    kind = get_type_hints(into)[name]
    if not isinstance(value, Mapping):
        return
    if get_origin(kind) is dict:
        if not hasattr(get_args(kind)[1], "__struct_fields__"):
            return
        for alias, inside in value.items():
            if isinstance(inside, Mapping):
                yield f"{name}.{alias}", inside, get_args(kind)[1]
    elif isinstance(kind, type) and issubclass(kind, Struct):
        yield name, value, kind


def _split_lists(values: dict[str, Any], into: type[Struct], path: str = "") -> None:
    """Make lists of those that are written as one text, as all are in the environment."""
    for name, kind in get_type_hints(into).items():
        value = values.get(name)
        if get_origin(kind) is list and isinstance(value, str):
            values[name] = _split_list(f"{path}{name}", value)
    for name, value in values.items():
        for below, inside, section in sections_in(into, name, value):
            if isinstance(inside, dict):
                _split_lists(inside, section, f"{path}{below}.")


def _split_list(name: str, text: str) -> list[Any]:
    """Items with commas between them, or a JSON array, whose items may contain commas."""
    if not _JSON_ARRAY.match(text):
        return [item for part in text.split(",") if (item := part.strip())]
    try:
        items: list[Any] = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise SettingsError(
            f"setting {name} begins like a JSON array but is not one: takes"
            ' ["first", "second"], or first,second'
        ) from error
    if any(isinstance(item, str) and not item.strip() for item in items):
        raise SettingsError(f"setting {name} has an item that is empty")
    return items


def _section(values: Any, into: type[_Section], path: str) -> _Section:
    """The section at `path` as settings of that type."""
    try:
        return msgspec.convert(values, into, strict=False)
    except msgspec.ValidationError as error:
        # msgspec reports "Expected `int`, got `str` - at `$.http_port`", or `$.metrics.compat[0]`.
        expectation, _, at = str(error).partition(" - at ")
        steps = _STEP.findall(at.strip("`").removeprefix("$"))
        dotted = f"{path}{'.'.join(name for name, _ in steps if name)}".rstrip(".")
        if not dotted:
            raise SettingsError(f"settings: {expectation}") from error
        got, kind = values, into
        for name, index in steps:
            if index.isdigit() and isinstance(got, list):
                got, kind = got[int(index)], get_args(kind)[0]
                continue
            got = got.get(name) if isinstance(got, Mapping) else got
            kind = get_type_hints(kind)[name] if hasattr(kind, "__struct_fields__") else kind
        is_scalar = not hasattr(kind, "__struct_fields__") and get_origin(kind) is not dict
        if not is_scalar or not isinstance(got, str | int | float):
            # The value may contain a secret.
            raise SettingsError(f"setting {dotted}: {expectation}") from error
        in_storage = dotted.startswith("checkpoints.storage")
        shown = repr(shown_setting("storage" if in_storage else dotted.rpartition(".")[2], got))
        dotted, shown = printable(dotted, 200), printable(shown, 300)
        if expectation.startswith("Invalid enum value"):
            *most, last = get_args(kind)
            expectation = f"takes {', '.join(most)} or {last}"
        raise SettingsError(f"setting {dotted} = {shown}: {expectation}") from error
