"""What is told apart on a real broker: each in its status, and in a sentence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparklag_schemas import ClusterSettings
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import position, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, settings_for
from tests.tcp_proxy import TcpProxy
from tests.waiting import holds

_METADATA = b"\0\3"

pytestmark = pytest.mark.kafka


async def test_a_query_restarted_from_older_offsets_is_rewound_until_it_is_there_again(
    service: RunningService, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 10)
    query = seen(topic, {0: 8})
    await service.measures(query, 2)

    def at(processed: int) -> None:
        service.observe(
            replace(
                query,
                run_id="another run",
                observed_at=epoch_ms(),
                sources=[position({topic: {0: processed}})],
            )
        )

    at(3)
    event = await service.shows(query.query_id, lambda e: e.status == "REWIND", "REWIND")
    assert (event.total_lag, event.topics[0].partitions[0].rewound_from) == (7, 8)
    assert "went back from offset 8" in str(event.reason)
    at(8)
    await service.shows(query.query_id, lambda e: e.status == "OK" and e.total_lag == 2, "OK")


async def test_a_recreated_topic_is_distinguished_even_when_it_is_longer(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, metadata_interval_s=1.0)
    second_client.produce(topic, [b"x"] * 5)
    query = seen(topic, {0: 5})
    async with running(settings, second_client) as service:
        await service.measures(query, 0)
        second_client.delete(topic)
        gone = await service.shows(query.query_id, lambda e: e.status == "GONE", "GONE")
        assert gone.total_lag is None
        assert f"topic {topic} does not exist" in str(gone.reason)
        second_client.create(topic, 1)
        second_client.produce(topic, [b"x"] * 50)
        anew = await service.shows(query.query_id, lambda e: e.status == "RECREATED", "RECREATED")
        assert anew.total_lag is None
        service.observe(
            replace(
                query, observed_at=epoch_ms(), batch_id=42, sources=[position({topic: {0: 20}})]
            )
        )
        event = await service.shows(query.query_id, lambda e: e.batch_id == 42, "a new position")
        assert (event.status, event.total_lag) == ("OK", 30)


async def test_one_answer_that_there_is_no_such_topic_changes_nothing(topic_name: str) -> None:
    name, other = topic_name.encode(), topic_name[:-1].encode() + b"_"
    lies = 0

    def lie(data: bytes) -> bytes:
        nonlocal lies
        if lies and data[4:6] == _METADATA and name in data:
            lies -= 1
            return data.replace(name, other)
        return data.replace(other, name)

    with TcpProxy() as proxy, LocalKafka(advertised=f"127.0.0.1:{proxy.port}") as kafka:
        proxy.upstream = int(kafka.bootstrap_servers.rpartition(":")[2])
        client = SecondClient(kafka.internal_servers)
        client.create(topic_name, 1)
        client.produce(topic_name, [b"x"] * 9)
        settings = settings_for(f"127.0.0.1:{proxy.port}", metadata_interval_s=1.0)
        query = seen(topic_name, {0: 4})
        async with running(settings, client) as service:
            await service.measures(query, 5)
            proxy.changed, lies = lie, 1
            await holds(lambda: not lies, "it was told once that there is no such topic")
            client.produce(topic_name, [b"x"])
            await service.shows(query.query_id, lambda e: e.total_lag == 6, "the lag grows")
            events = [event for event in service.published(query.query_id) if event is not None]
            assert {event.status for event in events} == {"OK"}


async def test_a_topic_that_matches_a_pattern_counts_from_its_beginning_before_it_is_read(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, metadata_interval_s=1.0)
    query = seen(topic, {0: 0}, sources=[position({topic: {0: 0}}, topic_pattern=f"^{topic}")])
    java = replace(query, query_id="java", sources=[position({topic: {0: 0}}, topic_pattern=r"\h")])
    second_client.produce(topic, [b"x"])
    async with running(settings, second_client) as service:
        service.observe(query, java)
        await service.shows(query.query_id, lambda e: e.total_lag == 1, "lag 1")
        added = second_client.create(f"{topic}-added", 1)
        second_client.create(f"not-{topic}", 1)
        second_client.produce(added, [b"x"] * 5)
        event = await service.shows(query.query_id, lambda e: e.total_lag == 6, "lag 6")
        assert [each.topic for each in event.topics] == [topic, added]
        assert (event.status, event.topics[1].partitions[0].processed_offset) == ("OK", None)
        second_client.delete(added)
        event = await service.shows(query.query_id, lambda e: len(e.topics) == 1, "it is deleted")
        assert (event.status, event.total_lag) == ("OK", 1)
        unknown = await service.shows("java", lambda e: e.status == "UNKNOWN", "UNKNOWN")
        assert "cannot evaluate its pattern (bad escape" in str(unknown.reason)
        assert unknown.total_lag == 1


async def test_partitions_added_count_from_their_first_offset_before_spark_plans_them(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, metadata_interval_s=1.0)
    query = seen(topic, {0: 0})
    fixed = seen(topic, {0: 0})
    fixed = replace(fixed, sources=[position({topic: {0: 0}}, assigned={topic: [0]})])
    async with running(settings, second_client) as service:
        service.observe(query, fixed)
        await service.shows(query.query_id, lambda e: e.total_lag == 0, "no lag")
        second_client.add_partitions(topic, 3)
        second_client.produce(topic, [b"x"] * 4, partition=2)
        event = await service.shows(query.query_id, lambda e: e.total_lag == 4, "lag 4")
        assert event.status == "OK"
        assert "added" in str(event.reason)
        named = await service.shows(
            fixed.query_id, lambda e: e.measured_at > event.measured_at, "measured again"
        )
        assert (named.total_lag, len(named.topics[0].partitions)) == (0, 1)


async def test_two_runs_of_one_query_are_named(service: RunningService, topic: str) -> None:
    first = seen(topic, {0: 0}, run_id="first")
    second = replace(first, run_id="second", observed_at=first.observed_at + 10)
    again = replace(first, observed_at=first.observed_at + 20)
    service.observe(first, second, again)
    event = await service.shows(first.query_id, lambda e: e.status == "CONFLICT", "CONFLICT")
    # The second has written once: the position is still that of the first.
    assert (event.run_id, event.other_run_id) == ("first", "second")


async def test_a_renamed_query_has_its_new_name_only(service: RunningService, topic: str) -> None:
    query = seen(topic, {0: 0}, query="before")
    service.observe(query)
    await service.shows(query.query_id, lambda e: e.query == "before", "the name")
    service.observe(replace(query, query="after", observed_at=epoch_ms()))
    await service.shows(query.query_id, lambda e: e.query == "after", "the new name")
    assert service.pipeline.view.find("before") == []
    assert len(service.pipeline.view.find("after")) == 1


async def test_a_driver_that_falls_silent_stops_the_query_whose_lag_goes_on_growing(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, heartbeat_s=2.0)
    async with running(settings, second_client) as service:
        query = seen(topic, {0: 0})
        service.observe(query)
        await service.shows(query.query_id, lambda e: e.status == "OK", "OK")
        event = await service.shows(query.query_id, lambda e: e.status == "STOP", "STOP")
        assert "the driver stopped reporting" in str(event.reason)
        second_client.produce(topic, [b"x"] * 3)
        await service.shows(query.query_id, lambda e: e.total_lag == 3, "lag 3")
        alive = replace(query, cause="refresh", observed_at=epoch_ms(), batch=None)
        service.observe(alive)
        await service.shows(query.query_id, lambda e: e.status == "OK", "it speaks again")


async def test_another_cluster_is_measured_and_its_absence_touches_only_its_own_queries(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    with LocalKafka() as east:
        theirs = SecondClient(east.bootstrap_servers)
        theirs.create(topic_name, 1)
        theirs.produce(topic_name, [b"x"] * 6)
        second_client.create(topic_name, 1)
        second_client.produce(topic_name, [b"x"] * 2)
        settings = settings_for(
            kafka.bootstrap_servers,
            clusters={"east": ClusterSettings(bootstrap_servers=east.bootstrap_servers)},
            measure_timeout_s=1.0,
            latest_max_age_s=600.0,
        )
        here = seen(topic_name, {0: 0})
        there = seen(topic_name, {0: 0})
        there = replace(
            there,
            sources=[position({topic_name: {0: 0}}, bootstrap_servers=east.bootstrap_servers)],
        )
        nowhere = seen(topic_name, {0: 0}, cluster="unheard-of")
        async with running(settings, second_client) as service:
            service.observe(here, there, nowhere)
            event = await service.shows(there.query_id, lambda e: e.total_lag == 6, "lag 6")
            assert event.topics[0].cluster == "east"
            await service.shows(here.query_id, lambda e: e.total_lag == 2, "lag 2")
            unknown = await service.shows(nowhere.query_id, lambda e: True, "an event")
            assert unknown.total_lag is None
            assert "no configured cluster" in str(unknown.reason)
            east.kill()
            await holds(lambda: "east" in service.state.degraded(), "the cluster is named as away")
            assert service.state.not_ready() == {}
            second_client.produce(topic_name, [b"x"] * 3)
            await service.shows(here.query_id, lambda e: e.total_lag == 5, "lag 5")
            aged = await service.shows(
                there.query_id,
                lambda e: e.topics[0].partitions[0].measured_at is not None,
                "its last value, with its age",
            )
            assert aged.total_lag == 6
            east.restart()
            theirs.produce(topic_name, [b"x"])
            await service.shows(there.query_id, lambda e: e.total_lag == 7, "lag 7")
