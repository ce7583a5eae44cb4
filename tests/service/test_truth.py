"""What is told apart on a real broker: each in its status, and in a sentence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparklag_schemas import ClusterSettings
from tests.local_kafka import LocalKafka
from tests.messages import position, seen
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.waiting import holds

pytestmark = pytest.mark.kafka


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
