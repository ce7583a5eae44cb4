"""JSON Schema of the messages and AsyncAPI of the topics, made from the types and `avro/*.avsc`.

`python -m sparklag_schemas.documents` writes them beside this file; a test holds them to the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from sparklag_schemas.avro.schema_files import declared
from sparklag_schemas.codec import AVRO, JSON
from sparklag_schemas.enumerations import SCHEMA_VERSION
from sparklag_schemas.headers import LAG_EVENT_TYPE, OBSERVATION_TYPE, PARTITION_TYPE
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.message_examples import (
    MessageType,
    example_headers,
    example_value,
    file_stem,
)
from sparklag_schemas.observation import Observation
from sparklag_schemas.partition_record import PartitionRecord
from sparklag_schemas.topics import TopicSpec, lag_topic, offsets_topic

FOLDER: Final = Path(__file__).parent / "documents"

MESSAGES: Final[Sequence[MessageType]] = (Observation, LagEvent, PartitionRecord)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def lag_event_components(ref_template: str) -> dict[str, Any]:
    """Schemas by name of the lag event and its parts, which refer to each other as the template
    says (`{name}` stands for the name)."""
    return _components([LagEvent], ref_template)


def json_schema(message: MessageType) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a message. Other fields are allowed: newer minor
    versions add some."""
    definitions = _components([message], "#/$defs/{name}")
    top = definitions.pop(message.__name__)
    return {
        "$schema": _DIALECT,
        "$id": f"tag:sparklag,2026:schema/{message.__name__}/{SCHEMA_VERSION}",
        **top,
        "$defs": dict(sorted(definitions.items())),
        "examples": [example_value(message)],
    }


@dataclass(frozen=True)
class _Topic:
    """A topic as it is by default, and what is done with it."""

    channel: str
    address: str
    spec: Callable[[str, int, int | None], TopicSpec]
    message: MessageType
    event_type: str
    key: str
    description: str
    sent: str
    received: str
    group: str | None = None


_TOPICS: Final = (
    _Topic(
        "processedOffsets",
        "processed-offsets",
        offsets_topic,
        Observation,
        OBSERVATION_TYPE,
        "The query id.",
        "Every observation, from the drivers to the service.",
        "A driver: when a query starts, completes a batch or ends, and every 10 s while it runs.",
        "The instances of the service, which share the queries as one consumer group.",
        group="sparklag",
    ),
    _Topic(
        "consumerLag",
        "consumer-lag",
        lag_topic,
        LagEvent,
        LAG_EVENT_TYPE,
        "The query id.",
        "Lag events, from the service to whoever acts on them. A query that is forgotten leaves a"
        " record without a value.",
        "The service, or a driver that embeds it: when something changed, and every 10 s in any"
        " case.",
        "Every instance of the service reads all of them, without a group; whoever acts on lag"
        " reads them too.",
    ),
    _Topic(
        "consumerLagPartitions",
        "consumer-lag-partitions",
        lag_topic,
        PartitionRecord,
        PARTITION_TYPE,
        "`query_id/source/topic/partition`.",
        "Each partition's lag by itself, flat, for tables and connectors; where `partition_records`"
        " asks for it. A partition or query that is gone leaves a record without a value.",
        "The service, or a driver that embeds it: when something changed, and every 60 s in any"
        " case.",
        "Whoever keeps a table of partitions.",
    ),
)


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3 document of the topics, names and settings as they are by default."""
    channels, operations, messages = {}, {}, {}
    for topic in _TOPICS:
        name = topic.message.__name__
        forms = {name: _json_message(topic), f"{name}Avro": _avro_message(topic)}
        messages.update(forms)
        channels[topic.channel] = {
            "address": topic.address,
            "description": topic.description,
            "messages": {form: {"$ref": f"#/components/messages/{form}"} for form in forms},
            "bindings": {"kafka": _topic_binding(topic.spec(topic.address, 12, None))},
        }
        for action, description, group in (
            ("send", topic.sent, None),
            ("receive", topic.received, topic.group),
        ):
            operations[f"{action}{name}s"] = _operation(
                action, topic.channel, list(forms), description, group
            )
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "sparklag",
            "version": SCHEMA_VERSION,
            "description": "Consumer lag of Spark Structured Streaming queries. Records are keyed"
            " by query id, so a query's messages stay in order. Delivery is at least once:"
            " deduplicate by `ce_id`. Values are JSON; with `format = avro` they are Avro, framed"
            " as Confluent does it, and a topic may hold both: Avro begins with a zero byte.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": JSON,
        "servers": {"kafka": _server()},
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": {
                **_components(MESSAGES, "#/components/schemas/{name}"),
                "CloudEventHeaders": _headers(),
            },
        },
    }


def write() -> list[Path]:
    """Write every document to `FOLDER`; the files."""
    FOLDER.mkdir(exist_ok=True)
    files = []
    for name, document in documents().items():
        file = FOLDER / name
        file.write_text(document, encoding="utf-8")
        files.append(file)
    return files


def documents() -> dict[str, str]:
    """File name to text."""
    schemas = {f"{file_stem(kind)}.schema.json": json_schema(kind) for kind in MESSAGES}
    made = {**schemas, "asyncapi.json": asyncapi()}
    return {name: json.dumps(document, indent=2) + "\n" for name, document in made.items()}


def _components(types: Sequence[type[msgspec.Struct]], ref_template: str) -> dict[str, Any]:
    _, components = msgspec.json.schema_components(types, ref_template=ref_template)
    for component in components.values():
        # Python 3.13 takes the indentation out of docstrings, those before it do not.
        component["description"] = " ".join(component["description"].split())
    return dict(components)


def _server() -> dict[str, Any]:
    return {
        "host": "{bootstrapServers}",
        "protocol": "kafka",
        "description": "The cluster that carries sparklag's topics.",
        "variables": {
            "bootstrapServers": {
                "default": "broker:9092",
                "description": "The setting `bootstrap_servers`.",
            }
        },
    }


def _json_message(topic: _Topic) -> dict[str, Any]:
    name = topic.message.__name__
    payload = {"$ref": f"#/components/schemas/{name}"}
    example = {"payload": example_value(topic.message)}
    return _message(topic, name, JSON, payload, example, {})


def _avro_message(topic: _Topic) -> dict[str, Any]:
    payload = {
        "schemaFormat": "application/vnd.apache.avro+json;version=1.9.0",
        "schema": declared(topic.message),
    }
    framed = {
        "schemaIdLocation": "payload",
        "schemaIdPayloadEncoding": "confluent",
        "schemaLookupStrategy": "TopicIdStrategy",
    }
    return _message(topic, f"{topic.message.__name__}Avro", AVRO, payload, {}, framed)


def _message(
    topic: _Topic,
    name: str,
    content_type: str,
    payload: dict[str, Any],
    example: dict[str, Any],
    framed: dict[str, str],
) -> dict[str, Any]:
    headers = example_headers(topic.message, content_type)
    return {
        "name": name,
        "title": name,
        "contentType": content_type,
        "headers": {
            "allOf": [
                {"$ref": "#/components/schemas/CloudEventHeaders"},
                {"properties": {"ce_type": {"const": topic.event_type}}},
            ]
        },
        "payload": payload,
        "bindings": {
            "kafka": {
                "key": {
                    "type": "string",
                    "description": topic.key,
                    "examples": [headers["ce_subject"]],
                },
                **framed,
                "bindingVersion": "0.5.0",
            }
        },
        "examples": [{"headers": headers, **example}],
    }


def _headers() -> dict[str, Any]:
    described = {
        "ce_specversion": "Version of CloudEvents.",
        "ce_id": "Unique id of the message.",
        "ce_source": "Who wrote it.",
        "ce_type": "Kind and major version of the message.",
        "ce_time": "Its moment, RFC 3339 in UTC.",
        "ce_subject": "The query id.",
        "content-type": "Form of the value.",
    }
    return {
        "type": "object",
        "description": "CloudEvents 1.0, binary content mode.",
        "required": list(described),
        "properties": {
            name: {"type": "string", "description": description}
            for name, description in described.items()
        },
    }


def _topic_binding(topic: TopicSpec) -> dict[str, Any]:
    policy = "cleanup.policy"
    return {
        "partitions": topic.partitions,
        "topicConfiguration": {
            name: value.split(",") if name == policy else int(value) if value.isdigit() else value
            for name, value in topic.config.items()
        },
        "bindingVersion": "0.5.0",
    }


def _operation(
    action: str, channel: str, messages: Sequence[str], description: str, group: str | None
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "description": description,
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
    }
    if group is not None:
        group_id = {
            "type": "string",
            "default": group,
            "description": "The setting `group_id`.",
        }
        operation["bindings"] = {"kafka": {"groupId": group_id, "bindingVersion": "0.5.0"}}
    return operation


if __name__ == "__main__":
    write()
