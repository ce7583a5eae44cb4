"""JSON Schema and Avro schema of the messages, and AsyncAPI of the topics, made from the types.

`python -m scripts.schema_documents` writes them; a test holds them to the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.avro_schemas import avro_schema
from scripts.message_examples import MessageType, example_headers, example_value, file_stem
from sparklag_schemas.messages.enumerations import SCHEMA_VERSION
from sparklag_schemas.messages.headers import (
    AVRO,
    JSON,
    LAG_EVENT_TYPE,
    OBSERVATION_TYPE,
    PARTITION_TYPE,
)
from sparklag_schemas.messages.lag_event import LagEvent, PartitionRecord
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.messages.topics import TopicSpec, lag_topic, offsets_topic
from sparklag_service.rest.openapi import components

PACKAGE: Final = Path(__file__).parents[1] / "schemas" / "sparklag_schemas"
FOLDER: Final = PACKAGE / "documents"

MESSAGES: Final[Sequence[MessageType]] = (Observation, LagEvent, PartitionRecord)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(message: MessageType) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a message. Other fields are allowed: newer minor
    versions add some."""
    definitions = components([message], "#/$defs/{name}")
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
    """A topic with its default settings, and who writes and reads it."""

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
        "Lag events, from the service to consumers that act on them. A query that is forgotten"
        " leaves a tombstone.",
        "The service, or a driver that embeds it: when something changed, and at least every 10 s.",
        "Every instance of the service reads all of them, without a group; so do consumers that act"
        " on lag.",
    ),
    _Topic(
        "consumerLagPartitions",
        "consumer-lag-partitions",
        lag_topic,
        PartitionRecord,
        PARTITION_TYPE,
        "`query_id/source/topic/partition`.",
        "Each partition's lag by itself, flat, for tables and connectors; where `partition_records`"
        " asks for it. A partition or query that is gone leaves a tombstone.",
        "The service, or a driver that embeds it: when something changed, and at least every 60 s.",
        "Consumers that keep a table of partitions.",
    ),
)


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3 document of the topics, with default names and settings."""
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
                **components(MESSAGES, "#/components/schemas/{name}"),
                "CloudEventHeaders": _headers(),
            },
        },
    }


def write() -> None:
    """Write every document to `PACKAGE`."""
    FOLDER.mkdir(exist_ok=True)
    for path, document in documents().items():
        (PACKAGE / path).write_text(document, encoding="utf-8")


def documents() -> dict[str, str]:
    """The text of each document by its path in `PACKAGE`."""
    made: dict[str, Any] = {}
    for kind in MESSAGES:
        made[f"documents/{file_stem(kind)}.schema.json"] = json_schema(kind)
        made[f"avro/{file_stem(kind)}.avsc"] = avro_schema(kind)
    made["documents/asyncapi.json"] = asyncapi()
    return {path: json.dumps(document, indent=2) + "\n" for path, document in made.items()}


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
    payload = {"$ref": f"#/components/schemas/{topic.message.__name__}"}
    example = {"payload": example_value(topic.message)}
    return _message(topic, "", JSON, payload, example, {})


def _avro_message(topic: _Topic) -> dict[str, Any]:
    payload = {
        "schemaFormat": "application/vnd.apache.avro+json;version=1.9.0",
        "schema": avro_schema(topic.message),
    }
    framed = {
        "schemaIdLocation": "payload",
        "schemaIdPayloadEncoding": "confluent",
        "schemaLookupStrategy": "TopicIdStrategy",
    }
    return _message(topic, "Avro", AVRO, payload, {}, framed)


def _message(
    topic: _Topic,
    suffix: str,
    content_type: str,
    payload: dict[str, Any],
    example: dict[str, Any],
    framed: dict[str, str],
) -> dict[str, Any]:
    name = topic.message.__name__ + suffix
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
        "ce_source": "The writer.",
        "ce_type": "Kind and major version of the message.",
        "ce_time": "Its time, RFC 3339 in UTC.",
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
        group_id = {"type": "string", "default": group, "description": "The setting `group_id`."}
        operation["bindings"] = {"kafka": {"groupId": group_id, "bindingVersion": "0.5.0"}}
    return operation


if __name__ == "__main__":
    write()
