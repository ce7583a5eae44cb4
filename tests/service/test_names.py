"""What a name means while queries that share it come and go, on a real broker."""

from __future__ import annotations

import pytest

from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import moved, query_id_in, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, settings_for
from tests.service.rest_client import rest_client
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


async def test_a_query_that_another_of_its_name_has_followed_reports_so_as_long_as_it_is_dead(
    service: RunningService, topic: str
) -> None:
    began_at = epoch_ms() - 60_000
    old, beside = (seen(topic, {0: 0}, observed_at=began_at) for _ in range(2))
    new = seen(topic, {0: 0})
    service.observe(old, beside)
    await service.shows(old.query_id, lambda e: e.status == "OK", "the first is there")
    await service.shows(beside.query_id, lambda e: e.status == "OK", "one beside it is there")
    ended_at = began_at + 30_000
    service.observe(
        seen(topic, {0: 0}, query_id=old.query_id, cause="terminated", observed_at=ended_at)
    )
    ended = await service.shows(old.query_id, lambda e: e.status == "FINISHED", "it has ended")
    assert ended.superseded_by is None
    service.observe(new)
    followed = await service.shows(
        old.query_id, lambda e: e.superseded_by is not None, "the second has its name"
    )
    assert followed.superseded_by == new.query_id
    assert service.published(old.query_id)[-1] == followed
    assert (await service.shows(new.query_id, lambda e: True, "it")).superseded_by is None
    service.observe(moved(old, {0: 0}, after_ms=90_000))
    await service.shows(
        old.query_id,
        lambda e: (e.status, e.superseded_by) == ("OK", None),
        "the first is alive again",
    )


async def test_a_query_is_forgotten_by_every_instance_whichever_gets_the_request(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    # The owner publishes all the time: an event of it may follow the tombstone.
    settings = settings_for(
        kafka.bootstrap_servers, heartbeat_s=0.2, publish_interval_s=0.1, refresh_interval_s=0.1
    )
    async with running(settings, second_client) as one, running(settings, second_client) as other:
        both = (one, other)
        queries = [
            seen(
                topic,
                {0: 0},
                cause="terminated",
                query=None,
                query_id=query_id_in(number % 2, settings.topic_partitions),
            )
            for number in range(16)
        ]
        one.observe(*queries)
        for service in both:
            for query in queries:
                await service.shows(query.query_id, lambda e: e.status == "FINISHED", "it is there")
        await holds(lambda: all(service.state.owned_queries for service in both), "both own some")
        kept, *ended = queries
        async with rest_client(one.state) as http:
            for query in ended:
                assert (await http.delete(f"/lag/{query.query_id}")).status_code == 204

        async def only_one_is_left() -> bool:
            ids = [*one.state.owned_queries, *other.state.owned_queries]
            in_views = [[e.event.query_id for e in service.pipeline.view] for service in both]
            return [ids, *in_views] == [[kept.query_id]] * 3

        await eventually(only_one_is_left, "the others are forgotten by both")
        for service in both:
            version = await service.shows(kept.query_id, lambda e: True, "it is there")
            await service.shows(
                kept.query_id,
                lambda e, v=version: e.version > v.version,  # type: ignore[misc]  # mypy infers no default
                "some heartbeats later",
            )
        assert await only_one_is_left()
        for query in ended:
            assert one.published(query.query_id)[-1] is None
        # One that comes back is known again.
        back = moved(ended[0], {0: 0}, after_ms=60_000)
        one.observe(back)
        for service in both:
            await service.shows(back.query_id, lambda e: True, "it is back")
