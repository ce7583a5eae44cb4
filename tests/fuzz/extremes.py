"""Messages in which a number is as large, as small or as odd as JSON lets it be."""

from __future__ import annotations

import copy
import json
from typing import Any, TypeVar

from msgspec import inspect

from scripts.message_examples import MessageType, example_value
from sparklag_schemas.codec import JsonDecoder
from sparklag_schemas.errors import ContractError
from sparklag_schemas.messages.bounds import MAX_DURATION_S, MAX_EPOCH_MS
from sparklag_schemas.messages.validation import MessageLimits
from sparklag_schemas.settings import LimitSettings
from sparklag_schemas.timestamps import epoch_ms
from tests.fuzz.edits import Path, places_in
from tests.message_types import options_of
from tests.messages import QUERY_ID

Message = TypeVar("Message")
LIMITS = MessageLimits(LimitSettings())
EXTREMES = {
    "below int64": -(2**63) - 1,
    "least int64": -(2**63),
    "minus one": -1,
    "zero": 0,
    "most int64": 2**63 - 1,
    "above int64": 2**63,
    "longest duration": int(MAX_DURATION_S),
    "longest duration in ms": int(MAX_DURATION_S * 1000),
    "last moment": MAX_EPOCH_MS,
    "largest float": 1e308,
    "infinite": float("inf"),
    "no number": float("nan"),
}


def extremes_of(message: MessageType) -> dict[str, list[bytes]]:
    """Messages by the field whose number is at its extremes."""
    document = _document_of(message)
    return {
        name: [with_number(document, paths, number) for number in EXTREMES.values()]
        for name, paths in _numbers_in(document).items()
    }


def taken(message: type[Message], written: bytes) -> Message | None:
    try:
        result = JsonDecoder(message).decode(written)
        LIMITS.check(result, epoch_ms())
    except ContractError:
        return None
    return result


def _document_of(message: MessageType) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(example_value(message)))
    for source in document.get("sources", ()):
        source["planned"] = source["processed"]
    _fill(document, inspect.type_info(message))
    return {**document, "query_id": QUERY_ID}


def _fill(value: Any, kind: inspect.Type) -> None:
    for option in options_of(kind):
        if isinstance(option, inspect.ListType):
            for part in value or ():
                _fill(part, option.item_type)
        elif isinstance(option, inspect.StructType) and value is not None:
            for field in option.fields:
                if value.get(field.encode_name) is None and _may_be_number(field.type):
                    value[field.encode_name] = 1
                _fill(value.get(field.encode_name), field.type)


def _may_be_number(kind: inspect.Type) -> bool:
    return any(isinstance(one, inspect.IntType | inspect.FloatType) for one in options_of(kind))


def with_number(document: dict[str, Any], paths: list[Path], number: float) -> bytes:
    changed = copy.deepcopy(document)
    for path in paths:
        part: Any = changed
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = number
    return json.dumps(changed).encode()


def _numbers_in(document: dict[str, Any]) -> dict[str, list[Path]]:
    """Fields that are numbers, with their places in all sources, topics and partitions."""
    result: dict[str, list[Path]] = {}
    for path, value in places_in(document):
        if type(value) not in (int, float):
            continue
        steps = ("*" if isinstance(step, int) or step.isdigit() else step for step in path)
        result.setdefault(".".join(steps), []).append(path)
    return result
