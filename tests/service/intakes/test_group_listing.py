"""The consumer groups of a cluster, and their coordinators."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest
from aiokafka.protocol.admin import ListGroupsRequest, ListGroupsResponse_v2

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.groups import CommittedGroup
from sparklag_schemas.messages.bounds import MAX_NAME
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_service.intakes.group_commits import ClusterFailures
from sparklag_service.intakes.group_listing import (
    CommitPartition,
    GroupFinder,
    GroupListing,
    Responses,
    commit_partition,
)
from tests.logged import logged

INTERVAL_S = 5.0


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("", 0),
        ("hello", 99_162_322),
        ("Hello, World!", 1_498_789_909),
        ("polygenelubricants", -(2**31)),
        ("orders-readers", None),
        ("é", 233),
        ("🛒", 31 * 0xD83D + 0xDED2),
    ],
)
def test_the_partition_is_that_of_javas_hash(group: str, code: int | None) -> None:
    if code is not None:
        assert commit_partition(group, 50) == (0 if code == -(2**31) else abs(code) % 50)
    assert 0 <= commit_partition(group, 50) < 50


def responses(number: int) -> Responses:
    return {number: {"group": CommittedGroup(0, {})}}  # type: ignore[dict-item]  # any key


def read(partition: CommitPartition, number: int, at_s: float) -> CommitPartition:
    partition.take_responses(responses(number), at_s, INTERVAL_S)
    return partition


def test_it_is_read_at_once_and_then_at_the_interval() -> None:
    partition = CommitPartition(["group"])
    assert partition.due_s <= 0
    partition.take_end(7)
    assert read(partition, 1, 100.0).due_s == 105.0
    partition.take_end(7)
    assert partition.due_s == 105.0


def test_where_its_log_has_grown_it_is_read_at_once() -> None:
    partition = CommitPartition(["group"])
    partition.take_end(7)
    read(partition, 1, 100.0)
    partition.take_end(8)
    assert partition.due_s <= 100.0
    assert read(partition, 2, 101.0).due_s == 106.0


def test_a_commit_that_is_not_answered_yet_is_read_once_more() -> None:
    partition = CommitPartition(["group"])
    partition.take_end(7)
    read(partition, 1, 100.0)
    partition.take_end(8)
    assert read(partition, 1, 101.0).due_s == 101.0
    partition.take_end(8)
    assert read(partition, 1, 101.5).due_s == 106.5


def test_without_a_right_to_its_ends_one_that_changes_is_read_more_often() -> None:
    partition = CommitPartition(["group"])
    partition.take_end(None)
    assert read(partition, 1, 100.0).due_s == 101.0
    assert read(partition, 2, 101.0).due_s == 102.0
    assert read(partition, 2, 102.0).due_s == 107.0


def test_another_group_in_it_is_read_at_once() -> None:
    partition = read(CommitPartition(["group"]), 1, 100.0)
    partition.take_groups(["group"])
    assert partition.due_s > 100.0
    partition.take_groups(["group", "other"])
    assert partition.due_s <= 0


class OneBroker:
    """A cluster whose only broker, 1, lists these groups by their protocol types."""

    def __init__(self, groups: dict[str, str]) -> None:
        self.brokers = {1: ("broker", 9092)}
        self._groups = groups

    async def refresh(self, topics: Sequence[str]) -> tuple[()]:
        return ()

    def connection(self, node_id: int) -> OneBroker:
        return self

    async def send(self, request: Any) -> Any:
        assert isinstance(request, ListGroupsRequest)
        return ListGroupsResponse_v2(0, 0, list(self._groups.items()))


def finder_of(groups: dict[str, str], failures: ClusterFailures) -> GroupFinder:
    brokers = cast(BrokerPool, OneBroker(groups))
    return GroupFinder(NamePatterns([".*"], []), brokers, failures, lambda: (), lambda: None)


async def test_groups_of_every_kind_are_listed() -> None:
    kinds = {"a": "consumer", "b": "", "c": "share", "d": "streams"}
    finder = finder_of(kinds, ClusterFailures("east"))
    assert await finder.find()
    assert {name: g.protocol_type for name, g in finder.listing.groups.items()} == kinds


async def test_groups_with_names_that_are_too_long_are_left_out_and_counted() -> None:
    failures = ClusterFailures("east")
    finder = finder_of({"a": "consumer", "b" * MAX_NAME: "consumer"}, failures)
    assert await finder.find()
    assert list(finder.listing.groups) == ["a"]
    assert list(failures.reasons.values()) == [
        f"Kafka cluster east: 1 consumer groups with names of over {MAX_NAME - 300} characters"
        " are left out"
    ]


def test_a_group_is_gone_only_when_no_broker_lists_it_and_its_coordinator_has_nothing() -> None:
    listing = GroupListing()
    listing.begin_round()
    assert listing.add("g", 1)
    assert not listing.add("g", 1)
    assert listing.end_round() == []
    # Empty all at once: nobody knows before the lists are read again.
    assert listing.exists_without_offsets("g") is None
    # Its coordinator is away, and not every broker has answered.
    listing.begin_round()
    assert listing.exists_without_offsets("g") is None
    # It has moved, and is with neither for a moment.
    listing.begin_round()
    assert listing.end_round() == ["g"]
    listing.set_coordinator("g", 2)
    assert listing.groups["g"].coordinator == 2
    listing.begin_round()
    assert listing.add("g", 3)
    listing.has_offsets("g")
    assert listing.end_round() == []
    assert listing.exists_without_offsets("g") is None
    # It is listed, and really has committed nothing.
    listing.begin_round()
    listing.add("g", 3)
    assert listing.exists_without_offsets("g") is True
    # Neither is it listed.
    listing.begin_round()
    assert listing.end_round(["h"]) == ["g", "h"]
    assert listing.exists_without_offsets("g") is False


def test_a_failure_is_logged_once_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failures = ClusterFailures("east")
    for _ in range(3):
        failures.add(failures.broker(2), "broker 2 did not answer within 5 s")
        failures.add_groups(dict.fromkeys("abcde", "no right to describe it"))
    assert logged(caplog) == [
        "Kafka cluster east: broker 2 did not answer within 5 s",
        "Kafka cluster east: group a, b, c and 2 more: no right to describe it",
    ]
    assert failures.reasons["groups of east: group d"] == (
        "Kafka cluster east: group d: no right to describe it"
    )
    failures.recover(failures.broker(2))
    assert logged(caplog)[2:] == ["groups of east: broker 2 can be read again"]
