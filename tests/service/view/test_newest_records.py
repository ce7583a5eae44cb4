"""Which records of many a view takes at its start."""

from __future__ import annotations

import pytest
from aiokafka.structs import ConsumerRecord

from sparklag_schemas import Settings, encode
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.topics import key_of
from sparklag_service.counters import Counters
from sparklag_service.view.newest_records import NewestRecords
from tests.messages import lag_event


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
