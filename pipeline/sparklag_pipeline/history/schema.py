"""What the history stores of a lag event, in Spark's types.

The fields are those of the messages, without the ones listed here: a field that is added to a
message is read, and has a column in the table `partitions`, without a change of this package.
"""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from sparklag_schemas.avro.schema_files import declared, without_logical_types
from sparklag_schemas.lag_event import LagEvent, PartitionLag, TopicLag

CORRUPT: Final = "_corrupt"
"""Where Spark puts a document that does not have these types."""

_NOT_STORED: Final[Mapping[type, Collection[str]]] = {
    LagEvent: {
        *("observed_at", "processed_at", "origin", "activity", "batch", "planned_batch_id"),
        *("running_batch", "checkpoint_location", "exception", "cause", "measured_by"),
        "driver_end",
        *("reason", "max_lag", "in_flight", "unknown_partitions", "lost_records", "other_run_id"),
        *("observation_offset", "status_since", "lag_trend", "catch_up_s", "catch_up_reason"),
        "superseded_by",
        *("min_headroom_records", "min_headroom_s", "loss_expected_at", "skew"),
        *("usual_batch_s", "usual_interval_s", "group", "commit_rate"),
    },
    TopicLag: {"cluster", "topic_id", "assigned", "isolation_level", "total_lag"},
    PartitionLag: {"planned_offset", "headroom_s", "measured_at", "rewound_from", "reason"},
}
_MAX_INT: Final = 2**31 - 1
_SIMPLE_TYPES: Final[Mapping[Any, str]] = {
    str: "string",
    bool: "boolean",
    int: "bigint",
    float: "double",
}


def stored_fields(message: type[Struct]) -> dict[str, str]:
    """Name and Spark type of each field of such a message that is stored."""
    hints = get_type_hints(message, include_extras=True)
    left_out = _NOT_STORED.get(message, ())
    return {
        name: spark_type(hints[name]) for name in message.__struct_fields__ if name not in left_out
    }


def ddl(columns: Mapping[str, str]) -> str:
    """Spark's DDL of a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def event_schema() -> str:
    """The schema that `from_json` takes, as DDL: an event with its topics and their partitions."""
    return ddl({**EVENT_FIELDS, CORRUPT: "string"})


def avro_schema() -> str:
    """The same as the Avro schema to read with. Times are the numbers that they are in JSON."""
    by_record = {
        "LagEvent": EVENT_FIELDS,
        "TopicLag": TOPIC_FIELDS,
        "PartitionLag": PARTITION_FIELDS,
    }
    event = _with_fields(without_logical_types(declared(LagEvent)), by_record)
    event["fields"].append({"name": CORRUPT, "type": ["null", "string"], "default": None})
    return json.dumps(event)


def _with_fields(node: Any, by_record: Mapping[str, Collection[str]]) -> Any:
    """The Avro schema with the records' stored fields, in their order."""
    match node:
        case {"type": "record", "name": name, "fields": fields} if name in by_record:
            by_name = {field["name"]: field for field in fields}
            return {
                **node,
                "fields": [_with_fields(by_name[field], by_record) for field in by_record[name]],
            }
        case dict():
            return {key: _with_fields(value, by_record) for key, value in node.items()}
        case list():
            return [_with_fields(item, by_record) for item in node]
    return node


def spark_type(kind: Any) -> str:
    """Spark's type of a field's type. Raises TypeError for what has none."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *metas = arguments
        bounds = [meta.le for meta in metas if isinstance(meta, Meta) and meta.le is not None]
        fits_int = inner is int and any(bound <= _MAX_INT for bound in bounds)
        return "int" if fits_int else spark_type(inner)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not types.NoneType)
        return spark_type(inner)
    if origin is list:
        return f"array<{spark_type(arguments[0])}>"
    if origin is dict:
        return f"map<{spark_type(arguments[0])}, {spark_type(arguments[1])}>"
    if origin is Literal:
        return "string"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"struct<{', '.join(f'{name}: {of}' for name, of in stored_fields(kind).items())}>"
    if kind not in _SIMPLE_TYPES:
        raise TypeError(f"{kind} has no Spark type here")
    return _SIMPLE_TYPES[kind]


EVENT_FIELDS: Final = stored_fields(LagEvent)
TOPIC_FIELDS: Final = stored_fields(TopicLag)
PARTITION_FIELDS: Final = stored_fields(PartitionLag)
