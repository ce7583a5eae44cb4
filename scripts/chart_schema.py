"""The settings in the schema of the chart's values, from their types and docstrings.

The rest of `values.schema.json` is written by hand.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Final

import msgspec

from sparklag_schemas import settings as settings_module
from sparklag_schemas.settings import Settings
from sparklag_schemas.settings.section import shown_setting
from sparklag_schemas.text.field_docs import field_docs
from sparklag_schemas.text.redaction import HIDDEN

PATH: Final = Path(__file__).parents[1] / "deploy" / "helm" / "sparklag" / "values.schema.json"
_SECTION: Final = "#/properties/settings/definitions/{name}"


def chart_schema() -> str:
    """The text of the file, with the settings as they are now."""
    schema = json.loads(PATH.read_text(encoding="utf-8"))
    schema["properties"]["settings"] = _settings()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write() -> None:
    """Write the file anew."""
    PATH.write_text(chart_schema(), encoding="utf-8")


def _settings() -> dict[str, Any]:
    _, components = msgspec.json.schema_components([Settings], ref_template=_SECTION)
    sections = {name: _section(name, schema) for name, schema in sorted(components.items())}
    settings = sections.pop("Settings")
    settings["description"] = (
        "sparklag.toml: every setting but passwords, keys and fsspec's options, which belong into"
        " existingSecret."
    )
    settings["required"] = ["bootstrap_servers"]
    settings["properties"]["bootstrap_servers"]["minLength"] = 1
    # Any free port is none that a probe could name.
    settings["properties"]["http_port"]["minimum"] = 1
    return {**settings, "definitions": sections}


def _section(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    section = getattr(settings_module, name)
    texts = field_docs(section)
    public = [field for field in schema["properties"] if shown_setting(field, "a value") != HIDDEN]
    return {
        "description": " ".join(inspect.cleandoc(section.__doc__ or "").split()),
        "type": "object",
        "additionalProperties": False,
        "required": [field for field in schema.get("required", []) if field in public],
        "properties": {
            field: ({"description": texts[field]} if field in texts else {}) | _taken(form)
            for field, form in schema["properties"].items()
            if field in public
        },
    }


def _taken(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null, which TOML does not have, and the defaults of sections."""
    if "anyOf" in schema:
        (form,) = [form for form in schema["anyOf"] if form != {"type": "null"}]
        return {**form}
    return {key: value for key, value in schema.items() if "$ref" not in schema or key == "$ref"}


if __name__ == "__main__":
    write()
