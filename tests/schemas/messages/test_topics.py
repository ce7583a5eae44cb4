"""The topics: settings that lose data are reported, keys have the partitions of Java's client."""

from __future__ import annotations

import pytest

from sparklag_schemas.messages.topics import (
    LagPartitions,
    TopicSpec,
    lag_topic,
    offsets_topic,
    partition_of,
)
from tests.logged import logged

OFFSETS = offsets_topic("processed-offsets", 12, None)
LAG = lag_topic("consumer-lag", 12, None)


@pytest.mark.parametrize("spec", [OFFSETS, LAG])
def test_a_topic_as_it_is_created_has_no_problems(spec: TopicSpec) -> None:
    assert spec.problems(spec.config) == []


@pytest.mark.parametrize(
    ("spec", "config", "setting"),
    [
        (OFFSETS, {"cleanup.policy": "compact"}, "cleanup.policy=compact"),
        (OFFSETS, {"retention.ms": "1000"}, "retention.ms=1000"),
        (LAG, {"retention.ms": "1000"}, "retention.ms=1000"),
        (LAG, {"max.message.bytes": "1000"}, "max.message.bytes=1000"),
    ],
)
def test_lossy_settings_are_named(spec: TopicSpec, config: dict[str, str], setting: str) -> None:
    (problem,) = spec.problems({**spec.config, **config})
    assert spec.name in problem
    assert setting in problem
    assert "set it to" in problem


def test_unlimited_retention_is_no_problem() -> None:
    assert OFFSETS.problems({"cleanup.policy": "delete", "retention.ms": "-1"}) == []


@pytest.mark.parametrize(
    ("key", "partition"),
    # org.apache.kafka.common.utils.Utils.murmur2, as its own test has them, modulo 100.
    [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)],
)
def test_a_key_has_the_partition_of_javas_client(key: str, partition: int) -> None:
    assert partition_of(key, 100) == (partition & 0x7FFFFFFF) % 100


def test_queries_have_the_partition_of_clients_if_none_has_its_own() -> None:
    assert LagPartitions([]).choose("id", "orders", 12) == partition_of("id", 12)


def test_named_queries_have_the_last_partitions_and_the_others_share_the_rest() -> None:
    partitions = LagPartitions(["orders", "id-2"])
    placed = {
        (query_id, query): partitions.choose(query_id, query, 12)
        for query_id, query in [("id-1", "orders"), ("id-2", None), ("id-3", "other")]
    }
    assert placed == {
        ("id-1", "orders"): 10,
        ("id-2", None): 11,
        ("id-3", "other"): partition_of("id-3", 10),
    }


def test_a_topic_with_few_partitions_is_shared_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    partitions = LagPartitions(["orders", "returns"])
    for query in ("orders", "other"):
        query_id = f"id of {query}"
        assert partitions.choose(query_id, query, 2) == partition_of(query_id, 2)
    (line,) = logged(caplog)
    assert "own_partitions names 2 queries, and the topic has 2 partitions" in line
