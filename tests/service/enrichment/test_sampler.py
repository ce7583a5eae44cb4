"""Which positions are read and when, from a leader that is played here."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import TopicPartition

from sparklag_kafka.protocol.metadata import Address
from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.cluster_offsets import NoRecords, RecordTime, Topic, TopicOffsets
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.record_search import ByteBudget, Lagging
from sparklag_service.enrichment.sampler import FORBIDDEN_S, RecordTimeCounts, Sampler
from tests.kafka.batches import batch, marker
from tests.logged import logged

T = 1_700_000_000_000
FORBIDDEN = 29


class PlayedLeader:
    """Has a record at each offset up to 99, `T + offset`, and answers one request at a time."""

    address: Address = ("leader", 9092)

    def __init__(self) -> None:
        self.error_code = 0
        self.away = False
        self.has_markers = False
        """True: a marker is at the requested offset, and its log ends there."""
        self.offsets: list[int] = []
        """Requested offsets, in order."""

    def dedicated(self, address: Address) -> Any:
        assert address == self.address
        return self

    async def send(self, request: Any) -> Any:
        await asyncio.sleep(0)
        if self.away:
            raise KafkaConnectionError("away")
        topics = []
        for topic, partitions in request.topics:
            self.offsets += [offset for _, offset, _ in partitions]
            fetched: list[Any] = [
                (n, 0, at + 1, at + 1, [], marker(at, 1, commits=True))
                if self.has_markers
                else (
                    n,
                    self.error_code,
                    100,
                    100,
                    [],
                    b"" if self.error_code else batch(at, [T + at]),
                )
                for n, at, _ in partitions
            ]
            topics.append((topic, fetched))
        return type("Response", (), {"API_VERSION": 4, "topics": topics})

    async def aclose(self) -> None:
        """There is nothing to close."""


class PlayedCluster:
    alias = "east"

    def __init__(self, budget: ByteBudget | None = None) -> None:
        self.pool: Any = PlayedLeader()
        self.offsets = {"orders": TopicOffsets(Topic("id", (0, 1)), 0.0)}
        self.counts = RecordTimeCounts()
        self.now_s = 1_000.0
        cluster: Any = self
        budget = budget or ByteBudget(self.now_s)
        self.sampler = Sampler(cluster, self.counts, budget, lambda: self.now_s)

    def leader(self, topic: str, partition: int) -> Address | None:
        return self.pool.address if partition < 2 else None

    async def sample(self, *requested: Lagging) -> list[int]:
        self.pool.offsets = []
        for lagging in requested:
            self.sampler.request(lagging)
        tasks = [leader.task for leader in self.sampler._leaders.values() if leader.task]
        await asyncio.gather(*tasks)
        offsets: list[int] = self.pool.offsets
        return offsets

    @property
    def sampled(self) -> RecordTime | None:
        return self.offsets["orders"].record_times.get(0)


def at(
    offset: int,
    partition: int = 0,
    level: IsolationLevel = "read_uncommitted",
    topic_id: str = "id",
) -> Lagging:
    latest = LatestOffset(100, 0.0)
    return Lagging(TopicPartition("orders", partition), level, offset, latest, topic_id)


async def test_a_position_is_sampled_once() -> None:
    cluster = PlayedCluster()
    assert await cluster.sample(at(5)) == [5]
    assert cluster.sampled == RecordTime(5, T + 5)
    cluster.now_s += 59
    assert await cluster.sample(at(5)) == []
    cluster.now_s += 1
    assert await cluster.sample(at(5)) == [5]
    assert cluster.counts.sampled == 2


@pytest.mark.parametrize("other", [at(5, topic_id="new"), at(5, level="read_committed"), at(6)])
async def test_another_offset_level_and_topic_of_that_name_are_sampled(other: Lagging) -> None:
    cluster = PlayedCluster()
    await cluster.sample(at(5))
    cluster.now_s += 3
    assert await cluster.sample(other) == [other.position]


async def test_a_timestamp_stays_for_a_while_before_another_is_sampled() -> None:
    cluster = PlayedCluster()
    await cluster.sample(at(5))
    cluster.now_s += 2.9
    assert await cluster.sample(at(9), at(9, partition=1)) == [9]
    assert cluster.sampled == RecordTime(5, T + 5)
    cluster.now_s += 0.1
    assert await cluster.sample(at(9)) == [9]
    assert cluster.sampled == RecordTime(9, T + 9)


async def test_while_one_position_is_read_another_one_waits_its_turn() -> None:
    cluster = PlayedCluster()
    cluster.sampler.request(at(5))
    await asyncio.sleep(0)
    assert await cluster.sample(at(9)) == [5], "its result is shown for a while"
    cluster.now_s += 3
    assert await cluster.sample(at(9)) == [9]


async def test_the_newest_pending_position_of_a_partition_is_read() -> None:
    cluster = PlayedCluster()
    assert await cluster.sample(at(5), at(6), at(7)) == [7]
    assert cluster.sampled == RecordTime(7, T + 7)


async def test_what_failed_is_read_at_the_next_occasion_and_keeps_nothing_else_waiting() -> None:
    cluster = PlayedCluster()
    cluster.pool.away = True
    assert await cluster.sample(at(5), at(5, partition=1)) == []
    assert cluster.counts.failed == 2
    cluster.pool.away = False
    assert await cluster.sample(at(9)) == [9]
    cluster.now_s += 3
    assert await cluster.sample(at(5)) == [5]


async def test_where_there_is_no_record_yet_it_is_read_again_after_a_minute() -> None:
    cluster = PlayedCluster()
    cluster.pool.error_code = 1
    assert await cluster.sample(at(5)) == [5]
    assert await cluster.sample(at(5)) == []
    assert await cluster.sample(at(6)) == [6], "another position does not wait"
    cluster.now_s += 60
    assert await cluster.sample(at(5)) == [5]
    assert cluster.counts.out_of_range == 3


async def test_a_marker_after_markers_is_known_with_them() -> None:
    cluster = PlayedCluster()
    cluster.pool.has_markers = True
    ranges = cluster.offsets["orders"].without_records["read_uncommitted"]
    # The second search begins where the first one ended.
    for position, known in [(5, NoRecords(5, 6, 1_000.0)), (6, NoRecords(5, 7, 1_000.0))]:
        await cluster.sample(at(position))
        assert ranges[0] == known
        cluster.now_s += 10
    await cluster.sample(at(50))
    assert ranges[0] == NoRecords(50, 51, 1_020.0)


async def test_a_partition_without_a_leader_is_left_out() -> None:
    cluster = PlayedCluster()
    assert await cluster.sample(at(5, partition=2)) == []


async def test_a_topic_created_anew_gets_no_timestamp_of_the_old_one() -> None:
    cluster = PlayedCluster()
    assert await cluster.sample(at(5, topic_id="old")) == [5]
    assert cluster.sampled is None


async def test_a_topic_that_may_not_be_read_is_left_alone_for_a_while_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = PlayedCluster()
    cluster.pool.error_code = FORBIDDEN
    with caplog.at_level(logging.WARNING):
        assert await cluster.sample(at(5), at(5, partition=1)) == [5, 5]
        assert cluster.counts.forbidden == 1, "of the topic"
        cluster.now_s += FORBIDDEN_S - 1
        assert await cluster.sample(at(6)) == []
        cluster.now_s += 1
        assert await cluster.sample(at(6)) == [6]
        assert cluster.counts.forbidden == 2
    (line,) = logged(caplog, logging.WARNING)
    assert line.startswith("Kafka cluster east: no right to read topic orders")
    cluster.pool.error_code = 0
    cluster.now_s += FORBIDDEN_S
    assert await cluster.sample(at(6)) == [6]
    assert cluster.sampled == RecordTime(6, T + 6)


async def test_no_more_is_read_than_the_budget_allows() -> None:
    cluster = PlayedCluster(ByteBudget(1_000.0, bytes_per_s=1_000, burst_bytes=1))
    assert await cluster.sample(at(5)) == [5]
    second = asyncio.create_task(cluster.sample(at(9, partition=1)))
    await asyncio.sleep(0.2)
    assert cluster.pool.offsets == [], "it waits for what the first has taken"
    cluster.now_s += 1
    assert await second == [9]
