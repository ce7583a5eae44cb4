"""The page of all settings, from their types, bounds, defaults and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from scripts.markdown_tables import code, row
from sparklag_schemas.settings import ClusterSettings, Section, Settings, SigningSettings, TeamKey
from sparklag_schemas.text.field_docs import field_docs

Schema = Mapping[str, Any]

_PREFIX: Final = "SPARKLAG"
_PLACEHOLDERS: Final = {"clusters": "NAME", "thresholds": "PATTERN", "signing": "keys.TEAM"}
"""A placeholder of the key of a setting that is a table of sections."""
_BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
_FORMS = {"type", "anyOf", "enum", "items", "additionalProperties", "default", "$ref"}
# The text below the setting says it.
_FORMS |= {"pattern", "description", "propertyNames", "minLength", "minItems"}
_INTRODUCTION: Final = """\
# Settings
sparklag reads its settings from five places. A later place overrides an earlier one:

1. the file `sparklag.toml` in the working directory, or the file that `--config` or
   `SPARKLAG_CONFIG` names;
2. environment variables;
3. secret files: a file in `/run/secrets`, or in `SPARKLAG_SECRETS_DIR`, has the name of a variable,
   and its content is the value;
4. in a driver, Spark's own configuration: `spark.sparklag.kafka.saslUsername`, in
   `spark-defaults.conf`, with `--conf`, or in the session's builder;
5. options of the command line, or arguments of `observe`.

A key with dots is a table in TOML: `kafka.sasl_username` is `sasl_username` under `[kafka]`. In a
variable two underscores stand for the dot. A list in a variable has commas between its items, or is
a JSON array. Names in variables are read in lower case; an alias or a pattern with characters that
a variable cannot have is set in the file. In Spark's configuration names are written as Spark
writes its own, `bootstrapServers` for `bootstrap_servers`; Spark's page shows the values of all
whose names contain neither `password` nor `secret` nor `token`, so `signing_key` is better set
elsewhere, and the service does not read it. Durations (`_s`) are seconds. A wrong value is one line
that names the setting, the value and what is expected, and exit code 2. An empty value is wrong
too, in every place: leave the setting out instead. An empty list is `[]`."""


def settings_page() -> list[str]:
    """Its lines."""
    lines = [*_INTRODUCTION.split("\n"), "", *_section("", Settings)]
    for name, kind in get_type_hints(Settings).items():
        section = _section_type(kind)
        if section is not None:
            key = f"{name}.{_PLACEHOLDERS[name]}" if name in _PLACEHOLDERS else name
            section = TeamKey if section is SigningSettings else section
            lines += ["", f"## {key}", _description(name, section), "", *_section(key, section)]
    return lines


def _description(name: str, section: type[Struct]) -> str:
    texts = [" ".join(inspect.cleandoc(section.__doc__ or "").split())]
    if name in field_docs(Settings):
        texts.append(field_docs(Settings)[name])
    return " ".join(texts)


def _section(path: str, section: type[Struct]) -> Iterator[str]:
    yield "| setting | variable | takes | default | |"
    yield "| --- | --- | --- | --- | --- |"
    properties = _schemas()[section.__name__]["properties"]
    for name, kind in get_type_hints(section).items():
        if _section_type(kind) is not None and section is Settings:
            continue  # It has a table of its own.
        key = f"{path}.{name}".lstrip(".")
        variable = f"`{_PREFIX}_{key.replace('.', '__').upper()}`"
        text = field_docs(section).get(name)
        if text is None:
            raise ValueError(f"{section.__name__}.{name} has no docstring")
        if section is ClusterSettings and _section_type(kind) is not None:
            yield row(f"`{key}.…`", f"{variable[:-1]}__…`", f"as [{name}](#{name})", "", text)
            continue
        default = properties[name].get("default", "required")
        yield row(f"`{key}`", variable, _takes(properties[name]), _default(default), text)


def _section_type(kind: Any) -> type[Struct] | None:
    """The section that a setting is, or that each value of its table is."""
    (*_, last) = get_args(kind) if get_origin(kind) is dict else (kind,)
    return last if isinstance(last, type) and issubclass(last, Section) else None


def _takes(schema: Schema) -> str:
    unknown = set(schema) - _BOUNDS.keys() - _FORMS
    if unknown:
        raise ValueError(f"the page does not show {', '.join(sorted(unknown))} of a setting")
    if "anyOf" in schema:
        return " or ".join(_takes(form) for form in schema["anyOf"] if form != {"type": "null"})
    if "description" in schema:
        return str(schema["description"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "items" in schema:
        return f"list of {_takes(schema['items'])}"
    bounds = "".join(f" {sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema)
    return str(schema.get("type", "any value")).replace("object", "table") + bounds


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if value == "required":
        return "required"
    return code(int(value) if isinstance(value, float) and value.is_integer() else value)


@cache
def _schemas() -> dict[str, Schema]:
    return msgspec.json.schema_components([Settings])[1]
