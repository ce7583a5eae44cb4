"""The service on a real broker: the age of the data, its past, and retention."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from sparklag_schemas import (
    GroupSettings,
    LagEvent,
    Settings,
    Thresholds,
    TimeLagMethod,
    TimeLagSettings,
)
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, settings_for
from tests.service.groups import committing

pytestmark = pytest.mark.kafka

REFRESH_S = 0.2
SLOW_MACHINE_S = 15.0


def quick(kafka: LocalKafka, **fields: Any) -> Settings:
    """A service that looks often, and reads nobody's records."""
    return settings_for(
        kafka.bootstrap_servers,
        refresh_interval_s=REFRESH_S,
        publish_interval_s=REFRESH_S,
        earliest_interval_s=REFRESH_S,
        **{"time_lag": TimeLagSettings(sample=False), **fields},
    )


class Query:
    def __init__(self, service: RunningService, topic: str) -> None:
        self.id = str(uuid.uuid4())
        self.service = service
        self._topic = topic
        self._batch_id = 0

    def complete_batch(self, *offsets: int) -> None:
        self._batch_id += 1
        fields = {"query_id": self.id, "batch_id": self._batch_id, "processed_at": epoch_ms()}
        self.service.observe(seen(self._topic, dict(enumerate(offsets)), **fields))


def has_left(records: int) -> Callable[[LagEvent], bool]:
    return lambda event: event.min_headroom_records == records


def is_at(offset: int) -> Callable[[LagEvent], bool]:
    return lambda event: event.topics[0].partitions[0].processed_offset == offset


async def test_a_record_that_waits_is_as_old_as_it_is(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2)
    async with running(quick(kafka), second_client) as service:
        query = Query(service, topic_name)
        query.complete_batch(0, 0)
        await service.shows(query.id, lambda e: e.max_time_lag_s == 0, "no lag, and no age")
        sent_s = time.time()
        second_client.produce(topic_name, [b"x"] * 10, partition=0)
        acknowledged_s = time.time()
        await service.shows(query.id, lambda e: (e.max_time_lag_s or 0) > 1, "it is some time old")
        second_client.produce(topic_name, [b"x"] * 10, partition=1)
        event = await service.shows(query.id, lambda e: e.total_lag == 20, "all that came")
        first, second = event.topics[0].partitions
        assert {first.time_lag_method, second.time_lag_method} == {"interpolated"}
        assert first.time_lag_s == event.max_time_lag_s
        assert second.time_lag_s is not None
        assert first.time_lag_s is not None
        assert second.time_lag_s < first.time_lag_s
        came_s = event.measured_at / 1000 - first.time_lag_s
        assert sent_s - SLOW_MACHINE_S < came_s < acknowledged_s + SLOW_MACHINE_S
        query.complete_batch(10, 0)
        event = await service.shows(query.id, lambda e: e.total_lag == 10, "the first is read")
        assert event.topics[0].partitions[0].time_lag_s == 0
        assert event.max_time_lag_s == event.topics[0].partitions[1].time_lag_s


@pytest.mark.parametrize(("waits_s", "method"), [(600, "interpolated"), (200_000, "floor")])
async def test_a_backlog_from_before_the_start_is_looked_up_in_kafka_by_time(
    kafka: LocalKafka, second_client: SecondClient, topic: str, waits_s: int, method: TimeLagMethod
) -> None:
    """A day back; what is older is a day old at least."""
    second_client.produce(topic, [b"x"] * 10, at_ms=epoch_ms() - waits_s * 1_000)
    second_client.produce(topic, [b"x"] * 10)
    async with running(quick(kafka), second_client) as service:
        query = Query(service, topic)
        query.complete_batch(4)
        event = await service.shows(
            query.id, lambda e: (e.max_time_lag_s or 0) > 500, "it was looked up"
        )
        assert event.topics[0].partitions[0].time_lag_method == method
        reported_s, true_s = event.max_time_lag_s or 0, min(waits_s, 86_400)
        assert 0.94 * true_s < reported_s < 1.06 * true_s + SLOW_MACHINE_S * 10


async def test_retention_that_comes_closer_is_reported_and_what_it_took_too(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 100)
    async with running(quick(kafka), second_client) as service:
        query = Query(service, topic)
        query.complete_batch(80)
        event = await service.shows(query.id, lambda e: e.min_headroom_records == 80, "headroom")
        assert event.min_headroom_s is None
        assert event.loss_expected_at is None
        for start in (10, 20, 30):
            second_client.delete_records(topic, {0: start})
            await service.shows(query.id, has_left(80 - start), "less")
        event = await service.shows(query.id, lambda e: e.status == "WARN", "the loss is predicted")
        assert event.min_headroom_s is not None
        assert event.loss_expected_at is not None
        assert event.loss_expected_at > event.measured_at
        assert "retention deletes unread records in" in str(event.reason)
        second_client.delete_records(topic, {0: 95})
        event = await service.shows(query.id, lambda e: e.status == "DATA_LOSS", "they are gone")
        assert event.lost_records == 15


async def test_a_group_is_judged_by_burrows_rules_where_its_cluster_asks_for_them(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    group = f"group-of-{topic}"
    settings = quick(
        kafka,
        groups=GroupSettings(
            allow=[group], evaluator="burrow", interval_s=REFRESH_S, find_interval_s=REFRESH_S
        ),
        thresholds={group: Thresholds(window=3)},
    )
    query_id = f"group:default:{group}"
    async with (
        running(settings, second_client) as service,
        committing(kafka.bootstrap_servers, group) as commit,
    ):
        for ends in range(10, 60, 10):
            second_client.produce(topic, [b"x"] * 10)
            await commit({topic: {0: ends - 5}})
            await service.shows(query_id, is_at(ends - 5), "the commit is observed")
        # Ours warn only of a lag that grows.
        event = await service.shows(query_id, lambda e: e.status == "WARN", "it is warned of")
        assert "lag has not fallen in 3 commits" in str(event.reason)
