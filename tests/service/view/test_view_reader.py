"""What a new instance reads of `consumer-lag` before it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparklag_schemas import Settings, encode
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.view.feed import Feed, Follower, ViewReader
from sparklag_service.view.view import View
from tests.background_task import background
from tests.messages import lag_event
from tests.service.conftest import LagLog
from tests.service.view.recorder import Recorder
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka
MINUTE_MS = 60_000


@asynccontextmanager
async def read(settings: Settings, *followers: Follower) -> AsyncIterator[tuple[View, Counters]]:
    view, counters = View(), Counters()
    assert settings.bootstrap_servers is not None
    reader = ViewReader(
        settings.resolved(settings.bootstrap_servers),
        view,
        counters,
        MessageFormats(settings),
        Feed(counters, *followers),
    )
    async with background(reader.run()):
        await asyncio.wait_for(reader.caught_up.wait(), DEADLINE_S)
        yield view, counters


async def test_it_reads_the_last_minute_before_the_logs_end_and_no_more(log: LagLog) -> None:
    now_ms = epoch_ms()
    for ago_ms in range(180 * MINUTE_MS, 120 * MINUTE_MS, -10_000):
        log.write(f"forgotten-{ago_ms}", now_ms - ago_ms)
        log.write("alive", now_ms - ago_ms)
    async with read(log.settings) as (view, _):
        assert view.get("alive") is not None
        # One event each ten seconds: a minute, and the rest of the last step.
        assert 7 <= len(view) <= 9


async def test_a_query_that_only_spoke_before_an_outage_is_known(log: LagLog) -> None:
    now_ms = epoch_ms()
    for ago_ms in range(20 * MINUTE_MS, 15 * MINUTE_MS, -10_000):
        log.write("dead", now_ms - ago_ms)
        log.write("alive", now_ms - ago_ms)
    # Nobody published for ten minutes; then an instance did, once, and was killed. So was the next.
    log.write("alive", now_ms - 5 * MINUTE_MS)
    log.write("alive", now_ms - 1_000)
    async with read(log.settings) as (view, _):
        assert {entry.event.query_id for entry in view} == {"dead", "alive"}


async def test_an_outage_in_the_last_minute_does_not_count(log: LagLog) -> None:
    now_ms = epoch_ms()
    log.write("dead", now_ms - 90_000)
    for ago_ms in range(80_000, 50_000, -5_000):
        log.write("alive", now_ms - ago_ms)
    log.write("alive", now_ms - 1_000)
    async with read(log.settings) as (view, _):
        assert {entry.event.query_id for entry in view} == {"dead", "alive"}


async def test_of_a_long_minute_the_feed_gets_the_last_records_alone(log: LagLog) -> None:
    now_ms = epoch_ms()
    log.write("early", now_ms - 30_000)
    log.write("forgotten", now_ms - 30_000)
    log.client.produce(log.topic, [None], key=key_of("forgotten"), at_ms=now_ms - 20_000)
    events = [lag_event(query_id="busy", observed_at=at, measured_at=at) for at in range(1, 1_001)]
    log.client.produce(log.topic, [encode(e) for e in events], key=key_of("busy"), at_ms=now_ms)
    followed = Recorder()
    async with read(log.settings, followed) as (view, counters):
        assert {entry.event.query_id: entry.event.observed_at for entry in view} == {
            "early": now_ms - 30_000,
            "busy": 1_000,
        }
        start, end = followed.restarted[0], 1_003
        assert 0 < end - start < 1_000
        assert followed.offsets == list(range(start, end))
        assert counters.outdated_events == 0
        log.write("busy", now_ms)
        await holds(lambda: followed.offsets[-1] == end, "what is written later is handed on")


async def test_an_empty_topic_is_read_at_once(log: LagLog) -> None:
    log.client.add_partitions(log.topic, 2)
    async with read(log.settings) as (view, _):
        assert len(view) == 0
        log.write("first", epoch_ms())
        await holds(lambda: view.get("first") is not None, "what is written later is seen")


async def test_a_key_that_is_no_query_id_is_refused_and_not_remembered(log: LagLog) -> None:
    """Keys are as long as their writers like, and thousands are remembered."""
    long = b"k" * 500_000
    log.client.produce(log.topic, [None], key=long)
    log.client.produce(log.topic, [b"nothing"], key=long)
    log.client.produce(log.topic, [encode(lag_event())], key=None)
    log.write("mine", epoch_ms())
    async with read(log.settings) as (view, counters):
        assert [entry.event.query_id for entry in view] == ["mine"]
        assert counters.refusals.counts[log.topic, "place"] == 3
        assert counters.refusals.of_query(long.decode(), 0.0) is None
