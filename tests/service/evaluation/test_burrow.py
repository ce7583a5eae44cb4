"""Burrow's own rules, for ordinary consumer groups: each with its neighbours, then all of them
beside the rules as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_schemas import PartitionLag, Thresholds, TopicLag
from sparklag_service.evaluation.burrow import CommitWindow
from tests.service.evaluation.trace import Trace
from tests.service.states import moment, state

WINDOW = 10
END_OFFSETS = 10
"""That Burrow keeps of each partition, one each ten seconds."""


class Group(Trace):
    """Consumer group `orders`, which reads what `per_second` bring in to each partition."""

    def __init__(
        self,
        per_second: int = 50,
        *,
        partitions: int = 1,
        burrow: bool = True,
        thresholds: Thresholds | None = None,
    ) -> None:
        super().__init__(
            produce=lambda _: [per_second] * partitions,
            partitions=partitions,
            run_id=None,
            burrow=burrow,
            thresholds=thresholds or Thresholds(),
            origin="group",
            batch_id=None,
        )

    def commit(self, *offsets: int) -> None:
        """Of its partitions, in their order."""
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


def test_a_group_that_keeps_up_is_ok() -> None:
    group = Group()
    group.commit_regularly(20)
    assert {event.status for event in group.events[-15:]} == {"OK"}


def test_a_group_whose_lag_never_falls_is_warned_of_also_where_it_does_not_grow() -> None:
    group = Group()
    group.commit_regularly(11, behind=100)
    assert group.status == "WARN"
    assert group.event.reason == (
        "1 of 1 partitions: lag has not fallen in 10 commits: from 100 to 100 records"
    )
    group.commit_regularly(1, behind=99)
    assert group.status == "OK"


def test_a_lag_that_was_zero_in_the_window_is_fine() -> None:
    group = Group()
    group.commit_regularly(10, behind=[0, *range(10, 100, 10)])
    assert group.status == "OK"
    group.commit_regularly(1, behind=200)
    assert group.status == "WARN"


def test_a_partition_that_stands_while_the_group_goes_on_is_stalled() -> None:
    group = Group(partitions=2)
    for _ in range(11):
        group.pass_time(5)
        group.commit(10, group.ends[1])
    assert [one.status for one in group.event.topics[0].partitions] == ["STALL", "OK"]
    assert group.event.reason == (
        f"1 of 2 partitions: has not moved in 10 commits, {group.ends[0] - 10:,} records wait"
    )


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
        "1 of 1 partitions: no commit for 46 s, the 10 before took 45 s; 12,300 records wait"
    )
    group.commit_regularly(1, behind=10_000)
    assert group.status == "WARN"


def test_one_that_had_read_all_there_was_a_short_time_ago_has_not_stopped() -> None:
    group = Group()
    group.commit_regularly(20)
    group.pass_time(80)
    assert group.status == "OK"
    group.pass_time(30)
    assert group.status == "STOP"


def test_a_quiet_topic_stops_nobody() -> None:
    group = Group()
    group.commit_regularly(20)
    group.produce = lambda _: [0]
    group.pass_time(3_600)
    assert group.status == "OK"


def test_a_group_that_goes_back_is_rewound_until_it_is_there_again() -> None:
    group = Group()
    group.commit_regularly(12)
    farthest = group.at[0]
    group.pass_time(5)
    group.commit(farthest - 1_000)
    assert group.status == "REWIND"
    assert f"went back from {farthest} to older offsets" in str(group.event.reason)
    group.pass_time(5)
    group.commit(farthest - 1)
    assert group.status == "REWIND"
    group.pass_time(5)
    group.commit(farthest)
    assert group.status == "OK"


def test_what_was_said_stays_where_another_instance_takes_over_until_it_saw_two_commits() -> None:
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
    for _ in range(30):
        query.pass_time(8)
        query.batch(2, most=500)
    assert query.status == "OK"


@dataclass
class AsWritten:
    """The rules over lists of all that was committed, all lags, and all ends."""

    offsets: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def status(self, now_s: float, latest: int) -> str | None:
        """None: not two commits yet."""
        offsets, lags = self.offsets[-WINDOW:], self.lags[-WINDOW:]
        times_s, ends = self.times_s[-WINDOW:], self.ends[-END_OFFSETS:]
        if len(offsets) < 2:
            return None
        if latest - offsets[-1] <= 0:
            return "OK"
        if now_s - times_s[-1] > times_s[-1] - times_s[0] and min(ends) > offsets[-1]:
            return "STOP"
        for i in range(1, len(offsets)):
            if offsets[i] < offsets[i - 1]:
                if max(offsets[i:]) < offsets[i - 1]:
                    return "REWIND"
                break
        if min(lags) <= 0:
            return "OK"
        if len(set(offsets)) == 1:
            return "STALL"
        falls = any(lags[i] < lags[i - 1] for i in range(1, len(lags)))
        return "OK" if falls else "WARN"


STEPS = st.lists(
    st.tuples(
        st.integers(1, 30),  # seconds that pass
        st.integers(0, 20),  # records that come in each
        st.none() | st.integers(0, 300),  # a commit, so far behind the end
    ),
    max_size=40,
)


def test_a_window_in_which_no_lag_was_known_is_no_alarm() -> None:
    window, now = CommitWindow(), moment()
    for offset in range(3):
        now = moment(100.0 + 10 * offset)
        unknown = TopicLag(
            topic="orders",
            source=0,
            partitions=[PartitionLag(partition=0, processed_offset=offset)],
        )
        window = window.after(state(processed_at=now.now_ms), [unknown], now, WINDOW)
    known = PartitionLag(partition=0, processed_offset=2, latest_offset=9, lag=7, status="OK")
    topic = TopicLag(topic="orders", source=0, partitions=[known])
    window.judge([topic], now, Thresholds())
    assert topic.partitions == [known]


@pytest.mark.parametrize("moves", [True, False], ids=["moves", "may stand"])
@given(steps=STEPS)
def test_whatever_happens_it_says_what_the_rules_as_written_say(
    steps: list[tuple[int, int, int | None]], moves: bool
) -> None:
    """One partition stands or moves; another, always moved on, makes each commit one."""
    group, written = Group(partitions=2), AsWritten()
    next_end_s = group.now_s
    written.ends.append(0)
    for seconds, per_second, behind in steps:
        group.produce = lambda _, count=per_second: [count, 1]  # type: ignore[misc]
        for _ in range(seconds):
            group.pass_time(1)
            if group.now_s - next_end_s >= 10:
                next_end_s = group.now_s
                written.ends.append(group.ends[0])
        if behind is not None:
            offset = max(0, group.ends[0] - behind) if moves or not written.offsets else group.at[0]
            group.commit(offset, group.ends[1])
            written.offsets.append(offset)
            written.lags.append(group.ends[0] - offset)
            written.times_s.append(group.now_s)
        said = group.one(0).status
        expected = written.status(group.now_s, group.ends[0])
        if expected is not None:
            assert said == expected, (said, expected, group.one(0))
