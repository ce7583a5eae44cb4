"""Every number of a message at its extremes is refused, or taken all the way."""

from __future__ import annotations

import time

import pytest

from scripts.message_examples import MessageType
from sparklag_schemas import LagEvent, Observation, encode
from sparklag_schemas.codec import JsonDecoder
from sparklag_schemas.presentation import sentences
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.history.rows import pack, row_of, unpack
from sparklag_service.view.view import Entry, View
from tests.fuzz.extremes import extremes_of, taken
from tests.service.metrics.scraped import scrape
from tests.service.states import Follower, offsets_at

events = JsonDecoder(LagEvent)


def each_number(message: MessageType) -> pytest.MarkDecorator:
    extremes = extremes_of(message)
    return pytest.mark.parametrize("extremes", extremes.values(), ids=extremes)


def later(seconds: float) -> MeasureTime:
    return MeasureTime(epoch_ms() + round(seconds * 1000), 1_000.0 + seconds, 1_000.0 + seconds)


def goes_all_the_way(follower: Follower) -> None:
    for seconds in (0.0, 4_000.0):
        at = later(seconds)
        offsets = offsets_at({0: 70, 1: 2**62}, {0: 0, 1: 0}, requested_s=at.now_s)
        event = follower.measure(offsets, at, silent=seconds > 0)
        assert events.decode(encode(event)) == event
        row = row_of(event)
        assert next(iter(unpack(pack(row)))).measured_at_ms == row.measured_at_ms
        assert View().put(Entry(event, encode(event), time.monotonic(), 0, 0))
        assert sentences.explanation(event, epoch_ms()).lines
        assert scrape(event).samples


@each_number(Observation)
def test_an_observation_is_refused_or_taken_all_the_way(extremes: list[bytes]) -> None:
    for written in extremes:
        if (result := taken(Observation, written)) is None:
            continue
        follower = Follower()
        assert follower.hear(result)
        goes_all_the_way(follower)


@each_number(LagEvent)
def test_a_lag_event_is_refused_or_gone_on_from(extremes: list[bytes]) -> None:
    for written in extremes:
        if (result := taken(LagEvent, written)) is None:
            continue
        follower = Follower(last=result)
        follower.restart()
        goes_all_the_way(follower)
