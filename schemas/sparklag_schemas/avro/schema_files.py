"""The `.avsc` files, which declare the messages in Avro."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation
from sparklag_schemas.partition_record import PartitionRecord

_FOLDER: Final = files("sparklag_schemas.avro")
_FILES: Final[dict[type, str]] = {
    LagEvent: "lag_event.avsc",
    Observation: "observation.avsc",
    PartitionRecord: "partition_record.avsc",
}


def declared(message_type: type) -> dict[str, Any]:
    """The schema of that type's messages, as its file has it."""
    file = _FOLDER.joinpath(_FILES[message_type])
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def without_logical_types(node: Any) -> Any:
    """The schema, or a part of it, in which timestamps are numbers as in JSON."""
    match node:
        case dict():
            return {
                key: without_logical_types(value)
                for key, value in node.items()
                if key != "logicalType"
            }
        case list():
            return [without_logical_types(item) for item in node]
    return node
