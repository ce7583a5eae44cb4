"""The page of the REST interface, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scripts.idle_instance import idle_instance
from scripts.markdown_tables import code, row
from sparklag_service.rest.app import create_app

_INTRODUCTION: Final = """\
# REST interface
The calls of the OpenAPI document that a service serves at `/docs`. Names, history and
errors are explained in [REST](../program/rest.md). An error is a problem document (RFC 9457),
`application/problem+json`."""
_SHOWN: Final = (
    *("LagPage", "LagSummary", "HistoryPage", "HistoryPoint", "HistoryBatch", "HistoryChange"),
    *("Explanation", "Line", "ProblemDocument"),
)
_LARGE: Final = 100_000
_ELSEWHERE: Final = "lag_event.md"
"""The page of the other types."""

Document = Mapping[str, Any]


def rest_page() -> list[str]:
    """Its lines."""
    api = create_app(idle_instance()).openapi()
    lines = _INTRODUCTION.split("\n")
    for path, calls in api["paths"].items():
        for method, call in calls.items():
            lines += _call(path, method, call)
    for name, schema in api["components"]["schemas"].items():
        if name in _SHOWN:
            lines += _fields(name, schema)
    return lines


def _call(path: str, method: str, call: Document) -> Iterator[str]:
    yield from ("", f"## `{method.upper()} {path}`")
    yield f"{call['summary']}. {' '.join(call.get('description', '').split())}".strip()
    if parameters := call.get("parameters"):
        yield from ("", "| parameter | in | takes | default | |", "| --- | --- | --- | --- | --- |")
        for parameter in parameters:
            schema = parameter["schema"]
            default = "required" if parameter["required"] else ""
            if schema.get("default") is not None:
                default = code(schema["default"])
            text = " ".join(str(parameter.get("description", "")).split())
            yield row(f"`{parameter['name']}`", parameter["in"], _takes(schema), default, text)
    yield from ("", "| status | answer | |", "| --- | --- | --- |")
    for status, answer in call["responses"].items():
        text = " ".join(answer["description"].split()).replace("Successful Response", "")
        yield row(status, ", ".join(_content(answer)), text)


def _takes(schema: Document) -> str:
    if "anyOf" in schema:
        return " or ".join(_takes(form) for form in schema["anyOf"] if form != {"type": "null"})
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "$ref" in schema:
        return _link(str(schema["$ref"]).rpartition("/")[2])
    if "items" in schema:
        return f"list of {_takes(schema['items'])}"
    # Other bounds are too large to matter.
    bounds = "".join(
        f" {sign} {schema[key]}"
        for key, sign in (("minimum", "≥"), ("maximum", "≤"))
        if abs(schema.get(key, _LARGE)) < _LARGE
    )
    kind = schema.get("type", "any value")
    return (kind if isinstance(kind, str) else " or ".join(kind)) + bounds


def _content(answer: Document) -> Iterator[str]:
    for kind, content in answer.get("content", {}).items():
        name = str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]
        yield f"`{kind}`" + (f": {_link(name)}" if name else "")


def _fields(name: str, schema: Document) -> Iterator[str]:
    yield from ("", f"## {name}", " ".join(schema.get("description", "").split()), "")
    yield from ("| field | type | |", "| --- | --- | --- |")
    for field, form in schema["properties"].items():
        yield row(f"`{field}`", _takes(form), " ".join(form.get("description", "").split()))


def _link(name: str) -> str:
    if name.endswith("ValidationError"):
        return name
    anchor = name.lower()
    return f"[{name}](#{anchor})" if name in _SHOWN else f"[{name}]({_ELSEWHERE}#{anchor})"
