"""A mirror on a real broker: its commits, its refusals, and what it reports of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from sparklag_schemas import ClusterSettings
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import moved, position, seen
from tests.second_client import SecondClient
from tests.service.groups import member, metadata_of, speaking
from tests.service.mirror.mirroring import committed, mirroring
from tests.waiting import holds

pytestmark = pytest.mark.kafka

Reaches = Callable[[dict[int, int]], Awaitable[None]]


@pytest.fixture
def topic(second_client: SecondClient, topic_name: str) -> str:
    """A topic of three partitions; its name is also the query's, so that the group is unique."""
    return second_client.create(topic_name, 3)


@pytest.fixture
def group(topic: str) -> str:
    return f"spark-{topic}"


@pytest.fixture
def reaches(second_client: SecondClient, group: str, topic: str) -> Reaches:
    return lambda offsets: committed(second_client, group, topic, offsets)


async def test_the_group_follows_its_query_and_a_query_that_goes_back(
    kafka: LocalKafka, topic: str, group: str, reaches: Reaches
) -> None:
    query = seen(topic, {0: 5, 1: 7}, query=topic)
    async with mirroring(kafka.bootstrap_servers) as one:
        one.observe(query)
        await reaches({0: 5, 1: 7})
        mark = f"sparklag {query.query_id} {query.observed_at}"
        beside = await metadata_of(kafka.bootstrap_servers, group)
        assert beside == {topic: {0: mark, 1: mark}}
        one.observe(query := moved(query, {0: 6, 1: 7}))
        await reaches({0: 6, 1: 7})
        one.observe(query := moved(query, {0: 1, 1: 2, 2: 0}))
        await reaches({0: 1, 1: 2, 2: 0})
        # What it reads no more stays where it was.
        one.observe(moved(query, {1: 3}))
        await reaches({0: 1, 1: 3, 2: 0})
        assert not one.mirror.failing


async def test_nothing_is_committed_twice_and_not_for_a_query_that_another_instance_has(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str, reaches: Reaches
) -> None:
    query, marker = seen(topic, {0: 5}, query=topic), seen(topic, {2: 1}, query=f"{topic}-marker")
    async with mirroring(kafka.bootstrap_servers) as one:
        one.observe(query)
        await reaches({0: 5})
        for offset in range(1, 4):
            one.observe(marker := moved(marker, {2: offset}))
            await committed(second_client, f"{group}-marker", topic, {2: offset})
        # Kafka has them before the mirror hears so.
        await holds(lambda: one.counters.mirror_commits == 4, "each is counted")
        one.kept = False
        one.observe(moved(query, {0: 6}))
    # Nor is it by the last commit.
    await reaches({0: 5})


async def test_a_group_with_members_of_its_own_is_left_alone_until_they_have_left(
    kafka: LocalKafka, topic: str, group: str, reaches: Reaches, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with mirroring(kafka.bootstrap_servers) as one:
        async with member(kafka.bootstrap_servers, group, topic) as consumer:
            await holds(consumer.assignment, "it has joined the group")
            one.observe(seen(topic, {0: 5}, query=topic))
            why = await one.fails("members")
            assert why == (
                f"Kafka cluster default: group {group}: it has members of its own, so the mirror"
                " commits nothing to it"
            )
            await one.refused(times=2)
            await reaches({})
        await reaches({0: 5})
        await one.fails_no_more()
    assert logged(caplog) == [why, f"mirror of default: group {group} is committed to again"]


async def test_a_group_with_offsets_of_another_tool_is_left_alone(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str, reaches: Reaches
) -> None:
    await asyncio.to_thread(second_client.commit, group, {topic: {2: 99}})
    async with mirroring(kafka.bootstrap_servers) as one:
        one.observe(seen(topic, {0: 5}, query=topic))
        why = await one.fails(group)
        assert why == (
            f"Kafka cluster default: group {group}: topic {topic}, partition 2 was not committed by"
            " the mirror: the group is somebody else's, so nothing is committed to it; delete it,"
            " or choose another mirror.group"
        )
        await one.refused()
        await reaches({2: 99})
        await asyncio.to_thread(second_client.delete_group, group)
        await reaches({0: 5})
        await one.fails_no_more()


async def test_of_two_queries_of_one_name_the_first_keeps_the_group_until_it_is_dead(
    kafka: LocalKafka, topic: str, group: str, reaches: Reaches
) -> None:
    first, second = seen(topic, {0: 5}, query=topic), seen(topic, {0: 7, 1: 1}, query=topic)
    async with (
        mirroring(kafka.bootstrap_servers) as one,
        mirroring(kafka.bootstrap_servers) as other,
    ):
        one.observe(first)
        await reaches({0: 5})
        for instance in (one, other):
            instance.show(first)
            instance.show(second)
        other.observe(second)
        why = await other.fails(group)
        ids = " and ".join(f"{topic} ({i})" for i in sorted((first.query_id, second.query_id)))
        assert why == (
            f"Kafka cluster default: group {group}: queries {ids} would share it: it stays that of"
            f" {first.query_id}; give them names of their own, or put {{query_id}} into"
            " mirror.group"
        )
        one.observe(first := moved(first, {0: 6}))
        await reaches({0: 6})
        await other.refused()
        for instance in (one, other):
            instance.show(first, "STOP")
        await reaches({0: 7, 1: 1})
        await other.fails_no_more()
        # The dead one's last words take nothing back.
        one.tracker.observe(moved(first, {0: 9}))
        await holds(lambda: one.counters.mirror_superseded, "it commits nothing")
        await reaches({0: 7, 1: 1})
        assert not one.mirror.failing


async def test_of_two_new_queries_of_one_name_neither_is_mirrored_and_one_line_reports_so(
    kafka: LocalKafka, topic: str, group: str, reaches: Reaches, caplog: pytest.LogCaptureFixture
) -> None:
    both = [seen(topic, {0: 5}, query=topic, cluster="default") for _ in range(2)]
    async with mirroring(kafka.bootstrap_servers) as one:
        one.observe(*both)
        await one.fails("would share it: nothing is committed to it")
        await one.refused(times=4)
        await reaches({})
    assert sum(group in message for message in logged(caplog)) == 1
    async with mirroring(kafka.bootstrap_servers, group="spark-{query_id}") as one:
        one.observe(*both)
        await holds(lambda: one.counters.mirror_commits == 2, "each has a group of its own")


async def test_a_missing_topic_costs_only_itself(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str, reaches: Reaches
) -> None:
    missing = f"{topic}-missing"
    both = position({topic: {0: 5}, missing: {0: 1, 1: 2}})
    query = seen(topic, {}, query=topic, sources=[both])
    async with mirroring(kafka.bootstrap_servers) as one:
        one.observe(query)
        await reaches({0: 5})
        why = await one.fails(missing)
        # Of three at first; then the one that was committed is not tried again.
        reasons = {
            f"Kafka cluster default: group {group}: 2 of {tried} partitions not committed: topic"
            f" {missing}: Kafka knows no such topic, or not all of its partitions"
            for tried in (3, 2)
        }
        assert why in reasons
        await asyncio.to_thread(second_client.create, missing, 2)
        await committed(second_client, group, missing, {0: 1, 1: 2})
        await one.fails_no_more()
    await reaches({0: 5})


async def test_each_cluster_has_its_groups_and_one_that_is_away_costs_only_itself(
    second_client: SecondClient, kafka: LocalKafka, topic: str
) -> None:
    with LocalKafka() as east:
        far = SecondClient(east.bootstrap_servers)
        far.create(topic, 1)
        clusters = {"east": ClusterSettings(bootstrap_servers=east.bootstrap_servers)}
        query = seen(
            *(topic, {0: 5}),
            query=topic,
            sources=[
                position({topic: {0: 5}}),
                position({topic: {0: 2}}, source=1, bootstrap_servers=east.bootstrap_servers),
            ],
        )
        async with mirroring(
            kafka.bootstrap_servers, group="spark-{cluster}-{query}", clusters=clusters
        ) as one:
            one.observe(query)
            await committed(far, f"spark-east-{topic}", topic, {0: 2})
            await committed(second_client, f"spark-default-{topic}", topic, {0: 5})
            await asyncio.to_thread(east.stop)
            one.observe(moved(query, {0: 6}))
            await committed(second_client, f"spark-default-{topic}", topic, {0: 6})
            await one.fails("nothing is mirrored to it, no broker answers")
            await asyncio.to_thread(east.start)
            await committed(far, f"spark-east-{topic}", topic, {0: 6})
            await one.fails_no_more()


async def test_older_brokers_get_one_group_in_a_request(
    kafka: LocalKafka, second_client: SecondClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking(monkeypatch, {8: (0, 7), 9: (0, 5), 10: (0, 2)})
    queries = [seen(topic, {0: number}, query=f"{topic}-{number}") for number in range(3)]
    async with mirroring(kafka.bootstrap_servers) as one:
        one.observe(*queries)
        for number, query in enumerate(queries):
            await committed(second_client, f"spark-{query.query}", topic, {0: number})
        assert not one.mirror.failing
