"""Every number of a message at its extremes is refused, or taken all the way."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from msgspec import inspect

from sparklag_schemas import LagEvent, Observation, encode
from sparklag_schemas.bounds import MAX_DURATION_S, MAX_EPOCH_MS
from sparklag_schemas.clock import epoch_ms
from sparklag_schemas.codec import JsonDecoder
from sparklag_schemas.errors import ContractError
from sparklag_schemas.message_examples import example_value
from sparklag_schemas.message_limits import MessageLimits
from sparklag_schemas.settings import LimitSettings
from sparklag_service.evaluation.moment import Moment
from sparklag_service.history.rows import pack, row_of, unpack
from sparklag_service.rest import page
from sparklag_service.view import Entry, View
from tests.fuzz.edits import Path, places_in
from tests.message_types import options_of
from tests.messages import QUERY_ID
from tests.service.metrics.scraped import scrape
from tests.service.states import Follower, said

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
LIMITS = MessageLimits(LimitSettings())
events = JsonDecoder(LagEvent)


def with_number(document: dict[str, Any], paths: list[Path], number: float) -> bytes:
    changed = copy.deepcopy(document)
    for path in paths:
        part: Any = changed
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = number
    return json.dumps(changed).encode()


def document_of(message: type[Observation] | type[LagEvent]) -> dict[str, Any]:
    """Its example, with a number in every field that may have one."""
    document: dict[str, Any] = json.loads(json.dumps(example_value(message)))
    for source in document.get("sources", ()):
        source["planned"] = source["processed"]
    fill(document, inspect.type_info(message))
    return {**document, "query_id": QUERY_ID}


def fill(value: Any, kind: inspect.Type) -> None:
    for option in options_of(kind):
        if isinstance(option, inspect.ListType):
            for part in value or ():
                fill(part, option.item_type)
        elif isinstance(option, inspect.StructType) and value is not None:
            for field in option.fields:
                if value.get(field.encode_name) is None and may_be_number(field.type):
                    value[field.encode_name] = 1
                fill(value.get(field.encode_name), field.type)


def may_be_number(kind: inspect.Type) -> bool:
    return any(isinstance(one, inspect.IntType | inspect.FloatType) for one in options_of(kind))


def cases(message: type[Observation] | type[LagEvent]) -> list[Any]:
    """One for each field: in every source, topic and partition at once, so that sums are too."""
    found: dict[str, list[Path]] = {}
    for path, value in places_in(document_of(message)):
        if type(value) not in (int, float):
            continue
        steps = ("*" if isinstance(step, int) or step.isdigit() else step for step in path)
        found.setdefault(".".join(steps), []).append(path)
    return [pytest.param(paths, id=name) for name, paths in found.items()]


def later(seconds: float) -> Moment:
    return Moment(epoch_ms() + round(seconds * 1000), 1_000.0 + seconds, 1_000.0 + seconds)


def goes_all_the_way(follower: Follower) -> None:
    """What is measured from it is an event of ours, which every reader takes."""
    for seconds in (0.0, 1.0, 4_000.0):
        at = later(seconds)
        offsets = said({0: 70, 1: 2**62}, {0: 0, 1: 0}, asked_s=at.now_s)
        event = follower.measure(offsets, at, silent=seconds > 1)
        assert events.decode(encode(event)) == event
        row = row_of(event)
        assert next(iter(unpack(pack(row)))).measured_at_ms == row.measured_at_ms
        assert View().put(Entry(event, encode(event), time.monotonic()))
        assert page.rows([event], epoch_ms())
        assert scrape(event).samples


@pytest.mark.parametrize("paths", cases(Observation))
def test_an_observation_is_refused_or_taken_all_the_way(paths: list[Path]) -> None:
    document = document_of(Observation)
    for number in EXTREMES.values():
        follower = Follower()
        try:
            found = JsonDecoder(Observation).decode(with_number(document, paths, number))
            LIMITS.check(found, epoch_ms())
        except ContractError:
            continue
        assert follower.hear(found)
        goes_all_the_way(follower)


@pytest.mark.parametrize("paths", cases(LagEvent))
def test_a_lag_event_is_refused_or_gone_on_from(paths: list[Path]) -> None:
    document = document_of(LagEvent)
    for number in EXTREMES.values():
        try:
            found = events.decode(with_number(document, paths, number))
            LIMITS.check(found, epoch_ms())
        except ContractError:
            continue
        follower = Follower(last=found)
        follower.restart()
        goes_all_the_way(follower)
