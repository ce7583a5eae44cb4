"""Earlier ends of real logs, and the ages of records that lag since then."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from sparklag_kafka.access import TrustedBrokers, connection_options
from sparklag_kafka.brokers.pool import BrokerConnection
from sparklag_schemas import TimeLagSettings
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.enrichment.log_end_history import Bracket, LatestOffset
from sparklag_service.enrichment.record_search import Lagging
from sparklag_service.enrichment.record_times import AGES_S, look_up
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.enrichment.sampling import sampling, standing, write_batches
from tests.service.second_broker import frozen, place, second_broker

pytestmark = pytest.mark.kafka

OFF: Any = TimeLagSettings(sample=False, sample_interval_s=0.1)
CAME_S = (30, 150, 600, 2_000, 7_000, 15_000, 30_000, 60_000, 100_000)
"""Ages; the last is older than anybody asks for."""


async def test_each_record_is_dated_between_the_two_ages_it_came_between(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    """Partition n is at record n of nine, the oldest first."""
    second_client.create(topic_name, 9)
    now_ms, began_s = epoch_ms(), time.monotonic()
    batches = [[now_ms - age_s * 1_000] for age_s in reversed(CAME_S)]
    await write_batches(kafka.bootstrap_servers, topic_name, batches, partitions=range(9))
    state = standing({topic_name: {number: number for number in range(9)}})
    async with sampling(kafka.bootstrap_servers, time_lag=OFF) as sampled:
        counts = sampled.record_times.counts
        await sampled.until(lambda: counts.looked_up == 9, "they are looked up", state)
        message = sampled.enricher.offsets["default"][topic_name]
        times, latest = message.log_ends["read_uncommitted"], message.latest["read_uncommitted"]

        def bracket(number: int) -> Bracket:
            return times.bracket(number, number, latest[number])

        await sampled.until(
            lambda: (
                time.monotonic() - bracket(0).newer_s > AGES_S[-1] - 1
                and all(bracket(number).older_s is not None for number in range(1, 9))
            ),
            "with all the rows",
            state,
        )
        lasted_s = time.monotonic() - began_s
        oldest = bracket(0)
        assert oldest.older_s is None
        for number, came_s in enumerate(reversed(CAME_S)):
            older_s = bracket(number).older_s
            if older_s is not None:
                age_s = began_s - bracket(number).newer_s
                assert age_s - lasted_s <= came_s <= began_s - older_s + lasted_s
                assert bracket(number).newer_s - older_s <= max(1, 0.05 * (came_s + lasted_s)) + 0.1
        for _ in range(20):
            await sampled.until(lambda: True, "measured", state)
        assert counts.looked_up == 9, "once is enough"
        assert (counts.requests, sampled.times()) == (0, {}), "no record is read"


async def test_a_search_takes_few_requests_and_leaves_out_a_missing_partition(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2)
    now_ms = epoch_ms()
    batches = [[now_ms - age_s * 1_000] for age_s in (600, 5)]
    await write_batches(kafka.bootstrap_servers, topic_name, batches, partitions=[0, 1])
    host, port = kafka.bootstrap_servers.split(":")
    requested: list[int] = []

    class Counting(BrokerConnection):
        async def send(self, request: Any) -> Any:
            requested.append(1)
            return await super().send(request)

    access = ClusterAccess(kafka.bootstrap_servers)
    connection = Counting(
        (host, int(port)), connection_options(access), TrustedBrokers(access), 30.0
    )
    try:
        wanted = [
            Lagging(
                *(TopicPartition(topic_name, number), "read_uncommitted", position),
                *(LatestOffset(2, 0.0), None),
            )
            for number, position in ((0, 0), (1, 1), (7, 0))
        ]
        ends = await look_up(connection, "read_uncommitted", wanted, now_ms)
    finally:
        await connection.aclose()
    # Halving: of 203 ages eight at most, all partitions together.
    assert len(requested) <= 8
    (newer_s, newer), (older_s, older) = sorted(
        (age_s, row[0]) for (age_s, _), row in ends.items() if 0 in row
    )
    assert newer_s <= 600 <= older_s <= 1.05 * newer_s
    assert (newer, older) == (1, 0)
    assert all(7 not in row for row in ends.values())


async def test_a_log_without_new_records_ended_where_it_ends(kafka: LocalKafka, topic: str) -> None:
    old_ms = epoch_ms() - 5_000_000
    await write_batches(kafka.bootstrap_servers, topic, [[old_ms], [old_ms], [old_ms]])
    state = standing({topic: {0: 1}})
    async with sampling(kafka.bootstrap_servers, time_lag=OFF) as sampled:
        counts = sampled.record_times.counts
        await sampled.until(lambda: counts.looked_up == 1, "it is looked up", state)
        message = sampled.enricher.offsets["default"][topic]
        times = message.log_ends["read_uncommitted"]

        def is_between() -> bool:
            latest = message.latest["read_uncommitted"][0]
            bracket = times.bracket(0, 1, latest)
            now_s = time.monotonic()
            return (
                bracket.older_s is not None
                and 5_000 <= now_s - bracket.older_s < 5_400
                and 4_700 <= now_s - bracket.newer_s < 5_100
            )

        await sampled.until(is_between, "where its record came", state)


async def test_a_frozen_leader_holds_up_no_lookup_and_is_retried() -> None:
    with LocalKafka() as first, second_broker(first) as second_node:
        await place(first, {"here": [1], "there": [2]})
        servers = first.bootstrap_servers
        for topic in ("here", "there"):
            await write_batches(servers, topic, [[epoch_ms() - 200_000], [epoch_ms()]])
        measured = standing({"here": {0: 2}, "there": {0: 2}}, "measured")
        behind = standing({"here": {0: 0}, "there": {0: 0}}, "behind")
        async with sampling(servers, time_lag=OFF, measure_timeout_s=3.0) as sampled:
            await sampled.until(lambda: sampled.ends("there") == {0: 2}, "measured", measured)
            counts = sampled.record_times.counts
            with frozen(second_node):
                await sampled.until(lambda: counts.looked_up == 1, "one is looked up", behind)
            await sampled.until(lambda: counts.looked_up == 2, "the other too", behind)
