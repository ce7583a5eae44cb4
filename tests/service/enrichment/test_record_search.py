"""The search of a partition for its first unprocessed record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.logs import FetchedPartition
from sparklag_schemas import IsolationLevel, TimeLagSettings
from sparklag_service.enrichment.cluster_offsets import (
    ClusterOffsets,
    NoRecords,
    Topic,
    TopicOffsets,
)
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.offset_table import ReadPlan
from sparklag_service.enrichment.record_search import (
    FIRST_BYTES,
    MAX_BYTES,
    ByteBudget,
    Lagging,
    Postponed,
    Search,
    is_older_than_measurements,
    lagging_partitions,
)
from sparklag_service.enrichment.record_times import RecordTimes
from sparklag_service.enrichment.watched_cluster import WatchedQuery
from sparklag_service.tracking.query_state import TrackedSource
from tests.kafka.batches import TRANSACTIONAL, batch, last_offset, marker
from tests.service.asking import source
from tests.service.states import offsets_at, state


def reading(positions: dict[int, int], **fields: Any) -> TrackedSource:
    return source(processed={"orders": positions}, **fields)


def lagging(source: TrackedSource, offsets: ClusterOffsets) -> dict[int, int]:
    result = lagging_partitions(source, offsets)
    return {one.partition.partition: one.position for one in result if one is not None}


def test_those_with_unprocessed_records_are() -> None:
    offsets = offsets_at({0: 10, 1: 10, 2: 10, 3: 4})["default"]
    assert lagging(reading({0: 9, 1: 10, 2: 0, 3: 5}), offsets) == {0: 9, 2: 0}


def test_one_before_the_logs_start_is_from_there_on() -> None:
    offsets = offsets_at({0: 10, 1: 10, 2: 10}, earliest={0: 5, 1: 5, 2: 10})["default"]
    assert lagging(reading({0: 4, 1: 5, 2: 4}), offsets) == {0: 5, 1: 5}


def test_one_without_records_to_its_log_end_is_not() -> None:
    offsets = offsets_at({0: 10, 1: 10, 2: 10})["default"]
    offsets["orders"].without_records["read_uncommitted"] = {
        0: NoRecords(8, 10, 0.0),
        1: NoRecords(8, 10, 0.0),
        2: NoRecords(8, 9, 0.0),
    }
    assert lagging(reading({0: 8, 1: 7, 2: 8}), offsets) == {1: 7, 2: 9}
    committed = reading({0: 8}, isolation_level="read_committed")
    offsets["orders"].latest["read_committed"] = offsets["orders"].latest["read_uncommitted"]
    assert lagging(committed, offsets) == {0: 8}, "another level has other records"


def test_one_that_was_added_is_from_its_first_record_on() -> None:
    offsets = offsets_at({0: 10, 1: 10, 2: 10}, earliest={1: 3})["default"]
    assert lagging(reading({0: 9}), offsets) == {0: 9, 1: 3}
    unstarted = source(topics=["orders"])
    assert lagging(unstarted, offsets) == {}, "no batch has completed yet"


def test_what_is_not_known_is_not() -> None:
    assert lagging(reading({0: 1}), {}) == {}
    offsets = offsets_at({0: 10})["default"]
    assert lagging(reading({0: 1, 7: 1}), offsets) == {0: 1}
    assert lagging(reading({0: 1}, isolation_level="read_committed"), offsets) == {}
    offsets["orders"].description = Topic(missing="gone", gone=True)
    assert lagging(reading({0: 1}), offsets) == {}


def test_a_record_is_older_where_the_topic_was_not_measured_before_it_came() -> None:
    offsets = offsets_at({0: 10})["default"]
    (behind,) = lagging_partitions(reading({0: 5}), offsets)
    assert behind is not None
    assert is_older_than_measurements(behind, offsets), "the topic was not measured at all"
    times = offsets["orders"].log_ends["read_uncommitted"]
    times.append(90.0, [LatestOffset(8, 90.0)], 1.0)
    assert is_older_than_measurements(behind, offsets)
    times.insert(80.0, {0: 5})
    assert not is_older_than_measurements(behind, offsets)


@dataclass
class FakeCluster:
    offsets: ClusterOffsets = field(default_factory=dict)
    alias: str = "default"
    pool: Any = None
    queries: dict[str, WatchedQuery] = field(
        default_factory=lambda: {state().query_id: WatchedQuery(ReadPlan(state(), epoch=0))}
    )

    def leader(self, topic: str, partition: int) -> None:
        """There is none."""


async def test_a_query_is_checked_until_its_topics_were_measured() -> None:
    offsets: dict[str, TopicOffsets] = {}
    cluster: Any = FakeCluster(offsets)
    settings = TimeLagSettings(sample=False, sample_interval_s=0.001)
    record_times = RecordTimes(cluster, settings)
    query = state()

    async def is_checked_again() -> bool:
        await asyncio.sleep(0.002)  # the interval
        record_times.offer(query)
        if record_times._due.empty():
            return False
        await record_times._check_next()
        return True

    assert await is_checked_again()
    assert await is_checked_again(), "nothing is known of its topic"
    offsets["orders"] = TopicOffsets(Topic("id-a", (0,)))
    assert await is_checked_again()
    assert await is_checked_again(), "no offset of it was read"
    offsets.update(offsets_at({0: 5})["default"])
    assert await is_checked_again()
    assert not await is_checked_again(), "it does not lag"


async def test_a_query_of_a_missing_topic_is_checked_once() -> None:
    cluster: Any = FakeCluster({"orders": TopicOffsets(Topic(missing="gone", gone=True))})
    record_times = RecordTimes(cluster, TimeLagSettings(sample=False))
    record_times.offer(state())
    await record_times._check_next()
    cluster.queries[state().query_id].next_s = 0.0
    record_times.offer(state())
    assert record_times._due.empty()


def test_a_budget_that_is_spent_is_there_again_at_its_rate() -> None:
    budget = ByteBudget(0.0, bytes_per_s=100, burst_bytes=300)
    assert budget.wait_s(0.0) == 0
    budget.spend(300, 0.0)
    assert budget.wait_s(0.0) == 0
    budget.spend(500, 0.0)
    assert budget.wait_s(0.0) == 5.0
    assert budget.wait_s(4.0) == 1.0
    assert budget.wait_s(5.0) == 0
    budget.spend(200, 1_000.0)
    assert budget.wait_s(1_000.0) == 0, "it saves, and no more than its burst"
    budget.spend(200, 1_000.0)
    assert budget.wait_s(1_000.0) == 1.0


def test_what_is_postponed_is_so_until_its_time() -> None:
    postponed = Postponed()
    assert not postponed.contains("orders", 10.0)
    postponed.add("orders", 3_600.0)
    postponed.add("orders", 70.0)
    postponed.tidy(60.0)
    assert postponed.contains("orders", 69.0)
    assert not postponed.contains("orders", 70.0)
    assert not postponed.contains("others", 69.0)
    postponed.tidy(70.0)
    assert not postponed.contains("orders", 10.0)


def test_only_so_many_are_remembered_the_newest_of_them() -> None:
    postponed = Postponed(max_keys=8)
    for number in range(100):
        postponed.add(number, 70.0)
    postponed.add(92, 80.0)
    assert [number for number in range(100) if postponed.contains(number, 20.0)] == [
        *range(92, 100)
    ]
    postponed.add(100, 70.0)
    assert postponed.contains(92, 20.0), "it was renewed"
    assert not postponed.contains(93, 20.0)


ORDERS = TopicPartition("orders", 0)
Aborted = tuple[int, int]
T = 1_700_000_000_000


def search_at(position: int, level: IsolationLevel, size: int = FIRST_BYTES) -> Search:
    return Search(Lagging(ORDERS, level, position, LatestOffset(100, 0.0), None), size)


def searched(
    log: Iterable[bytes],
    position: int,
    *,
    aborted: Iterable[Aborted] = (),
    committed: bool = False,
    size: int = FIRST_BYTES,
    end: int = 100,
) -> Search:
    """Searches a log of these batches, of which each broker's rule of size decides the answer."""
    search = search_at(position, "read_committed" if committed else "read_uncommitted", size)
    batches = list(log)
    rounds = 0
    while search.outcome is None:
        rounds += 1
        assert rounds < 50
        ahead = [one for one in batches if last_offset(one) >= search.offset]
        fits = bool(ahead) and len(ahead[0]) <= search.size
        records = b"".join(ahead)[: search.size] if fits else b""
        search.take(FetchedPartition(ORDERS, 0, end, end, list(aborted), records))
    return search


def test_a_batch_that_is_too_large_is_given_up() -> None:
    search = searched([batch(0, [T + 10], value=b"x" * MAX_BYTES)], 0)
    assert search.outcome == "unusable"
    assert search.reason == f"a batch of more than {MAX_BYTES} bytes"


def test_what_nobody_reads_is_passed_over_step_by_step() -> None:
    log = []
    for number in range(20):
        some = batch(2 * number, [T + 1], producer_id=5, flags=TRANSACTIONAL, value=b"x" * 900)
        log += [some, marker(2 * number + 1, 5, commits=False)]
    log.append(batch(40, [T + 77]))
    aborted = [(5, 2 * number) for number in range(20)]
    search = searched(log, 0, aborted=aborted, committed=True)
    assert (search.outcome, search.timestamp_ms) == ("sampled", T + 77)
    assert searched(log, 3).timestamp_ms == T + 1, "who reads uncommitted"


def test_more_than_it_takes_is_given_up_with_how_far_it_came() -> None:
    log = [marker(number, 5, commits=True) for number in range(90_000)]
    search = searched(log, 0, size=100, end=100_000)
    assert search.outcome == "unusable"
    assert search.reason.startswith("no record up to offset ")


def test_where_there_is_only_a_marker_there_is_no_record_yet() -> None:
    assert searched([marker(4, 5, commits=True)], 4, end=5).outcome == "nothing_there"
    assert searched([], 5, end=5).outcome == "nothing_there"
    aborted = batch(4, [1], producer_id=5, flags=TRANSACTIONAL)
    received = searched([aborted], 4, aborted=[(5, 4)], committed=True, end=5)
    assert received.outcome == "nothing_there"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(1, "out_of_range"), (29, "forbidden"), (6, "failed"), (3, "failed"), (-1, "failed")],
)
def test_what_a_leader_refuses_ends_it(code: int, outcome: str) -> None:
    search = search_at(5, "read_uncommitted")
    search.take(FetchedPartition(ORDERS, code, -1, -1, [], b""))
    assert search.outcome == outcome
    assert search.reason.startswith("the leader answers ")


def test_a_record_without_a_time_is_of_no_use() -> None:
    search = searched([batch(0, [-1])], 0)
    assert (search.outcome, search.reason) == ("unusable", "its timestamp is -1")
