"""How the lag of each partition of a topic changes from commit to commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from sparklag_schemas import PartitionLag, Thresholds, TopicLag
from sparklag_service.evaluation.verdict import Verdict


class LagRise(Struct, frozen=True, gc=False):  # there may be one for each partition
    """A lag that has grown from commit to commit, and has not fallen."""

    times: int
    since_lag: int

    def is_trend(self, thresholds: Thresholds) -> bool:
        """Whether it grew all through the window. Burrow warns of a lag that stays the same too,
        which is the lag of a query that keeps up."""
        return self.times >= thresholds.window - 1

    def verdict(self, lag: int) -> Verdict:
        """WARN, with the figures."""
        reason = f"lag has grown in {self.times} batches and not fallen"
        return Verdict("WARN", f"{reason}: from {self.since_lag:,} to {lag:,} records")


def extended(rise: LagRise | None, lag: int, lag_before: int) -> LagRise | None:
    """The rise after one more commit. None: the lag has not grown yet, or it fell."""
    if lag > lag_before:
        return LagRise(1, lag_before) if rise is None else LagRise(rise.times + 1, rise.since_lag)
    return rise if lag == lag_before else None


@dataclass(frozen=True)
class TopicTrends:
    """The partitions of one topic as one source reads it, up to the last commit."""

    last: TopicLag | None = None
    """The lag after the last commit. None: there was no commit."""
    rises: Mapping[int, LagRise] = field(default_factory=dict)
    unmoved: Mapping[int, int] = field(default_factory=dict)
    """For how many commits a partition with lag has not moved."""
    flags: Mapping[int, Verdict] = field(default_factory=dict)
    """What follows: Burrow's rules 5 (STALL) and 6 (WARN)."""

    def after(self, topic: TopicLag, thresholds: Thresholds) -> TopicTrends:
        """The trends after one more commit."""
        if self.last is None or self.last.topic_id != topic.topic_id:
            return TopicTrends(topic)
        rises: dict[int, LagRise] = {}
        unmoved: dict[int, int] = {}
        flags: dict[int, Verdict] = {}
        allowed_lag, were_rising = thresholds.allowed_lag, self.rises
        numbers = [partition.partition for partition in topic.partitions]
        previous = aligned(self.last.partitions, numbers)
        for partition, before in zip(topic.partitions, previous, strict=True):
            number, lag = partition.partition, partition.lag
            if lag is None or lag <= allowed_lag or before is None:
                continue
            if before.lag is None or before.lag <= allowed_lag:
                continue
            if lag > before.lag or (lag == before.lag and were_rising):
                rise = extended(were_rising.get(number), lag, before.lag)
                if rise is not None:
                    rises[number] = rise
                    if rise.is_trend(thresholds):
                        flags[number] = rise.verdict(lag)
            if partition.processed_offset == before.processed_offset:
                commits = unmoved[number] = self.unmoved.get(number, 1) + 1
                if commits >= thresholds.window:
                    reason = f"has not moved in {commits} batches, {lag} records wait"
                    flags[number] = Verdict("STALL", reason)
        return TopicTrends(topic, rises, unmoved, flags)


def aligned(
    partitions: Sequence[PartitionLag], numbers: Sequence[int]
) -> Sequence[PartitionLag | None]:
    """The partitions with these numbers, in their order; None where there is none."""
    # Mostly they are the same: no dictionary of thousands is made for each measurement.
    if [partition.partition for partition in partitions] == numbers:
        return partitions
    by_number = {partition.partition: partition for partition in partitions}
    return [by_number.get(number) for number in numbers]
