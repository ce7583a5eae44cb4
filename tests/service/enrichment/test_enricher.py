"""Whose slowness costs whom: each query waits for its own leaders, and for none too long."""

from __future__ import annotations

import time

import pytest
from aiokafka.structs import TopicPartition

from sparklag_schemas import ClusterSettings
from sparklag_service.enrichment.enricher import Enricher
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.asking import (
    enriching,
    measured_in_order,
    measured_until,
    of_sources,
    query,
    source,
)
from tests.service.second_broker import frozen, place, second_broker
from tests.service.states import latest_of, unknown_of
from tests.waiting import holds

pytestmark = pytest.mark.kafka


def latest(enricher: Enricher, topic: str, cluster: str = "default") -> int | None:
    return latest_of(enricher.offsets[cluster]).get(TopicPartition(topic, 0))


async def test_a_query_on_a_healthy_broker_never_waits_for_a_frozen_one() -> None:
    with LocalKafka() as first, second_broker(first) as second_node:
        await place(first, {"here": [1], "there": [2]})
        client = SecondClient(first.bootstrap_servers)
        client.produce("here", [b"x"], partition=0)
        healthy = query({"here": [0]}, "healthy")
        mixed = query({"here": [0], "there": [0]}, "mixed")
        timeout_s = 60.0
        async with enriching(first.bootstrap_servers, measure_timeout_s=timeout_s) as enricher:
            await measured_until(
                enricher,
                lambda: (latest(enricher, "here"), latest(enricher, "there")) == (1, 0),
                "both are measured",
                *(mixed, healthy),
            )
            with frozen(second_node):
                frozen_s = time.monotonic()
                # The first time nobody knows of it yet: the mixed query waits, the other does not.
                assert await measured_in_order(enricher, mixed, healthy) == ["healthy", "mixed"]
                for count in range(2, 7):
                    client.produce("here", [b"x"], partition=0)
                    await measured_in_order(enricher, mixed, healthy)
                    assert latest(enricher, "here") == count
                # All this took less than one wait for the broker's answer would have.
                assert time.monotonic() - frozen_s < timeout_s
                kept = enricher.offsets["default"]["there"].latest["read_uncommitted"]
                assert kept[0].requested_s < frozen_s
            client.produce("there", [b"x"], partition=0)
            await measured_until(
                enricher, lambda: latest(enricher, "there") == 1, "the thawed is measured", mixed
            )


async def test_a_lost_cluster_briefly_delays_its_readers(kafka: LocalKafka, topic: str) -> None:
    here = source(0, processed={topic: {0: 0}})
    away = source(1, processed={"far": {0: 0}}, cluster="away")
    clusters = {"away": ClusterSettings(bootstrap_servers="127.0.0.1:1")}
    async with enriching(kafka.bootstrap_servers, clusters=clusters) as enricher:
        await measured_until(
            enricher,
            lambda: latest(enricher, topic) == 0 and "away" in enricher.unreachable,
            "the near cluster is measured",
            *(of_sources("near", here), of_sources("both", here, away)),
        )
        unknown = unknown_of(enricher.offsets["away"])
        assert unknown == {TopicPartition("far", 0): "no broker answers"}
        await holds(
            lambda: "connection refused" in enricher.unreachable["away"], "the reason is reported"
        )
        assert "default" not in enricher.unreachable


async def test_a_query_of_no_configured_cluster_is_reported_at_once(kafka: LocalKafka) -> None:
    async with enriching(kafka.bootstrap_servers) as enricher:
        nowhere = query({"orders": [0]}, "nowhere", cluster=None)
        elsewhere = query({"orders": [0]}, "elsewhere", cluster="unheard-of")
        began_s = time.monotonic()
        enricher.request(nowhere, elsewhere)
        states, requested_s = await enricher.next_measured()
        assert states == [nowhere, elsewhere]
        assert began_s <= requested_s <= time.monotonic()
        assert enricher.offsets["default"] == {}


async def test_a_query_requested_twice_is_reported_once(kafka: LocalKafka, topic: str) -> None:
    async with enriching(kafka.bootstrap_servers) as enricher:
        old, new = query({topic: [0]}), query({topic: [0]})
        nowhere = query({topic: [0]}, "nowhere", cluster=None)
        enricher.request(old)
        last_s = time.monotonic()
        enricher.request(new, nowhere)

        newest = {id(new), id(nowhere)}
        await holds(
            lambda: {id(state) for state, _ in enricher._measured.values()} == newest,
            "all are measured",
        )
        states, requested_s = await enricher.next_measured()
        assert requested_s >= last_s
        assert {id(state) for state in states} == newest


async def test_closing_is_quick_while_a_broker_is_frozen(topic_name: str) -> None:
    with LocalKafka() as broker:
        SecondClient(broker.bootstrap_servers).create(topic_name, 1)
        state = query({topic_name: [0]})
        try:
            async with enriching(broker.bootstrap_servers, measure_timeout_s=120) as enricher:
                await measured_in_order(enricher, state)
                broker.freeze()
                # It is not waited for any longer, and its request is still unanswered.
                await measured_in_order(enricher, state)
                closing_s = time.monotonic()
            assert time.monotonic() - closing_s < 60
        finally:
            broker.thaw()
