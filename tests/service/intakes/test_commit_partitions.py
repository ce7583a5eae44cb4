"""Which partition a group commits to, and when its offsets are to be read again."""

from __future__ import annotations

import pytest

from sparklag_kafka.protocol.offset_fetch import CommittedGroup
from sparklag_service.intakes.group_offsets.commit_partitions import (
    CommitPartition,
    Responses,
    commit_partition,
)

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
    """Which differ by their number."""
    return {number: {"group": CommittedGroup(0, {})}}  # type: ignore[dict-item]


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
