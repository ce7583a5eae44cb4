"""One example of each message, for the documents: from one batch of `make demo`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from sparklag_schemas.messages.headers import (
    lag_event_headers,
    observation_headers,
    partition_headers,
)
from sparklag_schemas.messages.lag_event import LagEvent, PartitionRecord, partition_key
from sparklag_schemas.messages.observation import Observation

MessageType = type[Observation] | type[LagEvent] | type[PartitionRecord]

_FOLDER: Final = Path(__file__).parent / "examples"


def file_stem(message_type: MessageType) -> str:
    """The name of a message's files, without the ending."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_type.__name__).lower()


def example(message_type: MessageType) -> Observation | LagEvent | PartitionRecord:
    """The message of that type in `examples/`."""
    document = (_FOLDER / f"{file_stem(message_type)}.json").read_bytes()
    message: Observation | LagEvent | PartitionRecord = msgspec.json.decode(
        document, type=message_type
    )
    return message


def example_value(message_type: MessageType) -> dict[str, Any]:
    """The example as in JSON, with every field of the type."""
    value: dict[str, Any] = msgspec.to_builtins(example(message_type), str_keys=True)
    return value


def example_headers(message_type: MessageType, content_type: str) -> dict[str, str]:
    """The headers of the example in that format."""
    match example(message_type):
        case LagEvent() as event:
            headers = lag_event_headers(event, content_type)
        case PartitionRecord() as record:
            key = partition_key(record.query_id, record.source, record.topic, record.partition)
            headers = partition_headers(record, key, "default", content_type)
        case observation:
            headers = observation_headers(observation, content_type)
    return {header: value.decode() for header, value in headers}
