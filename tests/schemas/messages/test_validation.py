"""Messages out of bounds are refused: by their types, the settings, the time of their record."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scripts.message_examples import example_value
from sparklag_schemas import (
    LagEvent,
    MalformedMessage,
    Observation,
    Offsets,
    RunningBatch,
    decode_lag_event,
    decode_observation,
    encode,
)
from sparklag_schemas.codec import converted
from sparklag_schemas.errors import FutureTime, OutOfBounds
from sparklag_schemas.messages.validation import MessageLimits
from sparklag_schemas.settings import LimitSettings
from tests.fuzz.edits import places_in
from tests.fuzz.extremes import with_number
from tests.messages import lag_event, observation, position

_HUGE = (2**63, -(2**63) - 1, 2**64, -(2**64), 10**30, 1e400)
_NOW_MS = 1_800_000_000_000


_OBSERVED = json.loads(encode(observation()))
_EVENT = json.loads(encode(lag_event()))
_NUMBERS = [
    (kind, path)
    for kind, document in (("observation", _OBSERVED), ("event", _EVENT))
    for path, value in places_in(document)
    if type(value) in (int, float)
]


@pytest.mark.parametrize(("kind", "path"), _NUMBERS, ids=str)
def test_a_number_of_more_than_64_bits_is_refused(kind: str, path: tuple[Any, ...]) -> None:
    is_event = kind == "event"
    for number in _HUGE:
        written = with_number(_EVENT if is_event else _OBSERVED, [path], number)
        text = written.replace(b"Infinity", b"1e400")
        with pytest.raises(MalformedMessage):
            decode_lag_event(text) if is_event else decode_observation(text)
        with pytest.raises(MalformedMessage):
            converted(json.loads(written), LagEvent if is_event else Observation)


def test_nan_is_refused() -> None:
    event = example_value(LagEvent)
    fields = [name for name, value in event.items() if isinstance(value, float)]
    assert "max_time_lag_s" in fields
    for field in fields:
        with pytest.raises(MalformedMessage):
            converted({**event, field: float("nan")}, LagEvent)


@pytest.mark.parametrize("field", ["query", "query_id", "run_id", "cluster", "observation_id"])
def test_the_length_of_a_name_is_bounded(field: str) -> None:
    with pytest.raises(MalformedMessage, match=r"length <= 1000 - at `\$\."):
        decode_observation(json.dumps({**_OBSERVED, field: "x" * 5_000_000}).encode())


def test_the_number_and_the_count_of_partitions_are_bounded() -> None:
    limits = MessageLimits(LimitSettings(partitions=10))

    def check(processed: Offsets) -> None:
        limits.check(observation(sources=[position(processed)]), _NOW_MS)

    check({"orders": dict.fromkeys(range(10), 0)})
    with pytest.raises(OutOfBounds, match="partition 10: a number below 10"):
        check({"orders": {10: 0}})
    with pytest.raises(OutOfBounds, match="12 topics and partitions: of one query at most 10"):
        check({f"topic-{number}": dict.fromkeys(range(6), 0) for number in range(2)})


def test_an_event_with_too_high_a_partition_is_refused() -> None:
    topic = lag_event().topics[0]
    far = msgspec.structs.replace(topic.partitions[0], partition=300_000)
    event = lag_event(topics=[msgspec.structs.replace(topic, partitions=[far])])
    with pytest.raises(OutOfBounds, match="partition 300000"):
        MessageLimits(LimitSettings()).check(event, event.measured_at)


def test_duplicate_and_too_many_sources_topics_and_partitions_are_refused() -> None:
    limits = MessageLimits(LimitSettings())
    (topic,) = lag_event().topics
    many = [position(source=index) for index in range(101)]
    wide = [msgspec.structs.replace(topic, source=index) for index in range(101)]
    twice = msgspec.structs.replace(topic, partitions=topic.partitions * 2)
    for message, why in (
        (observation(sources=[position(), position()]), "a source is named"),
        (observation(sources=many), "101 sources"),
        (lag_event(topics=[topic, topic]), "a topic is named twice"),
        (lag_event(topics=[twice]), "a partition is named twice"),
        (lag_event(topics=wide), "101 sources"),
    ):
        with pytest.raises(OutOfBounds, match=why):
            limits.check(message, _NOW_MS)
    limits.check(observation(sources=many[:100]), _NOW_MS)
    limits.check(lag_event(topics=wide[:100]), _NOW_MS)


@pytest.mark.parametrize("field", ["observed_at", "processed_at"])
def test_a_time_is_no_later_than_a_few_minutes_after_it_was_written(field: str) -> None:
    limits = MessageLimits(LimitSettings())
    for message in (observation(), lag_event()):
        limits.check(msgspec.structs.replace(message, **{field: _NOW_MS + 299_000}), _NOW_MS)
        with pytest.raises(FutureTime, match="which clock is wrong"):
            limits.check(msgspec.structs.replace(message, **{field: _NOW_MS + 301_000}), _NOW_MS)


@pytest.mark.parametrize("field", ["started_at", "observed_at", "progressed_at"])
def test_the_times_of_a_running_batch_are_bounded_too(field: str) -> None:
    limits = MessageLimits(LimitSettings())
    running = RunningBatch(started_at=_NOW_MS, observed_at=_NOW_MS, progressed_at=_NOW_MS)
    late = msgspec.structs.replace(running, **{field: _NOW_MS + 301_000})
    for message in (observation(), lag_event()):
        limits.check(msgspec.structs.replace(message, running_batch=running), _NOW_MS)
        with pytest.raises(FutureTime, match="which clock is wrong"):
            limits.check(msgspec.structs.replace(message, running_batch=late), _NOW_MS)
