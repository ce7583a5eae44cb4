"""The main job on the oldest broker that is supported and the newest, and a group's lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lanes_page import KAFKA
from tests.end_to_end import Topics, answer, lag_by_partition, service
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.test_end_to_end import (
    test_lag_agrees_while_the_query_runs_after_it_was_killed_and_after_it_restarts as assert_agrees,
)
from tests.waiting import wait_for
from tests.zookeeper_kafka import OLDEST_VERSION, ZooKeeperKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
Broker = LocalKafka | ZooKeeperKafka


@pytest.fixture(scope="module", params=KAFKA)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("kafka")
    oldest = request.param == OLDEST_VERSION
    with ZooKeeperKafka(folder) if oldest else LocalKafka(directory=folder) as broker:
        yield broker


@pytest.fixture(scope="module")
def second_client(kafka: Broker) -> SecondClient:
    return SecondClient(kafka.bootstrap_servers)


@pytest.mark.feature("Kafka", "lag of a query")
def test_a_querys_lag_agrees(kafka: LocalKafka, topics: Topics, tmp_path: Path) -> None:
    assert_agrees(kafka, topics, tmp_path)


@pytest.mark.feature("Kafka", "lag of a consumer group")
def test_a_groups_lag_is_what_it_has_not_committed(
    kafka: Broker, second_client: SecondClient, topics: Topics, tmp_path: Path
) -> None:
    topics.order(70)
    ends = topics.ends()
    second_client.commit(
        "billing", {topics.orders: {number: end // 2 for number, end in ends.items()}}
    )
    topics.environment["SPARKLAG_GROUPS__ALLOW"] = "billing"
    expected = {number: end - end // 2 for number, end in ends.items()}

    def is_measured() -> bool:
        event = answer(f"{url}/lag/billing")
        return event is not None and lag_by_partition(event) == expected

    with service(topics, kafka, tmp_path / "service.log") as url:
        wait_for(is_measured, "the group's lag is what it has not committed")
