"""Several instances on a real broker: who publishes what, and what changes hands how."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, send, settings_for, starting
from tests.service.rest_client import rest_client
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


async def owned_together(services: list[RunningService], count: int) -> None:
    """Wait until each query is measured by one instance, and each instance measures some."""

    async def shared() -> bool:
        owners = Counter(q for s in services for q in s.pipeline.tracked)
        each = all(service.pipeline.tracked for service in services)
        return each and len(owners) == count and set(owners.values()) == {1}

    await eventually(shared, f"{count} queries are shared by {len(services)} instances")


async def test_queries_of_an_instance_that_leaves_are_measured_on_by_the_others_at_once(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, topic_partitions=8)
    queries = [seen(topic, {0: 0}) for _ in range(24)]
    async with running(settings, second_client) as stays:
        async with running(settings, second_client) as leaves:
            stays.observe(*queries)
            await owned_together([stays, leaves], 24)
        await owned_together([stays], 24)
        second_client.produce(topic, [b"x"] * 7)
        for query in queries:
            # Nobody has said anything new of it: its position comes from the view.
            event = await stays.shows(query.query_id, lambda e: e.total_lag == 7, "lag 7")
            assert event.batch_id == query.batch_id


async def test_an_embedded_service_that_comes_back_gets_its_query_back(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 8)
    settings = settings_for(kafka.bootstrap_servers, heartbeat_s=0.5)
    async with running(settings, second_client) as service:
        event = replace(
            lag_event(query_id="embedded", measured_by="embedded", observed_at=epoch_ms()),
            topics=[replace(lag_event().topics[0], topic=topic)],
        )
        send(second_client, settings.lag_topic, event)
        dead = await service.shows("embedded", lambda e: e.measured_by == "service", "adopted")
        assert (dead.status, dead.total_lag) == ("STOP", 3)
        back = replace(event, event_id="back", observed_at=epoch_ms() + 1, measured_at=epoch_ms())
        send(second_client, settings.lag_topic, back)
        await holds(
            lambda: "embedded" not in service.pipeline.tracked,
            "it is measured by its own service again",
        )


@pytest.mark.parametrize("name", ["offsets_topic", "lag_topic"])
async def test_a_deleted_topic_that_may_not_be_created_is_named_until_it_is_there_again(
    name: str, kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, create_topics=False)
    settings = replace(settings, heartbeat_s=2.0, metadata_interval_s=2.0)
    own = getattr(settings, name)
    async with starting(settings, second_client) as service:
        unready = service.state.not_ready
        await holds(
            lambda: "sparklag topics create" in unready().get("topics", ""), "both are missing"
        )
        for missing in (settings.offsets_topic, settings.lag_topic):
            assert f"no topic {missing}" in unready()["topics"]
            second_client.create(missing, 2)
        await service.is_ready()
        await service.measures(seen(topic, {0: 0}), 0)

        second_client.delete(own)
        async with rest_client(service.pipeline) as http:

            async def names_it() -> bool:
                answer = await http.get("/health/ready")
                reason = answer.json()["failing"].get("topics", "")
                return answer.status_code == 503 and f"there is no topic {own}" in reason

            await eventually(names_it, "it is not ready, and says why")
        second_client.create(own, 2)
        await service.is_ready()
        await service.measures(seen(topic, {0: 0}), 0)
