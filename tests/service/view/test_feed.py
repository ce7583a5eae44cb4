"""Records of `consumer-lag`, dispatched to the followers of the view."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiokafka.structs import ConsumerRecord

from sparklag_schemas import Settings, encode
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.topics import key_of
from sparklag_service.counters import Counters
from sparklag_service.view.feed import Arrival, Feed, NewestRecords
from tests.logged import logged
from tests.messages import lag_event
from tests.service.view.recorder import Recorder


class Log:
    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.refusals = Counters().refusals

    def write(self, value: bytes | None, key: str) -> None:
        offset = len(self.records)
        self.records.append(
            ConsumerRecord("lag", 0, offset, 0, 0, key_of(key), value, None, 0, 0, ())
        )

    def event(self, query_id: str, observed_at: int, measured_at: int, key: str = "") -> None:
        event = lag_event(query_id=query_id, observed_at=observed_at, measured_at=measured_at)
        self.write(encode(event), key or query_id)

    async def newest(self) -> list[int]:
        settings = Settings()
        newest = NewestRecords(settings, MessageFormats(settings), self.refusals)
        return [record.offset for record in await newest.of(self.records)]


@pytest.fixture
def log() -> Log:
    return Log()


async def test_the_highest_version_of_each_query_is_left(log: Log) -> None:
    log.event("a", 1, 9)
    log.event("b", 5, 5)
    log.event("a", 3, 3)
    log.event("a", 2, 9)
    log.event("b", 5, 5)
    assert await log.newest() == [2, 4]


async def test_tombstones_are_left_and_the_events_before_and_after_them(log: Log) -> None:
    log.event("a", 8, 8)
    log.event("a", 9, 9)
    log.write(None, "a")
    log.event("a", 3, 3)
    log.write(None, "b")
    assert await log.newest() == [1, 2, 3, 4]


async def test_a_message_that_is_refused_replaces_none(log: Log) -> None:
    log.event("a", 1, 1)
    log.write(b"no event", "a")
    assert await log.newest() == [0]
    assert sum(log.refusals.counts.values()) == 1


async def test_an_event_under_another_key_replaces_none_and_is_left_to_be_refused(log: Log) -> None:
    log.event("a", 1, 1)
    log.event("b", 2, 2, key="a")
    log.event("a", 3, 3, key="b")
    assert await log.newest() == [0, 1, 2]
    assert not log.refusals.counts


class Broken:
    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        raise RuntimeError("at the beginning")

    def arrived(self, arrival: Arrival) -> None:
        raise RuntimeError(f"at {arrival.offset}")


def test_a_follower_that_fails_is_counted_and_logged_once_and_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters, recorder = Counters(), Recorder()
    feed = Feed(counters, Broken(), recorder)
    feed.begin({0: 3}, {0: 5})
    event = lag_event()
    for offset in (3, 4):
        feed.dispatch(Arrival("a", 0, offset, 0, event, encode(event)))
    assert (recorder.restarted, recorder.offsets) == ({0: 3}, [3, 4])
    assert counters.followers_failed == 3
    assert len(logged(caplog)) == 1


def read(feed: Feed, *offsets: int) -> None:
    event = lag_event()
    for offset in offsets:
        feed.dispatch(Arrival("a", 0, offset, 0, event, encode(event)))


def test_what_is_read_again_after_a_failure_is_handed_on_once() -> None:
    recorder = Recorder()
    feed = Feed(Counters(), recorder)
    feed.begin({0: 0}, {0: 0})
    read(feed, *range(10))
    feed.begin({0: 5}, {0: 10})
    read(feed, *range(5, 11))
    assert (recorder.restarted, recorder.offsets) == ({}, [*range(11)])


@pytest.mark.parametrize(("start", "end"), [(0, 3), (50, 60)])
def test_another_topic_of_that_name_or_a_gap_starts_over(start: int, end: int) -> None:
    recorder = Recorder()
    feed = Feed(Counters(), recorder)
    read(feed, *range(10))
    feed.begin({0: start, 1: 0}, {0: end, 1: 0})
    read(feed, start)
    assert (recorder.restarted, recorder.offsets) == ({0: start, 1: 0}, [*range(10), start])
