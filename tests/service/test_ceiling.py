"""Memory has a ceiling, whatever comes in."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from sparklag_schemas import encode
from sparklag_schemas.timestamps import epoch_ms
from sparklag_schemas.topics import key_of
from tests.messages import position, seen
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

QUERIES = 20
OBSERVATIONS = 300
"""Of each query."""


async def test_a_flood_is_taken_in_by_and_by_and_only_the_newest_of_a_query_waits(
    kafka: object, second_client: SecondClient, topic: str
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
