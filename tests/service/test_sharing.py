"""Several instances on a real broker: who publishes what, and what changes hands how."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from itertools import count
from uuid import uuid4

import pytest
from msgspec.structs import replace

from sparklag_schemas import LagEvent, Observation, Thresholds, decode_lag_event
from sparklag_schemas.timestamps import epoch_ms
from tests.background_task import background
from tests.local_kafka import LocalKafka
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, send, settings_for, starting
from tests.service.rest_client import rest_client
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


def later(observed: Observation, batch_id: int, topic: str, processed: int) -> Observation:
    return replace(
        observed,
        observation_id=f"{observed.query_id}-{batch_id}",
        observed_at=epoch_ms(),
        batch_id=batch_id,
        sources=[replace(observed.sources[0], processed={topic: {0: processed}})],
    )


def all_events(client: SecondClient, topic: str) -> list[LagEvent]:
    values = [message.value() for message in client.read_all(topic)]
    return [decode_lag_event(value) for value in values if value is not None]


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


@pytest.mark.blocks_loop("the test decodes every event of the topic")
async def test_no_query_is_published_by_two_instances_beyond_the_hand_over(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(
        kafka.bootstrap_servers, topic_partitions=8, publish_interval_s=0.05, refresh_interval_s=0.1
    )
    queries = [seen(topic, {0: 0}) for _ in range(24)]
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(running(settings, second_client))]
        services[0].observe(*queries)
        batch_id = 41
        for _ in range(2):
            services.append(await stack.enter_async_context(running(settings, second_client)))
            for _ in range(10):
                batch_id += 1
                second_client.produce(topic, [b"x"])
                services[0].observe(
                    *(later(query, batch_id, topic, batch_id - 41) for query in queries)
                )
                await asyncio.sleep(0.1)
        await owned_together(services, 24)
        for query in queries:
            await services[0].shows(query.query_id, lambda e: e.batch_id == batch_id, "the last")
    for query in queries:
        versions = [
            event.version
            for event in all_events(second_client, settings.lag_topic)
            if event.query_id == query.query_id
        ]
        assert versions == sorted(versions)
        assert len(set(versions)) == len(versions)


async def test_observations_that_are_read_again_do_not_take_a_query_back(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 10)
    settings = settings_for(kafka.bootstrap_servers)
    query = seen(topic, {0: 0})
    history = [later(query, 41 + n, topic, n) for n in range(1, 8)]
    async with running(settings, second_client) as first:
        first.observe(query, *history)
        await first.shows(query.query_id, lambda e: e.total_lag == 3, "lag 3")
    # Another group has committed nothing: it reads all of them again.
    again = replace(settings, group_id=f"{settings.group_id}-again")
    async with running(again, second_client) as second:
        await holds(
            lambda: second.pipeline.counters.stale == 8,
            "all eight are read again, and known already",
        )
        second_client.produce(topic, [b"x"])
        await second.shows(query.query_id, lambda e: e.total_lag == 4, "lag 4")
    processed = [
        event.topics[0].partitions[0].processed_offset
        for event in all_events(second_client, settings.lag_topic)
    ]
    assert processed == sorted(processed, key=lambda offset: offset or 0)


async def test_a_driver_whose_clock_was_stepped_back_is_still_received(
    service: RunningService, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 10)
    before = seen(topic, {0: 2})
    first = await service.measures(before, 8)
    after = replace(later(before, 42, topic, 6), observed_at=before.observed_at - 3_600_000)
    service.observe(after)
    event = await service.shows(before.query_id, lambda e: e.total_lag == 4, "lag 4")
    assert event.version > first.version


async def test_late_messages_of_a_zombie_do_not_replace_newer_ones(
    service: RunningService, second_client: SecondClient, topic: str
) -> None:
    query = seen(topic, {0: 0})
    shown = await service.measures(query, 0)
    zombie = replace(shown, event_id="zombie", observed_at=shown.observed_at - 5_000, total_lag=99)
    send(second_client, service.settings.lag_topic, zombie)
    await holds(
        lambda: service.pipeline.counters.outdated_events == 1, "the zombie's event is read"
    )
    assert service.shown(query.query_id).total_lag == 0


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


async def test_consumer_lag_deleted_under_a_running_service_is_made_and_filled_again(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, heartbeat_s=1.0)
    settings = replace(settings, kafka=replace(settings.kafka, request_timeout_s=2.0))
    queries = [seen(topic, {0: 0}) for _ in range(5)]
    async with running(settings, second_client) as service:
        service.observe(*queries)
        for query in queries:
            await service.shows(query.query_id, lambda e: True, "an event")
        second_client.delete(settings.lag_topic)
        second_client.produce(topic, [b"x"] * 3)
        for query in queries:
            await service.shows(query.query_id, lambda e: e.total_lag == 3, "lag 3")
        assert second_client.partitions(settings.lag_topic) == settings.topic_partitions
    for query in queries:
        newest = service.published(query.query_id)[-1]
        assert newest is not None
        assert newest.total_lag == 3


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


_ALARMS = {"WARN": 3, "STALL": 1}
_BATCH_S = 0.5


async def test_no_alarm_clears_because_its_query_changes_hands(
    kafka: LocalKafka, second_client: SecondClient
) -> None:
    """Three queries whose lag only rises, and one with a partition that does not move."""
    settings = settings_for(
        kafka.bootstrap_servers, topic_partitions=8, thresholds={".*": Thresholds(window=5)}
    )
    topic = second_client.create(f"orders-{uuid4()}", 2)
    second_client.produce(topic, [b"x"] * 200, partition=0)
    second_client.produce(topic, [b"x"] * 200, partition=1)
    queries = [seen(topic, {0: 0, 1: 0}, batch_id=0) for _ in range(4)]
    ids = [query.query_id for query in queries]

    async def go_on() -> None:
        """A batch of each query reads less than arrives; of the last, only one partition."""
        for batch in count(1):
            second_client.produce(topic, [b"x"] * 5, partition=0)
            second_client.produce(topic, [b"x"] * 5, partition=1)
            for query in queries:
                second = 0 if query is queries[-1] else batch
                first = batch * 5 if query is queries[-1] else batch
                send(
                    second_client,
                    settings.offsets_topic,
                    replace(
                        later(query, batch, topic, 0),
                        processed_at=epoch_ms(),
                        sources=[
                            replace(query.sources[0], processed={topic: {0: first, 1: second}})
                        ],
                    ),
                )
            await asyncio.sleep(_BATCH_S)

    def alarms(service: RunningService) -> Counter[str]:
        events = [entry.event for i in ids if (entry := service.pipeline.view.get(i)) is not None]
        return Counter(event.status for event in events if event.status in _ALARMS)

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        service = await first.enter_async_context(running(settings, second_client))
        await stack.enter_async_context(background(go_on()))
        await holds(lambda: alarms(service) == _ALARMS, "all four are alarms", 180)
        began = {i: epoch_ms() for i in ids}
        # A restart: nobody measures in between.
        await first.aclose()
        instances = [AsyncExitStack() for _ in range(3)]
        for instance in instances:
            await instance.enter_async_context(running(settings, second_client))
        # An update, one instance after the other.
        for instance in instances:
            await instance.aclose()
            service = await instance.enter_async_context(running(settings, second_client))
        await holds(lambda: alarms(service) == _ALARMS, "all four are alarms still", 60)
        for instance in instances:
            await instance.aclose()
    after = [e for e in all_events(second_client, settings.lag_topic) if e.query_id in began]
    assert {e.status for e in after if e.measured_at > began[e.query_id]} == set(_ALARMS)
