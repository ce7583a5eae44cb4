"""When a query is checked for a lookup by time, without sampling."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sparklag_schemas import TimeLagSettings
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets, Topic, TopicOffsets
from sparklag_service.enrichment.record_times.record_times import RecordTimes
from tests.service.states import said, source, state


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
    query = state(source({"orders": {0: 5}}))

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
