"""Consumer groups by their members: which partitions these read, and how often they commit."""

from __future__ import annotations

import pytest

from sparklag_schemas import Thresholds
from sparklag_schemas.messages.observation import ConsumerGroup
from tests.service.evaluation.test_burrow import Group
from tests.service.states import evaluated, source, state

READ = ConsumerGroup(state="Stable", members=1, unassigned={})
LEFT = ConsumerGroup(state="Stable", members=1, unassigned={"orders": [1]})
EMPTY = ConsumerGroup(state="Empty", members=0, unassigned={})


def commit_first(described: ConsumerGroup, *, burrow: bool = False) -> Group:
    """A group that no longer commits partition 1, at a hand-over."""
    group = Group(partitions=2, burrow=burrow, group=described)
    group.commit_regularly(2)
    for _ in range(80):
        group.pass_time(5)
        group.commit(group.ends[0], group.at[1])
    group.change_hands()
    group.pass_time(5)
    return group


@pytest.mark.parametrize("burrow", [False, True])
def test_a_partition_that_no_member_reads_counts_as_lag_and_raises_no_alarm(burrow: bool) -> None:
    group = commit_first(LEFT, burrow=burrow)
    group.starts = [0, 5_000]
    group.pass_time(5)
    assert {event.status for event in group.events[2:]} <= {"OK", "UNKNOWN"}
    assert group.one(1).reason == "no member reads this partition"
    assert (group.event.total_lag or 0) > (group.one(1).unread or 0) > 5_000
    assert group.event.catch_up_reason == "no member reads all of it"
    assert group.event.lost_records == 0
    assert (group.event.max_time_lag_s or 0) < 30
    # A member reads it again.
    group.say("group", group=READ)
    assert (group.one(1).status, group.status) == ("DATA_LOSS", "DATA_LOSS")


@pytest.mark.parametrize(("before", "status"), [(LEFT, "OK"), (READ, "STALL")])
def test_a_rebalance_raises_and_ends_no_alarm(before: ConsumerGroup, status: str) -> None:
    group = commit_first(before)
    assert group.one(1).status == status
    group.say("refresh", group=ConsumerGroup(state="PreparingRebalance", members=2))
    assert group.one(1).status == status


def read_once(described: ConsumerGroup, *, burrow: bool = False) -> Group:
    """A group with lag that has not committed since its first read."""
    group = Group(group=described, burrow=burrow, thresholds=Thresholds(stall_after_s=60))
    group.ends = [10_000]
    group.say("group")
    return group


@pytest.mark.parametrize(
    ("group", "after_s", "status"), [(READ, 600, "STALL"), (EMPTY, 60, "STOP")]
)
def test_a_group_with_members_may_commit_late(
    group: ConsumerGroup, after_s: int, status: str
) -> None:
    once = read_once(group)
    once.pass_time(after_s)
    assert once.status in ("OK", "UNKNOWN")
    once.pass_time(2)
    once.change_hands()
    once.pass_time(2)
    assert once.status == status


@pytest.mark.parametrize("burrow", [False, True])
def test_a_group_that_commits_rarely_is_stopped_after_its_usual_interval(burrow: bool) -> None:
    group = read_once(READ, burrow=burrow)
    group.commit_regularly(4, every_s=100)
    assert {event.status for event in group.events} <= {"OK", "UNKNOWN"}
    group.pass_time(1_000)
    assert group.status == "STOP"


def test_a_share_group_has_no_position() -> None:
    group = ConsumerGroup(protocol_type="share")
    event = evaluated(state(source({}), origin="group", run_id=None, group=group), {})
    assert (event.status, event.total_lag) == ("UNKNOWN", None)
    assert str(event.reason).startswith("a share group has no position: ")
