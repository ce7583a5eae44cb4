"""Burrow's own rules, for ordinary consumer groups: each with its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparklag_schemas import Thresholds
from sparklag_schemas.messages.observation import ConsumerGroup
from tests.service.evaluation.trace import Trace


class Group(Trace):
    """Consumer group `orders`, which reads what `per_second` bring in to each partition."""

    def __init__(
        self,
        per_second: int = 50,
        *,
        partitions: int = 1,
        burrow: bool = True,
        thresholds: Thresholds | None = None,
        group: ConsumerGroup | None = None,
    ) -> None:
        super().__init__(
            produce=lambda _: [per_second] * partitions,
            partitions=partitions,
            run_id=None,
            burrow=burrow,
            thresholds=thresholds or Thresholds(),
            origin="group",
            batch_id=None,
            group=group,
        )

    def commit(self, *offsets: int) -> None:
        self.at = list(offsets)
        self.processed_at = self.now_ms
        self.say("group")

    def commit_regularly(
        self, times: int, *, behind: int | Sequence[int] = 0, every_s: float = 5.0
    ) -> None:
        """`behind` the end; a sequence: that of each commit."""
        for index in range(times):
            self.pass_time(every_s)
            left = behind if isinstance(behind, int) else behind[index]
            self.commit(*(end - left for end in self.ends))


def dead_group(*, burrow: bool) -> Group:
    """It was read once, at 500 of 10,000, and does not move."""
    group = Group(burrow=burrow)
    group.ends, group.at = [10_000], [500]
    group.say("group")
    return group


def test_a_group_whose_lag_never_falls_is_warned_of_also_where_it_does_not_grow() -> None:
    group = Group()
    group.commit_regularly(11, behind=100)
    assert group.status == "WARN"
    assert group.event.reason == (
        "1 of 1 partitions: lag has not fallen in 10 commits: from 100 to 100 records"
    )
    group.commit_regularly(1, behind=99)
    assert group.status == "OK"


def test_a_partition_that_remains_while_the_group_goes_on_is_stalled() -> None:
    group = Group(partitions=2)
    group.pass_time(300)
    group.commit_regularly(20, behind=10_000)
    stuck = group.at[0]
    for _ in range(10):
        group.pass_time(5)
        group.commit(stuck, group.ends[1])
    assert [one.status for one in group.event.topics[0].partitions] == ["STALL", "OK"]
    assert group.event.reason == (
        "1 of 2 partitions: no commit for 50 s, 45 s is allowed; lag is 12,500 records"
    )
    assert (group.event.processed_rate or 0) > 0


def test_a_group_that_commits_no_more_is_stopped_once_its_silence_outlasts_the_window() -> None:
    group = Group()
    # Ten commits: 45 s from the first to the last.
    group.pass_time(300)
    group.commit_regularly(20, behind=10_000)
    group.pass_time(45)
    assert group.status != "STOP"
    group.pass_time(1)
    assert group.status == "STOP"
    assert group.event.reason == (
        "1 of 1 partitions: no commit for 46 s, 45 s is allowed; lag is 12,300 records"
    )
    group.commit_regularly(1, behind=10_000)
    assert group.status == "WARN"


def test_a_quiet_topic_stops_nobody() -> None:
    group = Group()
    group.commit_regularly(20)
    group.produce = lambda _: [0]
    group.pass_time(3_600)
    assert group.status == "OK"


@pytest.mark.parametrize("burrow", [True, False], ids=["burrow", "sparklag"])
def test_a_group_that_was_dead_at_the_first_look_is_stopped(burrow: bool) -> None:
    group = dead_group(burrow=burrow)
    group.pass_time(300)
    assert group.status == ("OK" if burrow else "UNKNOWN")
    group.pass_time(2)
    assert group.status == "STOP"
    assert (group.event.processed_at, group.event.catch_up_s) == (None, None)
    group.commit(1_000)
    assert group.status != "STOP"


@pytest.mark.parametrize("burrow", [True, False], ids=["burrow", "sparklag"])
def test_that_its_owner_changes_again_and_again_does_not_make_it_live(burrow: bool) -> None:
    group = dead_group(burrow=burrow)
    for _ in range(4):
        group.pass_time(80)
        group.change_hands()
        group.say("group")
    assert group.status == "STOP"
    group.change_hands()
    group.pass_time(1)
    assert group.status == "STOP"


@pytest.mark.parametrize("burrow", [True, False], ids=["burrow", "sparklag"])
def test_a_group_whose_owner_changes_when_it_has_died_is_stopped(burrow: bool) -> None:
    group = Group(burrow=burrow)
    group.commit_regularly(20, behind=100)
    group.pass_time(3)
    group.change_hands()
    # The first read of another instance: it does not know when that was committed.
    group.processed_at = None
    group.say("group")
    group.pass_time(290)
    assert group.status == "OK" if not burrow else group.status in ("OK", "WARN")
    group.pass_time(10)
    assert group.status == "STOP"
    assert group.event.processed_rate == 0.0


@pytest.mark.parametrize("burrow", [True, False], ids=["burrow", "sparklag"])
def test_a_group_that_has_committed_while_its_owner_changed_is_not_stopped(burrow: bool) -> None:
    group = Group(burrow=burrow)
    group.commit_regularly(20)
    group.change_hands()
    group.now_s += 500
    group.ends[0] += 25_000
    group.at = [25_000]
    group.processed_at = None
    group.say("group")
    group.pass_time(60)
    assert group.status == "OK"


@pytest.mark.parametrize("burrow", [True, False], ids=["burrow", "sparklag"])
def test_one_slow_partition_is_fine_until_it_commits_no_more(burrow: bool) -> None:
    group = Group(partitions=2, burrow=burrow)
    at = list(group.at)
    for second in range(5, 2_400, 5):
        group.pass_time(5)
        at[1] = group.ends[1]
        if second % 60 == 0 and second <= 1_200:
            at[0] = group.ends[0]
        group.commit(*at)
        if second == 1_260:
            statuses = {event.status for event in group.events if event.processed_at is not None}
            assert statuses == {"OK"}
    assert [one.status for one in group.event.topics[0].partitions] == ["STALL", "OK"]
    assert "commit" in (group.event.reason or "")


def test_a_rewind_stays_one_through_a_change_of_hands() -> None:
    group = Group()
    group.commit_regularly(12)
    farthest = group.at[0]
    group.commit(farthest - 1_000)
    assert group.status == "REWIND"
    assert f"went back from offset {farthest}" in str(group.event.reason)
    group.change_hands()
    for offset in (farthest - 1_000, farthest - 500, farthest - 1):
        group.pass_time(5)
        group.commit(offset)
        assert group.status == "REWIND"
    group.commit(farthest)
    assert group.status == "OK"


@pytest.mark.parametrize(
    ("thresholds", "reason"),
    [
        (Thresholds(max_lag=500), "lag is 550 records, 500 are allowed"),
        (Thresholds(max_time_lag_s=10), "time lag is 11 s, 10 s is allowed"),
    ],
)
def test_thresholds_apply_to_it_too(thresholds: Thresholds, reason: str) -> None:
    group = Group(thresholds=thresholds)
    group.commit_regularly(20)
    while group.status == "OK":
        group.pass_time(1)
    assert (group.status, group.event.reason) == ("WARN", reason)


@pytest.mark.parametrize("burrow", [True, False], ids=["burrow", "sparklag"])
def test_records_that_retention_will_soon_delete_are_reported(burrow: bool) -> None:
    group = Group(burrow=burrow, thresholds=Thresholds(min_headroom_s=600))
    group.commit_regularly(20)
    for step in range(40):
        # 50 a second are deleted, and 30 are read.
        group.starts[0] += 500 * (step > 20)
        group.pass_time(10)
        group.commit(group.at[0] + 300)
        # One deletion is no evidence of the next.
        assert (group.event.loss_expected_at is None) == (step < 22)
    assert (group.event.min_headroom_s or 0) > 0
    assert group.status == "WARN"
    assert (group.event.reason or "").startswith("retention deletes unread records in ")


def test_another_instance_keeps_the_status_until_it_has_two_commits() -> None:
    group = Group()
    group.commit_regularly(12, behind=100)
    assert group.status == "WARN"
    group.change_hands()
    group.pass_time(5)
    assert group.status == "WARN"
    group.commit_regularly(1, behind=100)
    assert group.status == "WARN"
    group.commit_regularly(1, behind=90)
    assert group.status == "OK"


def test_a_lag_that_is_allowed_is_fine() -> None:
    group = Group(thresholds=Thresholds(allowed_lag=100))
    group.commit_regularly(11, behind=100)
    assert group.status == "OK"
    group.commit_regularly(10, behind=101)
    assert group.status == "WARN"


def test_what_cannot_be_measured_is_unknown_to_these_rules_too() -> None:
    group = Group(partitions=2)
    group.commit_regularly(11)
    group.unread.add(0)
    group.pass_time(120)
    assert [one.status for one in group.event.topics[0].partitions] == ["UNKNOWN", "STOP"]


def test_by_the_rules_for_queries_a_lag_that_stays_the_same_is_none() -> None:
    group = Group(burrow=False)
    group.commit_regularly(30, behind=100)
    assert group.status == "OK"


def test_the_same_name_as_a_querys_changes_nothing_for_a_query() -> None:
    query = Trace(produce=lambda _: [50], burrow=True)
    query.steady(3)
    query.steady(30, most=500)
    assert query.status == "OK"


def test_a_window_in_which_no_lag_was_known_is_no_alarm() -> None:
    group = Group()
    group.unread.add(0)
    group.commit_regularly(3, behind=7)
    group.unread.clear()
    group.measure()
    assert (group.status, group.event.total_lag) == ("OK", 7)
