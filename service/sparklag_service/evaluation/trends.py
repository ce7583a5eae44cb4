"""How the lag of each partition of a topic went from commit to commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from sparklag_schemas import Thresholds, TopicLag
from sparklag_service.evaluation.aligned import aligned
from sparklag_service.evaluation.finding import Finding


class Rise(Struct, frozen=True, gc=False):  # there may be one for each partition
    """A lag that has grown from commit to commit, and has not fallen."""

    times: int
    since_lag: int

    def is_trend(self, thresholds: Thresholds) -> bool:
        """Whether it grew all through the window. Burrow warns of a lag that stays the same too:
        that of a query which keeps up does."""
        return self.times >= thresholds.window - 1

    def finding(self, lag: int) -> Finding:
        """What is to say of it."""
        told = f"lag has grown in {self.times} batches and not fallen"
        return Finding("WARN", f"{told}: from {self.since_lag:,} to {lag:,} records")


def risen(rise: Rise | None, lag: int, lag_before: int) -> Rise | None:
    """One commit later. None: it has not grown yet, or fell."""
    if lag > lag_before:
        return Rise(1, lag_before) if rise is None else Rise(rise.times + 1, rise.since_lag)
    return rise if lag == lag_before else None


@dataclass(frozen=True)
class Trends:
    """Of the partitions of one topic as one source reads it, up to the last commit."""

    last: TopicLag | None = None
    """The lag after it. None: there was none yet."""
    rises: Mapping[int, Rise] = field(default_factory=dict)
    standing: Mapping[int, int] = field(default_factory=dict)
    """Partitions with lag that did not move: for how many commits."""
    flags: Mapping[int, Finding] = field(default_factory=dict)
    """What follows from that: Burrow's rules 5 (STALL) and 6 (WARN)."""

    def after(self, topic: TopicLag, thresholds: Thresholds) -> Trends:
        """One commit later."""
        if self.last is None or self.last.topic_id != topic.topic_id:
            return Trends(topic)
        rises: dict[int, Rise] = {}
        standing: dict[int, int] = {}
        flags: dict[int, Finding] = {}
        allowed_lag, were_rising = thresholds.allowed_lag, self.rises
        befores = aligned(self.last.partitions, [one.partition for one in topic.partitions])
        for one, before in zip(topic.partitions, befores, strict=True):
            number, lag = one.partition, one.lag
            if lag is None or lag <= allowed_lag or before is None:
                continue
            if before.lag is None or before.lag <= allowed_lag:
                continue
            if lag > before.lag or (lag == before.lag and were_rising):
                rise = risen(were_rising.get(number), lag, before.lag)
                if rise is not None:
                    rises[number] = rise
                    if rise.is_trend(thresholds):
                        flags[number] = rise.finding(lag)
            if one.processed_offset == before.processed_offset:
                commits = standing[number] = self.standing.get(number, 1) + 1
                if commits >= thresholds.window:
                    reason = f"has not moved in {commits} batches, {lag} records wait"
                    flags[number] = Finding("STALL", reason)
        return Trends(topic, rises, standing, flags)
