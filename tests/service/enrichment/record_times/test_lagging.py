"""Which partitions of a query are worth asking about, and when a query is checked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sparklag_schemas import TimeLagSettings
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets, Topic, TopicOffsets
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.record_times.lagging import (
    is_older_than_measurements,
    lagging_partitions,
)
from sparklag_service.enrichment.record_times.record_times import RecordTimes
from sparklag_service.tracking.query_state import SourceState
from tests.service.asking import source
from tests.service.states import said, state


def reading(positions: dict[int, int], **fields: Any) -> SourceState:
    return source(processed={"orders": positions}, **fields)


def lagging(source: SourceState, offsets: ClusterOffsets) -> dict[int, int]:
    """Partition and position of those that lag."""
    found = lagging_partitions(source, offsets)
    return {one.partition.partition: one.position for one in found if one is not None}


def test_those_with_unprocessed_records_are() -> None:
    offsets = said({0: 10, 1: 10, 2: 10, 3: 4})["default"]
    assert lagging(reading({0: 9, 1: 10, 2: 0, 3: 5}), offsets) == {0: 9, 2: 0}


def test_one_before_the_logs_start_is_not() -> None:
    offsets = said({0: 10, 1: 10}, earliest={0: 5, 1: 5})["default"]
    assert lagging(reading({0: 4, 1: 5}), offsets) == {1: 5}


def test_one_that_was_added_is_from_its_first_record_on() -> None:
    offsets = said({0: 10, 1: 10, 2: 10}, earliest={1: 3})["default"]
    assert lagging(reading({0: 9}), offsets) == {0: 9, 1: 3}
    unstarted = source(topics=("orders",))
    assert lagging(unstarted, offsets) == {}, "no batch has completed yet"


def test_what_is_not_known_is_not() -> None:
    assert lagging(reading({0: 1}), {}) == {}
    offsets = said({0: 10})["default"]
    assert lagging(reading({0: 1, 7: 1}), offsets) == {0: 1}
    assert lagging(reading({0: 1}, isolation_level="read_committed"), offsets) == {}
    offsets["orders"].description = Topic(missing="gone", gone=True)
    assert lagging(reading({0: 1}), offsets) == {}


def test_a_record_is_older_where_the_topic_was_not_measured_before_it_came() -> None:
    offsets = said({0: 10})["default"]
    (behind,) = lagging_partitions(reading({0: 5}), offsets)
    assert behind is not None
    assert is_older_than_measurements(behind, offsets), "the topic was not measured at all"
    times = offsets["orders"].log_ends_of("read_uncommitted")
    times.append(90.0, [LatestOffset(8, 90.0)], 1.0)
    assert is_older_than_measurements(behind, offsets)
    times.insert(80.0, {0: 5})
    assert not is_older_than_measurements(behind, offsets)


@dataclass
class FakeCluster:
    """Offsets without brokers."""

    offsets: ClusterOffsets = field(default_factory=dict)
    pool: Any = None

    def leader(self, topic: str, partition: int) -> None:
        """There is none."""


async def test_a_query_is_checked_until_its_topics_were_measured() -> None:
    offsets: dict[str, TopicOffsets] = {}
    cluster = FakeCluster(offsets)
    settings = TimeLagSettings(sample=False, sample_interval_s=0.001)
    record_times = RecordTimes("default", cluster, settings)
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
    offsets.update(said({0: 5})["default"])
    assert await is_checked_again()
    assert not await is_checked_again(), "it does not lag"


async def test_a_query_of_a_missing_topic_is_checked_once() -> None:
    cluster = FakeCluster({"orders": TopicOffsets(Topic(missing="gone", gone=True))})
    record_times = RecordTimes("default", cluster, TimeLagSettings(sample=False))
    record_times.offer(state())
    await record_times._check_next()
    record_times._queries[state().query_id].next_s = 0.0
    record_times.offer(state())
    assert record_times._due.empty()
