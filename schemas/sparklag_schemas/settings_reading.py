"""The settings, from `sparklag.toml`, the environment, secret files and the caller: one object.

In rising order: `sparklag.toml`, the environment (`SPARKLAG_HTTP_PORT`, nested with two
underscores: `SPARKLAG_KAFKA__SASL_USERNAME`, `SPARKLAG_CLUSTERS__EAST__BOOTSTRAP_SERVERS` for the
cluster with alias `east`), files of a secrets folder (named like the variable,
the content is the value), and what the caller passes.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.printable import printable
from sparklag_schemas.settings import Settings, shown_setting

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PREFIX = "SPARKLAG_"
_NOT_SETTINGS = {"SPARKLAG_CONFIG", "SPARKLAG_SECRETS_DIR", "SPARKLAG_URL"}
"""Variables that name files or addresses, and are not settings."""

# Kubernetes puts the address of each Service into the environment of every container: for a Service
# `sparklag` these are SPARKLAG_SERVICE_HOST, SPARKLAG_PORT, SPARKLAG_PORT_8085_TCP_ADDR and so on.
_SERVICE_LINK = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?)=|_PORT=\w+://"
)

_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
"""A step of the path to a setting: a name, or the index of an item."""

_JSON_ARRAY = re.compile(r"\s*\[\s*[\"\]]")
"""A regular expression may begin with a bracket too."""

_Section = TypeVar("_Section", bound=Struct)


def load_settings(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings from file, environment, secret files and `overrides` (None values ignored).

    `config`: the TOML file; without it SPARKLAG_CONFIG, else `sparklag.toml` here if it is there.
    Raises SettingsError with one line naming the setting, what it got and what it takes.
    """
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    path = config or (Path(environ["SPARKLAG_CONFIG"]) if "SPARKLAG_CONFIG" in environ else None)
    if path is not None or Path("sparklag.toml").is_file():
        merged = _read_toml(path or Path("sparklag.toml"))
    _merge(merged, _from_variables(environ, "environment"))
    _merge(merged, _from_variables(_secret_files(environ), "secret file"))
    passed = {name: value for name, value in (overrides or {}).items() if value is not None}
    _refuse_unknown(passed, Settings, "arguments")
    _merge(merged, passed)
    return _convert(merged)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"no settings file at {path}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    # ValueError: neither TOML nor UTF-8, or a number of more digits than Python reads.
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    _refuse_unknown(values, Settings, str(path))
    return values


def _from_variables(variables: Mapping[str, str], origin: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, value in variables.items():
        if not variable.startswith(_PREFIX) or variable in _NOT_SETTINGS:
            continue
        if _SERVICE_LINK.search(f"{variable}={value}"):
            continue
        *parents, leaf = variable[len(_PREFIX) :].lower().split("__")
        section = values
        for depth, parent in enumerate(parents, start=1):
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                other = _PREFIX + "__".join(parents[:depth]).upper()
                raise SettingsError(f"{origin}: {variable} and {other} clash")
        section[leaf] = value
    _refuse_unknown(values, Settings, origin, prefix=_PREFIX)
    return values


def _secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    folder = Path(environ.get("SPARKLAG_SECRETS_DIR", "/run/secrets"))
    if not folder.is_dir():
        return {}
    return {
        file.name.upper(): file.read_text(encoding="utf-8").strip()
        for file in folder.iterdir()
        if file.name.upper().startswith(_PREFIX) and file.is_file()
    }


def _refuse_unknown(
    values: Mapping[str, Any], into: type[Struct], origin: str, *, prefix: str = "", path: str = ""
) -> None:
    for name, value in values.items():
        if name not in into.__struct_fields__:
            near = difflib.get_close_matches(name, into.__struct_fields__, n=1)
            hint = f", did you mean {_shown(path + near[0], prefix)}?" if near else ""
            unknown = printable(_shown(path + name, prefix), 200)
            raise SettingsError(f"{origin}: unknown setting {unknown}{hint}")
        for below, inside, section in _sections(into, name, value):
            _refuse_unknown(inside, section, origin, prefix=prefix, path=f"{path}{below}.")


def _sections(
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


def _shown(dotted: str, prefix: str) -> str:
    return prefix + dotted.replace(".", "__").upper() if prefix else dotted


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


def _split_lists(values: dict[str, Any], into: type[Struct], path: str = "") -> None:
    """Make lists of those that are written as one text, as all are in the environment."""
    for name, kind in get_type_hints(into).items():
        value = values.get(name)
        if get_origin(kind) is list and isinstance(value, str):
            values[name] = _split_list(f"{path}{name}", value)
    for name, value in values.items():
        for below, inside, section in _sections(into, name, value):
            if isinstance(inside, dict):
                _split_lists(inside, section, f"{path}{below}.")


def _split_list(name: str, text: str) -> object:
    """Items with commas between them, or a JSON array, whose items may contain commas."""
    if not _JSON_ARRAY.match(text):
        return [item for part in text.split(",") if (item := part.strip())]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise SettingsError(
            f"setting {name} begins like a JSON array and is none: takes"
            ' ["first", "second"], or first,second'
        ) from error


def _convert(merged: dict[str, Any]) -> Settings:
    _split_lists(merged, Settings)
    for name, kind in get_type_hints(Settings, include_extras=True).items():
        if get_origin(kind) is dict and isinstance(merged.get(name), Mapping):
            # Each by itself: msgspec does not name the key of a mapping that is wrong.
            merged[name] = {
                key: _section(values, get_args(kind)[1], f"{name}.{key}.")
                for key, values in merged[name].items()
            }
    return _section(merged, Settings, "")


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
