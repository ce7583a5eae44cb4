"""The main job on the oldest broker that is supported, and a group's lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import Topics, answer, lag_by_partition, service
from tests.second_client import SecondClient
from tests.test_end_to_end import (
    # Collected here too: with this module's broker.
    test_lag_agrees_while_the_query_runs_after_it_was_killed_and_after_it_restarts,  # noqa: F401
)
from tests.waiting import wait_for
from tests.zookeeper_kafka import ZooKeeperKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperKafka]:
    with ZooKeeperKafka(tmp_path_factory.mktemp("zookeeper-kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def second_client(kafka: ZooKeeperKafka) -> SecondClient:
    return SecondClient(kafka.bootstrap_servers)


@pytest.fixture
def topics(second_client: SecondClient) -> Topics:
    return Topics(second_client)


def test_a_groups_lag_is_what_it_has_not_committed(
    kafka: ZooKeeperKafka, second_client: SecondClient, topics: Topics, tmp_path: Path
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
