"""More than the limits take, or faster: what is measured stays so, and memory has a ceiling."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from sparklag_schemas import Settings, encode
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.settings import LimitSettings
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.instance_state import InstanceState
from tests.messages import position, seen
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


def limited(settings: Settings, **limits: int) -> Settings:
    return replace(settings, limits=LimitSettings(**limits))


async def test_made_up_queries_change_nothing_of_those_that_came_first(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 5)
    settings = limited(service_settings, queries=10)
    first = seen(topic, {0: 0})
    async with running(settings, second_client) as service:
        pipeline = service.pipeline
        await service.measures(first, 5)
        service.observe(*(seen(topic, {0: 0}) for _ in range(300)))
        refused = pipeline.counters.refusals.counts
        await holds(lambda: refused[settings.offsets_topic, "limit"] >= 291, "the rest is refused")
        assert len(pipeline.tracked) == 10
        assert "10 of 10 (limits.queries)" in InstanceState(pipeline).degraded()["limits"]
        second_client.produce(topic, [b"x"] * 5)
        await service.shows(first.query_id, lambda e: e.total_lag == 10, "it is still measured")
        await holds(lambda: not InstanceState(pipeline).unpublished, "nothing waits for ever")


async def test_queries_that_ended_make_room_for_one_that_lives(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    ended = seen(topic, {0: 0}, cause="terminated")
    lives, new = seen(topic, {0: 0}), seen(topic, {0: 0})
    async with running(limited(service_settings, queries=2), second_client) as service:
        service.observe(ended, lives)
        await service.shows(ended.query_id, lambda e: e.status == "FINISHED", "it has ended")
        await service.shows(lives.query_id, lambda e: e.status == "OK", "it lives")
        service.observe(new)
        view = service.pipeline.view
        await holds(lambda: view.get(ended.query_id) is None, "the ended one gives way")
        assert service.pipeline.counters.evicted == 1
        # As its driver's next report does.
        service.observe(seen(topic, {0: 0}, query_id=new.query_id, run_id=new.run_id))
        await service.shows(new.query_id, lambda e: e.status == "OK", "the new one has its place")
        assert view.get(lives.query_id) is not None


async def test_a_query_with_an_alarm_makes_room_for_none(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    failed = seen(topic, {0: 0}, cause="terminated", exception="boom")
    async with running(limited(service_settings, queries=1), second_client) as service:
        service.observe(failed)
        await service.shows(failed.query_id, lambda e: e.status == "FAILED", "it has failed")
        refused = service.pipeline.counters.refusals.counts
        for number in range(1, 4):
            service.observe(seen(topic, {0: 0}))
            limit = (service.settings.offsets_topic, "limit")
            await holds(lambda limit=limit, n=number: refused[limit] == n, "refused")  # type: ignore[misc]  # mypy infers no default
        assert service.shown(failed.query_id).status == "FAILED"
        assert service.pipeline.counters.evicted == 0


async def test_a_query_with_too_many_partitions_is_unknown_and_reports_why(
    service_settings: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 20)
    small, large = seen(topic_name, {0: 0}), seen(topic_name, dict.fromkeys(range(20), 0))
    async with running(limited(service_settings, watched_partitions=25), second_client) as service:
        await service.measures(small, 0)
        service.observe(large)
        event = await service.shows(large.query_id, lambda e: e.status == "UNKNOWN", "the large")
        assert "limits.watched_partitions" in (event.reason or "")
        assert event.topics == []


QUERIES = 20
OBSERVATIONS = 300
"""Of each query."""


async def test_of_a_flood_only_the_newest_of_a_query_waits(
    second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * OBSERVATIONS)
    settings = settings_for(second_client.bootstrap_servers)
    second_client.create(settings.offsets_topic, 2)
    queries = [seen(topic, {0: 0}) for _ in range(QUERIES)]
    for query in queries:
        second_client.produce(
            settings.offsets_topic,
            (
                encode(
                    replace(
                        query,
                        observed_at=epoch_ms(),
                        batch_id=number,
                        sources=[position({topic: {0: number}})],
                    )
                )
                for number in range(1, OBSERVATIONS + 1)
            ),
            key=key_of(query.query_id),
        )
    most_queued = most_open = 0
    async with running(settings, second_client) as service:
        pipeline = service.pipeline

        async def all_taken() -> bool:
            nonlocal most_queued, most_open
            most_queued = max(most_queued, pipeline.queue.qsize())
            most_open = max(most_open, pipeline.queue.unfinished)
            await asyncio.sleep(0)
            return pipeline.counters.observations >= QUERIES * OBSERVATIONS

        await eventually(all_taken, "the whole flood is taken in")
        for query in queries:
            await service.shows(
                query.query_id, lambda e: e.batch_id == OBSERVATIONS and e.total_lag == 0, "the end"
            )
        counters = pipeline.counters
        assert counters.superseded > 0
        assert counters.superseded + counters.published >= QUERIES * OBSERVATIONS
    # What is in the queue, and one on its way and one waiting for each query.
    assert most_queued <= 400
    assert most_open <= 400 + 2 * QUERIES
