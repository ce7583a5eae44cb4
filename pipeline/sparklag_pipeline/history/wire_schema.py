"""What the history keeps of a lag event, in Spark's types. They follow from the message's own."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from sparklag_schemas.avro.schema_files import declared, without_logical_types
from sparklag_schemas.lag_event import LagEvent, PartitionLag, TopicLag

EVENT_FIELDS: Final = (
    "schema_version",
    "event_id",
    "cluster",
    "query_id",
    "query",
    "run_id",
    "batch_id",
    "status",
    "measured_at",
    "total_lag",
    "max_time_lag_s",
    "input_rate",
    "processed_rate",
    "batch_rate",
)
TOPIC_FIELDS: Final = ("source", "topic")
PARTITION_FIELDS: Final = (
    "partition",
    "processed_offset",
    "latest_offset",
    "earliest_offset",
    "lag",
    "time_lag_s",
    "time_lag_method",
    "status",
    "lost_records",
)

CORRUPT: Final = "_corrupt"
"""Where Spark puts a document that does not have these types."""

_NUMBERS_OF_THINGS: Final = {"partition", "source"}


def event_schema() -> str:
    """The schema that `from_json` takes, as DDL: an event with its topics and their partitions."""
    partition = _struct(_columns(PartitionLag, PARTITION_FIELDS))
    topic = _struct([*_columns(TopicLag, TOPIC_FIELDS), ("partitions", f"array<{partition}>")])
    columns = [*_columns(LagEvent, EVENT_FIELDS), ("topics", f"array<{topic}>")]
    return ", ".join(f"{name} {kind}" for name, kind in [*columns, (CORRUPT, "string")])


def avro_schema() -> str:
    """The same as the Avro schema to read with. Moments are the numbers that they are in JSON."""
    kept = {
        "LagEvent": (*EVENT_FIELDS, "topics"),
        "TopicLag": (*TOPIC_FIELDS, "partitions"),
        "PartitionLag": PARTITION_FIELDS,
    }
    event = _of_fields(without_logical_types(declared(LagEvent)), kept)
    event["fields"].append({"name": CORRUPT, "type": ["null", "string"], "default": None})
    return json.dumps(event)


def _of_fields(node: Any, of_type: Mapping[str, Sequence[str]]) -> Any:
    """The schema with the records' fields that are named, in their order."""
    match node:
        case {"type": "record", "name": name, "fields": fields}:
            by_name = {one["name"]: one for one in fields}
            kept = [_of_fields(by_name[one], of_type) for one in of_type[name]]
            return {**node, "fields": kept}
        case dict():
            return {key: _of_fields(value, of_type) for key, value in node.items()}
        case list():
            return [_of_fields(one, of_type) for one in node]
    return node


def _columns(message: type, names: Iterable[str]) -> list[tuple[str, str]]:
    hints = get_type_hints(message)
    return [
        (name, "int" if name in _NUMBERS_OF_THINGS else spark_type(hints[name])) for name in names
    ]


def _struct(columns: Iterable[tuple[str, str]]) -> str:
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in columns)}>"


def spark_type(kind: Any) -> str:
    """Spark's type of one value of a message. Raises TypeError for what has none here."""
    origin = get_origin(kind)
    if origin is Annotated:
        return spark_type(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        (one,) = (each for each in get_args(kind) if each is not type(None))
        return spark_type(one)
    if origin is Literal or kind is str:
        return "string"
    if kind is int:
        return "bigint"
    if kind is float:
        return "double"
    raise TypeError(f"{kind} has no Spark type here")
