"""The history of a new instance, read from what others left on a real topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from sparklag_schemas import Batch, Settings, encode
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.lag_event import Runs
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.history.history import History
from sparklag_service.history.page import TimeRange, points
from sparklag_service.history.refill import Refill
from sparklag_service.history.rows import Change, Row
from sparklag_service.view.feed import Feed, ViewReader
from sparklag_service.view.view import View
from tests.background_task import background
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.service.conftest import LagLog
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka
S, MINUTE, HOUR = 1_000, 60_000, 3_600_000


class NewInstance:
    def __init__(self, settings: Settings) -> None:
        assert settings.bootstrap_servers is not None
        servers = settings.bootstrap_servers
        self.counters = Counters()
        self.view = View()
        self.history = History(settings, self.counters)
        feed = Feed(self.counters, self.history)
        formats = MessageFormats(settings)
        self.reader = ViewReader(
            settings.resolved(servers), self.view, self.counters, formats, feed
        )
        self.refill = Refill(
            settings.resolved(servers), self.view, self.history, self.counters, formats
        )

    def rows(self, query_id: str) -> list[Row]:
        return self.history.archive.rows(query_id, epoch_ms())

    def ages(self, query_id: str, each_ms: int) -> list[int]:
        now_ms = epoch_ms()
        return [(now_ms - row.measured_at_ms) // each_ms for row in self.rows(query_id)]

    def complete_ago_ms(self) -> int:
        (complete_ms,) = self.history.complete_since_ms.values()
        return epoch_ms() - complete_ms


@asynccontextmanager
async def refilled(settings: Settings) -> AsyncIterator[NewInstance]:
    instance = NewInstance(settings)
    async with background(instance.reader.run()):
        await asyncio.wait_for(instance.reader.caught_up.wait(), DEADLINE_S)
        async with background(instance.refill.run()):
            await asyncio.wait_for(instance.refill.done.wait(), 120)
            yield instance


def write(log: LagLog, query_id: str, ages_ms: Iterable[int]) -> None:
    """Events of those times; the lag is the age in seconds."""
    now_ms = epoch_ms()
    for ago_ms in ages_ms:
        log.write(query_id, now_ms - ago_ms, total_lag=ago_ms // S)


def write_heartbeats(log: LagLog) -> None:
    """Events from which the view has the last minute, and nothing to read before."""
    write(log, "alive", range(5 * MINUTE, 0, -10 * S))


async def test_a_new_instance_knows_the_day_before_it_began(log: LagLog) -> None:
    write(log, "a", range(30 * HOUR, 0, -10 * MINUTE))
    write(log, "a", range(5 * MINUTE, 0, -10 * S))
    async with refilled(log.settings) as instance:
        ages = instance.ages("a", MINUTE)
        assert ages[0] >= 23 * 60 + 40
        assert sorted(ages, reverse=True) == ages
        assert len([age for age in ages if age >= 10]) == 24 * 6 - 1
        # Whatever was read live, and what was read for the history besides: each second once.
        lags = [row.total_lag for row in instance.rows("a")]
        assert len(set(lags)) == len(lags)
        assert instance.complete_ago_ms() >= 24 * HOUR


async def test_the_batches_and_the_runs_of_before_are_read_again_too(log: LagLog) -> None:
    key, now_ms = key_of("a"), epoch_ms()
    began_ms = {"first": now_ms - 8 * HOUR, "second": now_ms - 3 * HOUR, "third": now_ms - HOUR}
    # In three of the parts that are read one after the other, the newest first.
    for ago_ms, run_id, cause in (
        (8 * HOUR, "first", "started"),
        (7 * HOUR, "first", "progress"),
        (2 * HOUR, "second", "progress"),
        (HOUR, "second", "refresh"),
        (5 * S, "third", "refresh"),
    ):
        if run_id == "third":
            write_heartbeats(log)
        at_ms = now_ms - ago_ms
        event = lag_event(
            query_id="a",
            observed_at=at_ms,
            measured_at=at_ms,
            run_id=run_id,
            runs=Runs(first_at=now_ms - 9 * HOUR, started_at=began_ms[run_id], reported_at=at_ms),
            cause=cause,
            batch=Batch(started_at=0, rows=1, duration_ms=ago_ms // S, phases_ms={"addBatch": 9}),
        )
        log.client.produce(log.topic, [encode(event)], key=key, at_ms=at_ms)
    async with refilled(log.settings) as instance:
        wanted = TimeRange(now_ms - 9 * HOUR, now_ms + MINUTE, MINUTE)
        steps = points(instance.rows("a"), wanted)
        changes = instance.history.archive.changes("a")
    durations_s = [None, 7 * HOUR // S, 2 * HOUR // S, None, None]
    assert [step.batch and step.batch.duration_ms for step in steps] == durations_s
    assert [step.batch and step.batch.processing_ms for step in steps] == [None, 9, 9, None, None]
    assert changes == [Change(at_ms, None) for at_ms in began_ms.values()]


async def test_where_retention_took_the_beginning_it_reports_since_when_nothing_is_missing(
    log: LagLog,
) -> None:
    write(log, "a", range(8 * HOUR, 4 * HOUR, -10 * MINUTE))
    log.client.delete_records(log.topic, {0: 12})
    write_heartbeats(log)
    write(log, "a", [5 * S, 4 * S])
    async with refilled(log.settings) as instance:
        assert instance.ages("a", MINUTE)[0] == 6 * 60
        assert 6 * HOUR - MINUTE <= instance.complete_ago_ms() <= 6 * HOUR + MINUTE


async def test_where_compaction_left_holes_it_reports_since_when_nothing_is_missing(
    service_settings: Settings, second_client: SecondClient
) -> None:
    log = LagLog(
        service_settings,
        second_client,
        cleanup_policy="compact",
        segment_ms="1",
        min_cleanable_dirty_ratio="0.001",
    )
    write(log, "rare", [7 * HOUR])
    for ago_ms in range(6 * HOUR, 4 * HOUR, -10 * MINUTE):
        for query in ("a", "b"):
            write(log, query, [ago_ms])
    await holds(lambda: len(second_client.read_all(log.topic)) < 20, "the broker has compacted it")
    write(log, "a", [3 * HOUR, 2 * HOUR, 5 * S])
    write(log, "rare", [4 * S])
    async with refilled(log.settings) as instance:
        # What is left from before the holes is shown, and not called complete.
        assert instance.ages("rare", HOUR) == [7, 0]
        assert 2 * HOUR <= instance.complete_ago_ms() <= 5 * HOUR


async def test_what_a_query_was_before_its_tombstone_does_not_come_back(log: LagLog) -> None:
    write(log, "forgotten", [6 * HOUR])
    write(log, "a", [5 * HOUR, 4 * HOUR, 2 * HOUR])
    log.client.produce(log.topic, [None], key=key_of("a"), at_ms=epoch_ms() - HOUR)
    write(log, "a", [20 * MINUTE])
    write_heartbeats(log)
    write(log, "a", [5 * S])
    async with refilled(log.settings) as instance:
        assert instance.ages("a", MINUTE) == [20, 0]
        # The view does not know it: nobody could ask.
        assert instance.rows("forgotten") == []


async def test_a_message_that_is_none_of_ours_is_counted_and_keeps_nothing_up(log: LagLog) -> None:
    write(log, "a", [3 * HOUR])
    log.client.produce(log.topic, [b"{"], key=b"a", at_ms=epoch_ms() - 2 * HOUR)
    write(log, "a", [HOUR])
    write_heartbeats(log)
    write(log, "a", [5 * S])
    async with refilled(log.settings) as instance:
        assert instance.ages("a", HOUR) == [3, 1, 0]
        assert instance.counters.refusals.counts.total() == 1


async def test_an_empty_topic_is_complete_at_once(log: LagLog) -> None:
    async with refilled(log.settings) as instance:
        assert instance.complete_ago_ms() >= 24 * HOUR
