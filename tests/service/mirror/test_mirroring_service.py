"""A whole service mirrors its queries: other tools show its own figures."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import (
    GroupSettings,
    LagEvent,
    MirrorSettings,
    Observation,
    Settings,
    decode_lag_event,
)
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import position, seen
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.service.mirror.consumer_groups import describe
from tests.service.mirror.mirroring import committed
from tests.service.rest_client import rest_client
from tests.waiting import holds

pytestmark = pytest.mark.kafka


def mirroring_settings(kafka: LocalKafka, *queries: str, **fields: Any) -> Settings:
    mirror = MirrorSettings(queries=list(queries), interval_s=0.2)
    return settings_for(kafka.bootstrap_servers, mirror=mirror, **fields)


def by_partition(event: LagEvent) -> dict[tuple[str, int], tuple[int | None, ...]]:
    return {
        (topic.topic, one.partition): (one.processed_offset, one.latest_offset, one.lag)
        for topic in event.topics
        for one in topic.partitions
    }


async def test_kafkas_own_command_shows_the_lag_that_rest_answers(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    other = second_client.create(f"{topic_name}-other", 2)
    second_client.create(topic_name, 3)
    for topic, partitions in ((topic_name, 3), (other, 2)):
        for partition in range(partitions):
            second_client.produce(topic, [b"x"] * (30 + partition), partition=partition)
    queries = [
        seen(
            topic_name,
            {},
            query=f"{topic_name}-{number}",
            sources=[
                position({topic_name: {0: number % 30, 1: number % 7, 2: 0}}),
                position({other: {0: number % 5, 1: 3}}, source=1),
            ],
        )
        for number in range(120)
    ]
    groups = {query.query_id: f"spark-{query.query}" for query in queries}
    async with (
        running(mirroring_settings(kafka, f"{topic_name}-.*"), second_client) as service,
        rest_client(service.state) as http,
    ):
        service.observe(*queries)
        for query in queries:
            await service.shows(query.query_id, lambda e: e.total_lag is not None, "its lag")
        counters = service.pipeline.counters
        await holds(lambda: counters.mirror_commits >= len(queries), "all are mirrored")
        some = queries[::6]
        shown = await asyncio.to_thread(
            describe, kafka.bootstrap_servers, [groups[query.query_id] for query in some]
        )
        for query in some:
            answer = await http.get(f"/lag/{query.query}")
            event = decode_lag_event(answer.content)
            of_group = shown[groups[query.query_id]]
            assert of_group == by_partition(event)
            assert sum(row.lag for row in of_group.values()) == event.total_lag
        metrics = (await http.get("/metrics")).text
    assert f"sparklag_mirror_commits_total {float(counters.mirror_commits)}" in metrics


async def test_a_service_that_restarts_goes_on_and_what_was_read_last_is_mirrored_as_it_ends(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    group = f"spark-{topic}"
    settings = mirroring_settings(kafka, topic)
    settings = replace(settings, mirror=replace(settings.mirror, interval_s=600.0))
    query = seen(topic, {0: 1}, query=topic)
    for offset in (1, 2):
        async with running(settings, second_client) as service:
            service.observe(at(query, topic, offset))
            is_there = partial(is_observed_at, observed_at=query.observed_at + offset)
            await service.shows(query.query_id, is_there, "the position")
        await committed(second_client, group, topic, {0: offset})
    # Without anything new it knows from the view where the query is.
    await asyncio.to_thread(second_client.delete_group, group)
    async with running(settings, second_client):
        pass
    await committed(second_client, group, topic, {0: 2})


async def test_a_mirror_does_not_come_back_as_a_group_of_its_own(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    ordinary = f"spark-{topic}-ordinary"
    second_client.commit(ordinary, {topic: {0: 0}})
    allow = GroupSettings(allow=[f"spark-{topic}.*"], interval_s=0.2, find_interval_s=1.0)
    query = seen(topic, {0: 0}, query=topic)
    async with running(mirroring_settings(kafka, topic, groups=allow), second_client) as service:
        service.observe(query)
        await committed(second_client, f"spark-{topic}", topic, {0: 0})
        # Both are listed from here on.
        newer = f"spark-{topic}-newer"
        await asyncio.to_thread(second_client.commit, newer, {topic: {0: 0}})
        for group in (ordinary, newer):
            await service.shows(f"group:default:{group}", lambda e: e.total_lag == 0, "its lag")
        assert service.pipeline.view.get(f"group:default:spark-{topic}") is None
        assert len(service.pipeline.tracked) == 3


async def test_a_group_stays_with_its_query_while_a_forged_end_may_be_contradicted(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    owner, other = (seen(topic, {0: offset}, query=topic) for offset in (1, 9))
    group = f"spark-{topic}"
    async with running(mirroring_settings(kafka, topic), second_client) as service:
        service.observe(owner)
        await committed(second_client, group, topic, {0: 1})
        service.observe(other, replace(owner, observed_at=epoch_ms(), cause="terminated"))
        await service.shows(owner.query_id, lambda e: e.status == "FINISHED", "the forged end")
        refused = service.pipeline.counters.mirror_refused
        await holds(lambda: service.pipeline.counters.mirror_refused > refused + 2, "it is kept")
        service.observe(replace(at(owner, topic, 2), observed_at=epoch_ms()))
        await committed(second_client, group, topic, {0: 2})


def is_observed_at(event: LagEvent, observed_at: int) -> bool:
    return event.observed_at == observed_at


def at(observed: Observation, topic: str, offset: int) -> Observation:
    return replace(
        observed,
        observed_at=observed.observed_at + offset,
        sources=[position({topic: {0: offset}})],
    )
