"""Verdicts, and how the lag of each partition changes from commit to commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec import Struct

from sparklag_schemas import PartitionLag, Status, Thresholds, TopicLag

FLAGS: Final[tuple[Status, ...]] = ("WARN", "STALL")
"""The statuses of a partition that follow from its past alone."""


class Verdict(NamedTuple):
    """A status, and its reason in a sentence."""

    status: Status
    reason: str | None


class LagRise(Struct, frozen=True, gc=False):  # up to one for each partition
    """A lag that has grown from commit to commit and has not fallen."""

    times: int
    since_lag: int

    def is_trend(self, thresholds: Thresholds) -> bool:
        """Returns whether the lag grew throughout the window. Burrow also warns of a constant lag,
        which is the lag of a query that keeps up."""
        return self.times >= thresholds.window - 1

    def verdict(self, lag: int, steps: str = "batches") -> Verdict:
        """WARN, with the figures."""
        reason = f"lag has grown in {self.times} {steps} and not fallen"
        return Verdict("WARN", f"{reason}: from {self.since_lag:,} to {lag:,} records")


def extended(rise: LagRise | None, lag: int, lag_before: int) -> LagRise | None:
    """The rise after one more commit. None: the lag has not grown yet, or it fell."""
    if lag > lag_before:
        return LagRise(1, lag_before) if rise is None else LagRise(rise.times + 1, rise.since_lag)
    return rise if lag == lag_before else None


class Unmoved(NamedTuple):
    """A partition that lags and has not moved."""

    commits: int
    since_s: float
    lag: int
    """The lag after the last commit that moved the partition."""


@dataclass(frozen=True)
class TopicTrends:
    """The trends of one topic's partitions in one source, up to the last commit."""

    last: TopicLag | None = None
    """The lag after the last commit. None: there was no commit."""
    rises: Mapping[int, LagRise] = field(default_factory=dict)
    unmoved: Mapping[int, Unmoved] = field(default_factory=dict)
    """Partitions that lag and that the last commits did not move."""
    pauses_s: Mapping[int, float] = field(default_factory=dict)
    """How long partitions of a group recently lagged without a commit of their own."""
    flags: Mapping[int, Verdict] = field(default_factory=dict)
    """The verdicts: Burrow's rules 5 (STALL) and 6 (WARN)."""

    def after(
        self, topic: TopicLag, thresholds: Thresholds, at_s: float, *, of_group: bool = False
    ) -> TopicTrends:
        """The trends after one more commit, at `at_s`.

        Each batch of Spark moves every partition with lag. `of_group`: a commit may move other
        partitions only, so each partition is evaluated by its own commits.
        """
        if self.last is None or self.last.topic_id != topic.topic_id:
            return TopicTrends(topic)
        rises: dict[int, LagRise] = {}
        unmoved: dict[int, Unmoved] = {}
        pauses_s = dict(self.pauses_s)
        flags: dict[int, Verdict] = {}
        steps = "commits" if of_group else "batches"
        allowed_lag, were_rising, were_unmoved = thresholds.allowed_lag, self.rises, self.unmoved
        numbers = [partition.partition for partition in topic.partitions]
        previous = aligned(self.last.partitions, numbers)
        for partition, before in zip(topic.partitions, previous, strict=True):
            number, lag = partition.partition, partition.lag
            if before is None:
                continue
            is_unmoved = partition.processed_offset == before.processed_offset
            was_unmoved = were_unmoved.get(number) if were_unmoved else None
            if of_group and was_unmoved is not None and not is_unmoved:
                pauses_s[number] = max(at_s - was_unmoved.since_s, pauses_s.get(number, 0.0) / 2)
            if lag is None or lag <= allowed_lag:
                continue
            lag_before = before.lag
            if lag_before is None or lag_before <= allowed_lag:
                continue
            rise = were_rising.get(number) if were_rising else None
            if not (of_group and is_unmoved):
                if of_group and was_unmoved is not None:
                    lag_before = was_unmoved.lag
                if lag > lag_before or rise is not None:
                    rise = extended(rise, lag, lag_before)
            if rise is not None:
                rises[number] = rise
                if rise.is_trend(thresholds):
                    flags[number] = rise.verdict(lag, steps)
            if is_unmoved:
                now_unmoved = unmoved[number] = (
                    Unmoved(2, at_s, lag_before)
                    if was_unmoved is None
                    else was_unmoved._replace(commits=was_unmoved.commits + 1)
                )
                patience_s = 0.0
                if of_group:
                    usual_s = thresholds.stall_factor * pauses_s.get(number, 0.0)
                    patience_s = max(usual_s, thresholds.stall_after_s)
                unmoved_s = at_s - now_unmoved.since_s
                if now_unmoved.commits >= thresholds.window and unmoved_s >= patience_s:
                    reason = f"no progress in {now_unmoved.commits} {steps}, lag is {lag:,} records"
                    flags[number] = Verdict("STALL", reason)
        return TopicTrends(topic, rises, unmoved, pauses_s, flags)


def aligned(
    partitions: Sequence[PartitionLag], numbers: Sequence[int]
) -> Sequence[PartitionLag | None]:
    """The partitions with these numbers, in the order of `numbers`. None: no such partition."""
    # The usual case: no dictionary of thousands of partitions for each measurement.
    if [partition.partition for partition in partitions] == numbers:
        return partitions
    by_number = {partition.partition: partition for partition in partitions}
    return [by_number.get(number) for number in numbers]
