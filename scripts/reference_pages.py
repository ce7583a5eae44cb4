"""Writes docs/reference/: pages of messages, topics, settings, commands, REST and metrics.

They have no text of their own: the descriptions are those of the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.commands_page import commands_page
from scripts.lanes_page import PAGE as LANES_PAGE
from scripts.markdown_tables import code, row
from scripts.metrics_page import metrics_page
from scripts.rest_page import rest_page
from scripts.schema_documents import FOLDER as DOCUMENTS
from scripts.schema_documents import documents
from scripts.settings_page import settings_page

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "reference"
_AVRO: Final = DOCUMENTS.parent / "avro"
_TOPICS: Final = "topics.md"
_API: Final = "asyncapi.json"
_SCHEMA: Final = ".schema.json"
_SHOWN: Final = {
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "items",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "propertyNames",
    "type",
}
"""The keywords that a page shows: one that leaves others out would be wrong."""
_MARK: Final = "<!-- Written by `make schemas`: change what it is made from. -->"

Document = Mapping[str, Any]


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    texts = documents()
    api: Document = json.loads(texts[f"{DOCUMENTS.name}/{_API}"])
    schemas: dict[str, Document] = {
        Path(name).name.removesuffix(_SCHEMA): json.loads(text)
        for name, text in texts.items()
        if name.endswith(_SCHEMA)
    }
    page_of = {schema["title"]: f"{stem}.md" for stem, schema in schemas.items()}
    made = {
        _TOPICS: _topics_page(api, page_of),
        "settings.md": [_MARK, *settings_page()],
        "commands.md": [_MARK, *commands_page()],
        "metrics.md": [_MARK, *metrics_page()],
        "rest.md": [_MARK, *rest_page()],
    }
    for stem, schema in schemas.items():
        made[f"{stem}.md"] = _message_page(stem, schema, _addresses(api, schema["title"]))
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()}


def write() -> None:
    """Write every page to `FOLDER`, and leave no other there."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for page in FOLDER.glob("*.md"):
        if page.name not in made and page != LANES_PAGE:
            page.unlink()


def _message_page(stem: str, schema: Document, addresses: list[str]) -> list[str]:
    title = schema["title"]
    carried = " and ".join(f"[`{address}`]({_TOPICS}#{address})" for address in addresses)
    sources = (DOCUMENTS / f"{stem}{_SCHEMA}", _AVRO / f"{stem}.avsc")
    files = " · ".join(map(_file_link, sources))
    parts = {title: schema} | {name: schema["$defs"][name] for name in _nested(schema)}
    lines = [_MARK, f"# {title}", schema["description"], ""]
    if carried:
        lines += [f"The value of a record on {carried}.", ""]
    lines += [
        f"For programs: {files}. A field that is missing has its default; those that are required"
        " are in every message. Fields that are not listed are to be ignored: newer minor versions"
        " add some. A string has at most so many characters; offsets and counts end at 2⁶³-1,"
        " times with the year 9999, durations at 10¹⁰ seconds. A message with more is refused.",
        "",
    ]
    for name, part in parts.items():
        if part is not schema:
            lines += [f"## {name}", part["description"], ""]
        lines += [*_fields(part), ""]
    for example in schema["examples"]:
        lines += ["## Example", "```json", json.dumps(example, indent=2), "```"]
    return lines


def _fields(part: Document) -> Iterator[str]:
    yield "| field | type | default | |"
    yield "| --- | --- | --- | --- |"
    for name, field in part["properties"].items():
        is_required = name in part.get("required", ())
        default = "required" if is_required else code(field.get("default"))
        yield row(f"`{name}`", _type(field), default, _description(field))


def _description(field: Document) -> str:
    text = str(field["description"])
    for form in field.get("anyOf", [field]):
        if "enum" in form:
            text += f" One of {_code_list(form['enum'])}."
        if "examples" in form:
            text += f" One of {_code_list(form['examples'])}, or a word that a newer version adds."
        if "pattern" in form:
            text += f" Matches `{form['pattern']}`."
    return text


def _code_list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type(schema: Document) -> str:
    unknown = set(schema) - _SHOWN
    if unknown:
        raise ValueError(f"no page shows {', '.join(sorted(unknown))} of a field")
    if "anyOf" in schema:
        types = [_type(form) for form in schema["anyOf"]]
        return (", or " if any(" of " in name for name in types) else " or ").join(types)
    if "$ref" in schema:
        name = _last(schema)
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return code(schema["const"])
    kind = str(schema.get("type", "string"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object":
        return f"map of {_type(schema['additionalProperties'])}"
    if "maxLength" in schema:
        return f"{kind} ≤ {schema['maxLength']:,}"
    # Other bounds are too large to matter.
    return f"{kind} ≥ 0" if schema.get("minimum") == 0 else kind


def _nested(schema: Document) -> list[str]:
    """The names of the parts, in the order of the fields that refer to them."""
    nested: list[str] = []
    todo = [schema["properties"]]
    while todo:
        for name in _references(todo.pop(0)):
            if name not in nested:
                nested.append(name)
                todo.append(schema["$defs"][name]["properties"])
    return nested


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield _last(node)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _topics_page(api: Document, page_of: Mapping[str, str]) -> list[str]:
    info = api["info"]
    lines = [
        _MARK,
        "# Topics and messages",
        f"{info['description']} Version {info['version']}; for programs:"
        f" {_file_link(DOCUMENTS / _API)} (AsyncAPI {api['asyncapi']}). What the numbers mean:"
        " [the lag of a query](../user/lag.md), and each [status](../user/status.md).",
        "",
        "| topic | messages | |",
        "| --- | --- | --- |",
    ]
    for channel in api["channels"].values():
        address = channel["address"]
        messages = dict.fromkeys(_value(api, name, page_of) for name in channel["messages"])
        lines.append(row(f"[`{address}`](#{address})", ", ".join(messages), channel["description"]))
    lines += [
        "",
        "The suffix of a field gives its unit: `_at` is a timestamp, in milliseconds since 1970"
        " (UTC); `_s` and `_ms` are durations, in seconds and in milliseconds; `_offset` is an"
        " offset in Kafka. Lags are records.",
    ]
    for name, channel in api["channels"].items():
        lines += ["", *_topic(api, name, channel, page_of)]
    return lines


def _topic(
    api: Document, name: str, channel: Document, page_of: Mapping[str, str]
) -> Iterator[str]:
    yield f"## `{channel['address']}`"
    yield channel["description"]
    yield ""
    yield from ("| operation | | by whom |", "| --- | --- | --- |")
    by_action = sorted(api["operations"].items(), key=lambda item: item[1]["action"], reverse=True)
    for operation, spec in by_action:
        if _last(spec["channel"]) == name:
            group = spec.get("bindings", {}).get("kafka", {}).get("groupId")
            description = spec["description"]
            if group is not None:
                description += f" By default it is `{group['default']}`."
            yield row(f"`{operation}`", spec["action"], description)
    yield ""
    yield from ("| created with | |", "| --- | --- |")
    binding = channel["bindings"]["kafka"]
    yield row("partitions", str(binding["partitions"]))
    for setting, value in binding["topicConfiguration"].items():
        yield row(f"`{setting}`", _setting(setting, value))
    yield ""
    yield from _record(api, list(channel["messages"]), page_of)


def _record(api: Document, names: list[str], page_of: Mapping[str, str]) -> Iterator[str]:
    """One record, in each of its forms."""
    forms = [api["components"]["messages"][name] for name in names]
    message = forms[0]
    key = message["bindings"]["kafka"]["key"]
    (example, *_) = message["examples"]
    yield f"### {message['title']}"
    content_types = " or ".join(f"`{form['contentType']}`" for form in forms)
    yield f"- value: {_value(api, names[0], page_of)}, as {content_types}"
    yield f"- key: {key['type']}. {key['description']}"
    yield ""
    yield from ("| header | | for example |", "| --- | --- | --- |")
    for header, description in _headers(api, message["headers"]).items():
        yield row(f"`{header}`", description, f"`{example['headers'][header]}`")


def _headers(api: Document, schema: Document) -> dict[str, str]:
    """The descriptions of headers, by name."""
    descriptions: dict[str, str] = {}
    for part in schema.get("allOf", [schema]):
        for name, header in _resolved(api, part)["properties"].items():
            sentences = [descriptions[name]] if name in descriptions else []
            sentences += [header["description"]] if "description" in header else []
            sentences += [f"Always `{header['const']}`."] if "const" in header else []
            descriptions[name] = " ".join(sentences)
    return descriptions


def _value(api: Document, name: str, page_of: Mapping[str, str]) -> str:
    """The message's value, with a link to its page where it has one."""
    payload = api["components"]["messages"][name]["payload"]
    if "schemaFormat" in payload:
        payload = _resolved(api, payload["schema"])
        title = payload.get("title") or payload.get("name") or name
    else:
        title = _last(payload) if "$ref" in payload else payload.get("title", name)
    return f"[{title}]({page_of[title]})" if title in page_of else title


def _addresses(api: Document, title: str) -> list[str]:
    """The addresses of the topics that carry a message."""
    return [
        channel["address"]
        for channel in api["channels"].values()
        if any(_value(api, name, {}) == title for name in channel["messages"])
    ]


def _resolved(api: Document, node: Document) -> Document:
    if "$ref" not in node:
        return node
    target: Document = api
    for step in str(node["$ref"]).removeprefix("#/").split("/"):
        target = target[step]
    return target


def _setting(name: str, value: Any) -> str:
    if isinstance(value, list):
        return f"`{','.join(value)}`"
    for end, unit, size in (
        (".ms", "d", 86_400_000),
        (".ms", "h", 3_600_000),
        (".bytes", "MiB", 1024 * 1024),
    ):
        if name.endswith(end) and value >= size and value % size == 0:
            return f"`{value}` ({value // size} {unit})"
    return f"`{value}`"


def _file_link(path: Path) -> str:
    return f"[{path.name}](../../{path.relative_to(ROOT).as_posix()})"


def _last(reference: Document) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


if __name__ == "__main__":
    write()
