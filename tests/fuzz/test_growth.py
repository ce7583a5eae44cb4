"""What a message costs grows as its size does: none of a few MB holds the loop for minutes."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from scripts.message_examples import MessageType, example_value
from sparklag_schemas import LagEvent, Observation, encode
from sparklag_schemas.codec import JsonDecoder
from sparklag_schemas.messages.validation import redacted
from sparklag_schemas.presentation import sentences
from sparklag_service.history.rows import pack, row_of
from sparklag_service.metrics.rendering import QuerySeries
from sparklag_service.view.view import Entry, View
from tests.fuzz.extremes import LIMITS
from tests.messages import QUERY_ID
from tests.service.metrics.scraped import settings as scrape_settings
from tests.service.metrics.scraped import text_of
from tests.service.states import Follower, moment, offsets_at

SIZE, TIMES = 300, 24
TOLERANCE = 2.5
"""Machines are noisy. Work that grows with the square costs up to `TIMES` as much in addition."""


Document = dict[str, Any]


def document_of(message: MessageType) -> Document:
    return {**json.loads(json.dumps(example_value(message))), "query_id": QUERY_ID}


def observation_with(sources: int, topics: int, partitions: int) -> Document:
    document = document_of(Observation)
    position = {
        f"topic-{topic}": dict.fromkeys(map(str, range(partitions)), 1) for topic in range(topics)
    }
    fields = {"processed": position, "planned": position, "topics": [*position]}
    one = {**document["sources"][0], **fields}
    document["sources"] = [{**one, "source": index} for index in range(sources)]
    return document


def event_with(topics: int, partitions: int, reason: str = "") -> Document:
    document = document_of(LagEvent)
    topic = document["topics"][0]
    partition = topic["partitions"][0]
    document["topics"] = [
        {
            **topic,
            "topic": f"topic-{number}",
            "partitions": [
                {**partition, "partition": index, "reason": f"{index}a{reason}" if reason else None}
                for index in range(partitions)
            ],
        }
        for number in range(topics)
    ]
    return document


OBSERVATIONS: dict[str, Callable[[int], Document]] = {
    "topics": lambda size: observation_with(1, size, 1),
    "partitions": lambda size: observation_with(1, 1, size),
    "topics of many sources": lambda size: observation_with(100, size // 100, 1),
}
EVENTS: dict[str, Callable[[int], Document]] = {
    "topics": lambda size: event_with(size, 1),
    "partitions": lambda size: event_with(1, size),
    "reasons": lambda size: event_with(1, size, "a.b://" * 40),
}


def follow(written: bytes) -> None:
    """An observation, all the way to the events that are measured from it."""
    observation = JsonDecoder(Observation).decode(written)
    LIMITS.check(observation, observation.observed_at)
    follower = Follower()
    for cause in ("progress", "started", "progress"):
        follower.hear(_again(written, observation.observed_at + 1, cause))
        at = moment(follower.offset)
        encode(follower.measure(offsets_at({0: 70}, {0: 0}, requested_s=at.requested_s), at))
    follower.restart()


def _again(written: bytes, observed_at: int, cause: str) -> Observation:
    document = {**json.loads(written), "observed_at": observed_at, "cause": cause}
    if cause == "started":
        document["sources"] = [{**one, "processed": None} for one in document["sources"]]
    return JsonDecoder(Observation).decode(json.dumps(document).encode())


def show(written: bytes) -> None:
    """A lag event, to whatever shows it, and to an instance that goes on from it."""
    event = JsonDecoder(LagEvent).decode(written)
    LIMITS.check(event, event.measured_at)
    event = redacted(event)
    View().put(Entry(event, written, 0.0, 0, 0))
    pack(row_of(event))
    sentences.explanation(event, event.measured_at)
    text_of(QuerySeries(scrape_settings()), [event])
    follower = Follower(last=event)
    follower.restart()
    at = moment()
    follower.measure(offsets_at({0: 70}, {0: 0}, requested_s=at.requested_s), at)


def cost_s(work: Callable[[bytes], None], written: bytes, *, tries: int) -> float:
    took = []
    # What other tests have left is nothing that a message makes the collector look through.
    gc.freeze()
    try:
        for _ in range(tries):
            began = time.process_time()
            work(written)
            took.append(time.process_time() - began)
    finally:
        gc.unfreeze()
    return min(took)


@pytest.mark.parametrize(
    ("work", "document"),
    [(follow, document) for document in OBSERVATIONS.values()]
    + [(show, document) for document in EVENTS.values()],
    ids=[f"observed {name}" for name in OBSERVATIONS] + [f"shown {name}" for name in EVENTS],
)
@pytest.mark.slow
@pytest.mark.blocks_loop("messages of all sizes are decoded at once")
def test_what_a_message_costs_grows_as_its_size_does(
    work: Callable[[bytes], None], document: Callable[[int], Document]
) -> None:
    small, large = (json.dumps(document(size)).encode() for size in (SIZE, TIMES * SIZE))
    small_s, large_s = (cost_s(work, written, tries=3) for written in (small, large))
    assert large_s < TOLERANCE * TIMES * small_s
