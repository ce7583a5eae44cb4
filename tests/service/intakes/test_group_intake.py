"""Ordinary consumer groups on real brokers become observations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from aiokafka.structs import TopicPartition
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.encoding import PreparedRequest
from sparklag_schemas import GroupSettings, Observation
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.service.groups import commit, compact_string, member, speaking, watching
from tests.service.states import state
from tests.waiting import holds

pytestmark = pytest.mark.kafka


@pytest.fixture
def group(topic_name: str) -> str:
    return f"group-of-{topic_name}"


def delete(bootstrap_servers: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_consumer_groups([group])[group].result(60)


async def test_a_group_without_members_is_observed_in_all_of_its_topics(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, group: str
) -> None:
    other = second_client.create(f"{topic_name}-other", 2)
    second_client.create(topic_name, 3)
    await commit(kafka.bootstrap_servers, group, {topic_name: {0: 5, 2: 7}, other: {1: 0}})
    requested_ms = epoch_ms()
    async with watching(kafka.bootstrap_servers, re.escape(group), alias="east") as watch:
        results = await watch.at(group, {topic_name: {0: 5, 2: 7}, other: {1: 0}})
    assert results.query_id == f"group:east:{group}"
    assert (results.run_id, results.query, results.cluster, results.origin) == (
        None,
        group,
        "east",
        "group",
    )
    assert (results.batch_id, results.processed_at) == (None, None)
    assert requested_ms <= results.observed_at <= epoch_ms()
    (source,) = results.sources
    assert source.source == 0
    # Partitions that nobody has committed in are not counted.
    assert source.assigned == {topic_name: [0, 2], other: [1]}
    assert source.topics is None


async def test_a_commit_of_a_member_is_observed_within_the_interval_and_then_repeated_by_heartbeats(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str
) -> None:
    second_client.produce(topic, [b"x"] * 9)
    async with (
        member(kafka.bootstrap_servers, group, topic) as consumer,
        watching(kafka.bootstrap_servers, re.escape(group), heartbeat_s=1.0) as watch,
    ):
        await consumer.getone()
        await consumer.commit()
        first = await watch.at(group, {topic: {0: 1}})
        await consumer.getone()
        await consumer.commit()
        second = await watch.at(group, {topic: {0: 2}})
        assert second.processed_at == second.observed_at > first.observed_at
        repeated = await watch.at(group, {topic: {0: 2}}, cause="refresh")
        assert repeated.processed_at == second.processed_at
        assert repeated.observed_at >= second.observed_at
        assert watch.causes(group) == ["group", "group"]
        assert len({o.observation_id for o in watch.of(group)}) == len(watch.of(group))


async def test_members_that_join_and_leave_are_observed_with_those_that_have_nothing_to_do(
    kafka: LocalKafka, topic: str, group: str
) -> None:

    def has(members: int, idle: int, state: str = "Stable") -> Callable[[Observation], bool]:
        described = ConsumerGroup(
            state=state, members=members, members_without_partitions=idle, coordinator=1
        )
        described = replace(described, protocol_type="consumer", unassigned={})
        return lambda observation: observation.group == described

    async with watching(kafka.bootstrap_servers, re.escape(group)) as watch:
        async with member(kafka.bootstrap_servers, group, topic) as consumer:
            await consumer.commit({TopicPartition(topic, 0): 5})
            await watch.shows(group, has(1, 0), "one member")
            async with member(kafka.bootstrap_servers, group, topic):
                second = await watch.shows(group, has(2, 1), "a second member, without partitions")
        empty = await watch.shows(group, has(0, 0, "Empty"), "no member is left")
        # They are no commit.
        assert (second.cause, empty.cause) == ("refresh", "refresh")
        assert empty.sources[0].processed == {topic: {0: 5}}


async def test_partitions_that_no_member_of_a_stable_group_reads_are_observed(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str
) -> None:
    other = second_client.create(f"{topic}-other", 1)
    await commit(kafka.bootstrap_servers, group, {topic: {0: 5}, other: {0: 7}})

    def leaves(unassigned: dict[str, list[int]]) -> bool:
        last = watch.of(group)[-1].group if watch.of(group) else None
        return last is not None and last.unassigned == unassigned

    async with watching(kafka.bootstrap_servers, re.escape(group)) as watch:
        await holds(lambda: leaves({}), "without members every partition counts")
        async with member(kafka.bootstrap_servers, group, topic) as consumer:
            await holds(lambda: leaves({other: [0]}), "no member reads the other topic")
            consumer.subscribe([topic, other])
            await holds(lambda: leaves({}), "it is read")


async def test_a_share_group_is_observed_without_a_position(
    kafka: LocalKafka, topic: str, group: str
) -> None:
    async with BrokerPool(ClusterAccess(kafka.bootstrap_servers), timeout_s=60.0) as pool:
        # ShareGroupHeartbeat, which no client here has.
        join = compact_string(group) + compact_string("member") + bytes(5)
        join += b"\2" + compact_string(topic) + b"\0"
        request = PreparedRequest(76, 1, join, True, bytes)
        await pool.connections()[0].send(SimpleNamespace(prepare=lambda _: request))
    async with watching(kafka.bootstrap_servers, re.escape(group)) as watch:
        observed = await watch.shows(group, lambda o: True, "it is listed")
    assert observed.group == ConsumerGroup(coordinator=1, protocol_type="share")
    assert observed.sources[0].processed == {}


async def test_where_members_are_not_reported_the_offsets_are_and_one_line_reports_why(
    kafka: LocalKafka, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(kafka.bootstrap_servers, group, {topic: {0: 5}})
    speaking(monkeypatch, {15: (99, 99)})
    async with watching(kafka.bootstrap_servers, re.escape(group)) as watch:
        observed = await watch.at(group, {topic: {0: 5}})
        assert observed.group == ConsumerGroup(coordinator=1)
        await watch.fails("members of consumer groups are not known: broker 1: ")
        assert len(watch.intake.failing) == 1
        await commit(kafka.bootstrap_servers, group, {topic: {0: 6}})
        await watch.at(group, {topic: {0: 6}})


async def test_only_allowed_groups_are_observed(kafka: LocalKafka, topic: str) -> None:
    names = {kind: f"{topic}-{kind}" for kind in ("yes", "no", "yes-but", "žluťoučký-ὕ-🐎")}
    for name in names.values():
        await commit(kafka.bootstrap_servers, name, {topic: {0: 5}})
    prefix = re.escape(topic)
    async with watching(
        kafka.bootstrap_servers, f"{prefix}-yes.*", f"{prefix}-ž.*", "no", deny=(".*-but",)
    ) as watch:
        for kind in ("yes", "žluťoučký-ὕ-🐎"):
            await watch.at(names[kind], {topic: {0: 5}})
        assert not watch.of(names["no"])
        assert not watch.of(names["yes-but"])


async def test_a_group_is_observed_from_its_first_commit_on(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str
) -> None:
    marker = f"{group}-marker"
    await commit(kafka.bootstrap_servers, marker, {topic: {0: 1}})
    async with (
        member(kafka.bootstrap_servers, group, topic) as consumer,
        watching(kafka.bootstrap_servers, f"{re.escape(group)}.*") as watch,
    ):
        await watch.at(marker, {topic: {0: 1}})
        # Both were read several times.
        for offset in range(2, 6):
            await commit(kafka.bootstrap_servers, marker, {topic: {0: offset}})
            await watch.at(marker, {topic: {0: offset}})
        assert not watch.of(group)
        second_client.produce(topic, [b"x"])
        await consumer.getone()
        await consumer.commit()
        await watch.at(group, {topic: {0: 1}})


async def test_a_deleted_group_may_come_back(kafka: LocalKafka, topic: str, group: str) -> None:
    await commit(kafka.bootstrap_servers, group, {topic: {0: 5}})
    async with watching(kafka.bootstrap_servers, re.escape(group)) as watch:
        await watch.at(group, {topic: {0: 5}})
        await asyncio.to_thread(delete, kafka.bootstrap_servers, group)
        ended = await watch.at(group, {topic: {0: 5}}, cause="terminated")
        assert ended.group == ConsumerGroup(state="Dead", members=0, members_without_partitions=0)
        # No empty position was observed in between.
        assert watch.positions(group) == [{topic: {0: 5}}] * len(watch.of(group))
        assert not watch.intake.failing
        await commit(kafka.bootstrap_servers, group, {topic: {0: 6}})
        await watch.at(group, {topic: {0: 6}})
        assert watch.causes(group) == ["group", "terminated", "group"]


async def test_an_earlier_deletion_ends_a_group(kafka: LocalKafka, topic: str, group: str) -> None:
    query_ids = [f"group:default:{group}", f"group:west:{group}", "dd8b09d1"]
    queries = {query_id: state(query_id=query_id) for query_id in query_ids}
    async with watching(kafka.bootstrap_servers, f"{re.escape(group)}.*", queries=queries) as watch:
        ended = await watch.shows(group, lambda o: o.cause == "terminated", "it has ended")
        assert ended.query_id == query_ids[0]
        # Where it was is what is remembered of it.
        assert ended.sources == []
        # Each is listed in the next round.
        for number in range(2):
            await commit(kafka.bootstrap_servers, f"{group}-{number}", {topic: {0: 5}})
            await watch.at(f"{group}-{number}", {topic: {0: 5}})
        assert len(watch.of(group)) == 1


async def test_a_group_whose_commits_vanish_while_it_has_members_has_no_position_any_more(
    kafka: LocalKafka, second_client: SecondClient, topic: str, group: str
) -> None:
    other = second_client.create(f"{topic}-other", 1)
    async with (
        member(kafka.bootstrap_servers, group, topic, other) as consumer,
        watching(kafka.bootstrap_servers, re.escape(group)) as watch,
    ):
        await consumer.commit({TopicPartition(topic, 0): 5})
        await watch.at(group, {topic: {0: 5}})
        # With the topic its commits go.
        await asyncio.to_thread(second_client.delete, topic)
        await watch.at(group, {})
        assert "terminated" not in {o.cause for o in watch.of(group)}


async def test_a_group_moves_and_comes_back(kafka: LocalKafka, topic: str, group: str) -> None:
    owned = {"mine"}
    marker = f"{group}-marker"
    for name in (group, marker):
        await commit(kafka.bootstrap_servers, name, {topic: {0: 5}})
    async with watching(
        kafka.bootstrap_servers,
        f"{re.escape(group)}.*",
        heartbeat_s=1.0,
        owns=lambda query_id: query_id.endswith("-marker") or "mine" in owned,
    ) as watch:
        await watch.at(group, {topic: {0: 5}})
        owned.clear()
        for offset in range(6, 10):
            await commit(kafka.bootstrap_servers, marker, {topic: {0: offset}})
            await watch.at(marker, {topic: {0: offset}})
        before = len(watch.of(group))
        await commit(kafka.bootstrap_servers, marker, {topic: {0: 10}})
        await watch.at(marker, {topic: {0: 10}})
        await watch.at(marker, {topic: {0: 10}}, cause="refresh")
        assert len(watch.of(group)) == before
        owned.add("mine")
        await holds(lambda: len(watch.of(group)) > before, "it is observed at once")
        anew = watch.of(group)[before]
        assert (anew.cause, anew.sources[0].processed) == ("group", {topic: {0: 5}})


async def test_a_service_measures_a_group_and_learns_that_it_was_deleted_while_it_was_down(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, group: str
) -> None:
    second_client.create(topic_name, 3)
    second_client.produce(topic_name, [b"x"] * 9, partition=0)
    await commit(kafka.bootstrap_servers, group, {topic_name: {0: 5}})
    settings = settings_for(
        kafka.bootstrap_servers,
        groups=GroupSettings(allow=[re.escape(group)], interval_s=0.5, find_interval_s=1.0),
    )
    query_id = f"group:default:{group}"
    async with running(settings, second_client) as service:
        event = await service.shows(query_id, lambda e: e.total_lag == 4, "its lag")
        (topic,) = event.topics
        # Two partitions have no commit: they are no lag.
        assert [partition.partition for partition in topic.partitions] == [0]
        assert (event.query, event.origin, event.run_id) == (group, "group", None)
        described = ConsumerGroup(
            state="Empty", members=0, members_without_partitions=0, coordinator=1, unassigned={}
        )
        assert event.group == described
        metadata = service.state.metadata["default"]
        assert metadata.group_poll_s is not None
        assert metadata.group_poll_s > 0
        second_client.produce(topic_name, [b"x"] * 2, partition=0)
        await service.shows(query_id, lambda e: e.total_lag == 6, "it grows")
        await commit(kafka.bootstrap_servers, group, {topic_name: {0: 11}})
        event = await service.shows(query_id, lambda e: e.total_lag == 0, "it has caught up")
        assert event.processed_at is not None
    await asyncio.to_thread(delete, kafka.bootstrap_servers, group)
    async with running(settings, second_client) as service:
        ended = await service.shows(query_id, lambda e: e.cause == "terminated", "it has ended")
        assert ended.topics[0].partitions[0].processed_offset == 11
