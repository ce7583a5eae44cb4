"""Reads the settings from all their sources.

These are, in rising precedence: `sparklag.toml`, the environment (`SPARKLAG_HTTP_PORT`, nested with
two underscores: `SPARKLAG_KAFKA__SASL_USERNAME`, `SPARKLAG_CLUSTERS__EAST__BOOTSTRAP_SERVERS` for
the cluster with alias `east`), files of a secrets folder (named like the variable, the content is
the value), Spark's configuration (`spark.sparklag.kafka.saslUsername`), and arguments.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.settings.connections import SigningSettings
from sparklag_schemas.settings.section import shown_setting
from sparklag_schemas.settings.settings import Settings
from sparklag_schemas.text.printable import printable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPARK_PREFIX: Final = "spark.sparklag."
"""The prefix of a setting's name in Spark's configuration."""
_PREFIX: Final = "SPARKLAG_"
_MAX_DEPTH: Final = 20
_NOT_SETTINGS: Final = {
    "SPARKLAG_AUTO",
    "SPARKLAG_CONFIG",
    "SPARKLAG_SECRETS_DIR",
    "SPARKLAG_TOKEN",
    "SPARKLAG_URL",
}
"""Variables that are read elsewhere, and are not settings."""

# Kubernetes puts the address of each Service into the environment of every container: for a Service
# `sparklag` these are SPARKLAG_SERVICE_HOST, SPARKLAG_PORT, SPARKLAG_PORT_8085_TCP_ADDR and so on.
_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?)=|_PORT=\w+://"
)

_REREAD: Final = ("__SASL_PASSWORD", "__SASL_OAUTHBEARER_CLIENT_SECRET")
"""Secret files whose path is the setting: the file is read again at each login."""

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
"""A step of the path to a setting: a name, or the index of an item."""
_JSON_ARRAY: Final = re.compile(r"\s*\[\s*[\"\]]")
"""A regular expression may begin with a bracket too."""

_Section = TypeVar("_Section", bound=Struct)


def load_settings(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    spark_configuration: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings from all these sources; None values of `overrides` are ignored.

    `config`: the TOML file. None: SPARKLAG_CONFIG, else `sparklag.toml` in the working directory.
    `spark_configuration`: properties of Spark by their names without `SPARK_PREFIX`.
    Raises SettingsError with one line naming the setting, what it got and what it takes.
    """
    environ = os.environ if environ is None else environ
    for name in ("SPARKLAG_CONFIG", "SPARKLAG_SECRETS_DIR"):
        if not environ.get(name, "set").strip():
            raise SettingsError(f"environment: {name} is empty: set a value, or leave it out")
    merged: dict[str, Any] = {}
    path = config or (Path(environ["SPARKLAG_CONFIG"]) if "SPARKLAG_CONFIG" in environ else None)
    if path is not None or Path("sparklag.toml").is_file():
        path = path or Path("sparklag.toml")
        merged = _read_toml(path)
    _merge(merged, _from_variables(environ, "environment"))
    _merge(merged, _from_variables(_secret_files(environ), "secret file"))
    properties = ((_spark_steps(name), text) for name, text in (spark_configuration or {}).items())
    _merge(merged, _nested(properties, "Spark's configuration", _property))
    passed = {name: value for name, value in (overrides or {}).items() if value is not None}
    _merge(merged, _checked(passed, Settings, "arguments"))
    try:
        return _converted(merged)
    except SettingsError as error:
        if path is not None:
            _require_valid(path, str(error))
        raise


def _converted(values: dict[str, Any]) -> Settings:
    _convert_mappings(values, Settings, "")
    _convert_mappings(values.get("signing"), SigningSettings, "signing.")
    return _section(values, Settings, "")


def _require_valid(path: Path, problem: str) -> None:
    """Raises SettingsError with the file's name, if the file alone has this problem too."""
    try:
        _converted(_read_toml(path))
    except SettingsError as error:
        if str(error) == problem:
            raise SettingsError(f"{path}: {problem}") from error


def _from_variables(variables: Mapping[str, str], origin: str) -> dict[str, Any]:
    settings = (
        (variable[len(_PREFIX) :].lower().split("__"), text)
        for variable, text in variables.items()
        if variable.startswith(_PREFIX)
        and variable not in _NOT_SETTINGS
        and not _SERVICE_LINK.search(f"{variable}={text}")
    )
    return _nested(settings, origin, lambda name: _PREFIX + name.replace(".", "__").upper())


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
    return _checked(values, Settings, str(path))


def _property(name: str) -> str:
    return SPARK_PREFIX + re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _spark_steps(name: str) -> list[str]:
    """The names in `kafka.saslUsername`. An alias of a cluster stays as it is."""
    kind: Any = Settings
    steps = []
    for step in name.split("."):
        if get_origin(kind) is dict:
            steps.append(step)
            kind = get_args(kind)[1]
        else:
            steps.append(_CAPITAL.sub(r"_\1", step).lower())
            kind = get_type_hints(kind).get(steps[-1]) if isinstance(kind, type) else None
    return steps


def _nested(
    values: Iterable[tuple[list[str], str]], origin: str, spelled: Callable[[str], str]
) -> dict[str, Any]:
    """Checked values by their steps. Raises SettingsError where a setting is a section too."""
    nested: dict[str, Any] = {}
    for steps, value in values:
        *parents, leaf = steps
        if len(parents) > _MAX_DEPTH:
            where = printable(spelled(".".join(steps)), 200)
            raise SettingsError(f"{origin}: {where} has more than {_MAX_DEPTH} sections")
        section = nested
        for depth, parent in enumerate(parents, start=1):
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                both = spelled(".".join(steps)), spelled(".".join(parents[:depth]))
                raise SettingsError(printable(f"{origin}: {both[0]} and {both[1]} clash", 500))
        section[leaf] = value
    return _checked(nested, Settings, origin, spelled)


def _secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    folder = Path(environ.get("SPARKLAG_SECRETS_DIR", "/run/secrets"))
    if "SPARKLAG_SECRETS_DIR" not in environ and not folder.is_dir():
        return {}
    file, values = folder, {}
    try:
        for file in folder.iterdir():
            name = file.name.upper()
            if name.startswith(_PREFIX):
                values[name] = file.read_text(encoding="utf-8").strip()
                if name.endswith(_REREAD) and values[name].strip(" ,"):
                    values[f"{name}_FILE"] = str(file.absolute())
                    del values[name]
    except (OSError, UnicodeDecodeError) as error:
        # Not the text of the UnicodeDecodeError: it shows the content of the file.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"secret file {file} cannot be read: {reason}") from None
    return values


def _checked(
    values: Mapping[str, Any],
    into: type[Struct],
    origin: str,
    spelled: Callable[[str], str] = str,
    path: str = "",
) -> dict[str, Any]:
    """`values` with lists instead of their texts. Refuses unknown names and empty values. `spelled`
    writes the name of a setting as `origin` does."""
    kinds, checked = get_type_hints(into), dict(values)
    for name, value in values.items():
        if name not in kinds:
            near = difflib.get_close_matches(name, into.__struct_fields__, n=1)
            hint = f", did you mean {spelled(path + near[0])}?" if near else ""
            if not near and name in Settings.__struct_fields__:
                above = ", above the first [section]" if spelled is str else ""
                hint = f", did you mean {spelled(name)}{above}?"
            unknown = printable(spelled(path + name), 200)
            raise SettingsError(f"{origin}: unknown setting {unknown}{hint}")
        kind, dotted = kinds[name], f"{path}{name}"
        if isinstance(value, Mapping) and _is_section(kind):
            checked[name] = _checked(value, kind, origin, spelled, f"{dotted}.")
        elif isinstance(value, Mapping) and get_origin(kind) is dict:
            (_, section) = get_args(kind)
            for alias, inside in value.items():
                if isinstance(inside, Mapping) and _is_section(section):
                    nested = f"{dotted}.{alias}."
                    inside = _checked(inside, section, origin, spelled, nested)
                checked[name] = {**checked[name], alias: inside}
        for empty in _empty_in(dotted, value):
            raise SettingsError(
                f"{origin}: {printable(spelled(empty), 200)} is empty: set a value, or leave the"
                " setting out"
            )
        if get_origin(kind) is list and isinstance(value, str):
            checked[name] = _split_list(dotted, value)
    return checked


def _is_section(kind: Any) -> bool:
    return hasattr(kind, "__struct_fields__")


def _empty_in(dotted: str, value: object) -> Iterator[str]:
    """The names of empty texts: an empty secret would switch off what it protects, and an empty
    host would listen on every interface."""
    if isinstance(value, str) and not value.replace(",", "").strip():
        yield dotted
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _empty_in(f"{dotted}.{key}", inside)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _empty_in(f"{dotted}[{index}]", item)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        other = name.removesuffix("_file") if name.endswith("_file") else f"{name}_file"
        # A secret replaces the file of an earlier source, and a file it.
        if other not in more and not isinstance(value, Mapping):
            into.pop(other, None)
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


def _convert_mappings(section: Any, into: type[Struct], path: str) -> None:
    """One by one: msgspec does not name the key of an invalid value in a mapping."""
    for name, kind in get_type_hints(into, include_extras=True).items():
        inside = section.get(name) if isinstance(section, dict) else None
        if get_origin(kind) is dict and isinstance(inside, Mapping):
            section[name] = {
                key: _section(values, get_args(kind)[1], f"{path}{name}.{key}.")
                for key, values in inside.items()
            }


def _split_list(name: str, text: str) -> list[Any]:
    # A JSON array may have commas in its items.
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
    try:
        return msgspec.convert(values, into, strict=False)
    except msgspec.ValidationError as error:
        # msgspec reports "Expected `int`, got `str` - at `$.http_port`", or `$.metrics.compat[0]`.
        expectation, _, at = str(error).partition(" - at ")
        steps = _STEP.findall(at.rpartition("`$")[2].rstrip("`"))
        dotted = printable(f"{path}{'.'.join(name for name, _ in steps if name)}".rstrip("."), 200)
        if not dotted:
            raise SettingsError(f"settings: {printable(expectation, 2_000)}") from error
        got, kind, declared = values, into, into
        for name, index in steps:
            if index.isdigit() and isinstance(got, list):
                got, kind = got[int(index)], get_args(kind)[0]
                continue
            got = got.get(name) if isinstance(got, Mapping) else got
            if _is_section(kind):
                declared = get_type_hints(kind, include_extras=True)[name]
                kind = get_type_hints(kind)[name]
        is_scalar = not _is_section(kind) and get_origin(kind) is not dict
        if not is_scalar or not isinstance(got, str | int | float):
            # The value may contain a secret.
            raise SettingsError(f"setting {dotted}: {expectation}") from error
        in_storage = dotted.startswith("checkpoints.storage")
        shown = repr(shown_setting("storage" if in_storage else dotted.rpartition(".")[2], got))
        shown = printable(shown, 300)
        if expectation.startswith("Invalid enum value"):
            *most, last = get_args(kind)
            expectation = f"takes {', '.join(most)} or {last}"
        elif described := _description_in(declared):
            expectation = f"takes {described}"
        raise SettingsError(f"setting {dotted} = {shown}: {expectation}") from error


def _description_in(declared: Any) -> str | None:
    """What it takes, in words instead of its pattern: the description of the type."""
    metas = getattr(declared, "__metadata__", ())
    inner = [] if metas else get_args(declared)
    described = [*(meta.description for meta in metas), *map(_description_in, inner)]
    return next(filter(None, described), None)
