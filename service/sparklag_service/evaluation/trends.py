"""Verdicts, and how the lag of each partition changes from commit to commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec import Struct

from sparklag_schemas import LagEvent, PartitionLag, Status, Thresholds, TopicLag
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.text.formatting import span
from sparklag_service.enrichment.cluster_offsets import MeasureTime

_OBSERVED_LATE: Final = 0.05
"""Share of a lag: records that lag are old before they are an alarm, so it is over a second."""
FLAGS: Final[tuple[Status, ...]] = ("WARN", "STALL")
"""The statuses of a partition that follow from its past alone."""
_GROWN: Final = "lag has grown"


class Verdict(NamedTuple):
    """A status, and its reason in a sentence."""

    status: Status
    reason: str | None


class LagRise(Struct, frozen=True, gc=False):  # up to one for each partition
    """A lag that has grown from commit to commit and has not fallen."""

    times: int
    """In how many commits it grew; after a hand-over, by the usual interval."""
    since_ms: int
    """Epoch milliseconds."""
    peak: int
    """The highest lag after a commit."""

    def is_trend(self, thresholds: Thresholds) -> bool:
        """Returns whether the lag grew throughout the window. Burrow also warns of a constant lag,
        which is the lag of a query that keeps up."""
        return self.times >= thresholds.window - 1

    def reason(self, lag: int | None, now_ms: int) -> str:
        """Why it is an alarm, with the figures."""
        rose_s = max(0, now_ms - self.since_ms) / 1000
        records = "" if lag is None else f": {lag:,} records"
        return f"{_GROWN} for {span(rose_s)} and not fallen{records}"


def extended(
    rise: LagRise | None,
    lag: int,
    lag_before: int | None,
    since_ms: int,
    thresholds: Thresholds,
    *,
    is_resumed: bool,
) -> LagRise | None:
    """The rise after one more commit; a new one begins at `since_ms`. None: the lag has not grown
    yet, or it fell. See `QueryHistory.is_resumed`."""
    if rise is None:
        is_rise = lag_before is not None and lag > lag_before
        return LagRise(1, since_ms, lag) if is_rise else None
    if lag > rise.peak:
        return LagRise(rise.times + 1, rise.since_ms, lag)
    if is_resumed:
        return LagRise(rise.times, rise.since_ms, lag)
    # A commit that is observed late has a lag that is too high. It does not end a WARN.
    least = rise.peak * (1 - _OBSERVED_LATE) if rise.is_trend(thresholds) else rise.peak
    return rise if lag >= least else None


class Unmoved(NamedTuple):
    """A partition that lags and has not moved."""

    commits: int
    """How many did not move it; after a hand-over, by the usual interval."""
    since_s: float
    """`time.monotonic()` of the last commit that moved it."""
    lag: int | None
    """The lag after that commit. None: another instance observed it."""


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
    flags: Mapping[int, Status] = field(default_factory=dict)
    """The verdicts: Burrow's rules 5 (STALL) and 6 (WARN)."""
    of_group: bool = False
    had_rises: bool = False
    """True: some lag had risen up to the commit before."""

    def reason(self, number: int, lag: int | None, at: MeasureTime) -> str | None:
        """Why a partition has its flag, in figures of the time `at`."""
        unmoved, rise = self.unmoved.get(number), self.rises.get(number)
        if self.flags[number] == "WARN" or unmoved is None:
            return None if rise is None else rise.reason(lag, at.now_ms)
        others = "other partitions are committed" if self.of_group else "batches complete"
        records = "" if lag is None else f", lag is {lag:,} records"
        return f"no progress for {span(at.now_s - unmoved.since_s)} while {others}{records}"

    def after(
        self,
        topic: TopicLag,
        thresholds: Thresholds,
        at: MeasureTime,
        before_s: float,
        *,
        of_group: bool = False,
        is_resumed: bool = False,
    ) -> TopicTrends:
        """The trends after one more commit, observed `at` a time; the commit before was at
        `before_s`. `is_resumed`: see `QueryHistory.is_resumed`.

        Each batch of Spark moves every partition with lag. `of_group`: a commit may move other
        partitions only, so each partition is evaluated by its own commits.
        """
        if self.last is None or self.last.topic_id != topic.topic_id:
            return TopicTrends(topic)
        rises: dict[int, LagRise] = {}
        unmoved: dict[int, Unmoved] = {}
        pauses_s = dict(self.pauses_s)
        flags: dict[int, Status] = {}
        at_s, before_ms = at.now_s, at.epoch_ms(before_s)
        allowed_lag, were_rising, were_unmoved = thresholds.allowed_lag, self.rises, self.unmoved
        numbers = [partition.partition for partition in topic.partitions]
        previous = aligned(self.last.partitions, numbers)
        for partition, before in zip(topic.partitions, previous, strict=True):
            number = partition.partition
            lag = partition.lag if partition.readable_lag is None else partition.readable_lag
            if before is None:
                continue
            is_unmoved = partition.processed_offset == before.processed_offset
            was_unmoved = were_unmoved.get(number) if were_unmoved else None
            if of_group and was_unmoved is not None and not is_unmoved:
                pauses_s[number] = max(at_s - was_unmoved.since_s, pauses_s.get(number, 0.0) / 2)
            rise = were_rising.get(number) if were_rising else None
            lag_before = before.lag if before.readable_lag is None else before.readable_lag
            if lag is None:
                # A lag that cannot be measured is no evidence.
                if rise is not None:
                    rises[number] = rise
                if was_unmoved is not None and is_unmoved:
                    unmoved[number] = was_unmoved
                flag = self.flags.get(number)
                if flag == "WARN" or (flag == "STALL" and is_unmoved):
                    flags[number] = flag
                continue
            if lag <= allowed_lag or (lag_before is not None and lag_before <= allowed_lag):
                continue
            if not (of_group and is_unmoved):
                if of_group and was_unmoved is not None:
                    lag_before = was_unmoved.lag
                if rise is not None or (lag_before is not None and lag > lag_before):
                    rise = extended(
                        rise, lag, lag_before, before_ms, thresholds, is_resumed=is_resumed
                    )
            if rise is not None:
                rises[number] = rise
                if rise.is_trend(thresholds):
                    flags[number] = "WARN"
            if is_unmoved:
                now_unmoved = unmoved[number] = (
                    Unmoved(2, before_s, before.unread)
                    if was_unmoved is None
                    else was_unmoved._replace(commits=was_unmoved.commits + 1)
                )
                patience_s = 0.0
                if of_group:
                    usual_s = thresholds.stall_factor * pauses_s.get(number, 0.0)
                    patience_s = max(usual_s, thresholds.stall_after_s)
                unmoved_s = at_s - now_unmoved.since_s
                if now_unmoved.commits >= thresholds.window and unmoved_s >= patience_s:
                    flags[number] = "STALL"
        return TopicTrends(
            topic,
            rises=rises,
            unmoved=unmoved,
            pauses_s=pauses_s,
            flags=flags,
            had_rises=bool(were_rising),
            of_group=of_group,
        )


_SURELY: Final = 1_000_000
"""A number of commits beyond each window: the verdict was given before."""


def alarms_by_trend(event: LagEvent) -> bool:
    """Returns whether the past of the query or of a partition is an alarm, not a limit alone."""
    return event.status != "OK" and (
        _GROWN in (event.reason or "")
        or any(p.status in FLAGS for topic in event.topics for p in topic.partitions)
    )


def resume_rise(
    since_ms: int | None, lag: int | None, event: LagEvent, *, is_alarm: bool
) -> LagRise | None:
    """The rise that another instance observed. Its commits follow from the usual interval."""
    if since_ms is None:
        return None
    times = _SURELY if is_alarm else _commits_since(since_ms, event)
    return LagRise(times, since_ms, lag or 0)


def resume_trends(topic: TopicLag, event: LagEvent, at: MeasureTime) -> TopicTrends:
    """The trends that another instance observed, as far as its event contains them."""
    rises, unmoved, flags = {}, {}, {}
    for partition in topic.partitions:
        number, status, since_ms = partition.partition, partition.status, partition.advanced_at
        rise = resume_rise(
            partition.rising_since, partition.unread, event, is_alarm=status == "WARN"
        )
        if rise is not None:
            rises[number] = rise
        if status == "STALL":
            # It may never have advanced, or at a time of another driver's clock.
            since_s = at.monotonic_s(since_ms or partition.rising_since or event.measured_at)
            unmoved[number] = Unmoved(_SURELY, min(at.now_s, since_s), None)
        elif partition.unread and since_ms is not None and since_ms < (event.processed_at or 0):
            commits = 1 + _commits_since(since_ms, event)
            unmoved[number] = Unmoved(commits, at.monotonic_s(since_ms), None)
        if status in FLAGS and (status == "STALL" or rise is not None):
            flags[number] = status
    of_group = traits_of(event.origin).commits_offsets
    return TopicTrends(topic, rises=rises, unmoved=unmoved, flags=flags, of_group=of_group)


def _commits_since(since_ms: int, event: LagEvent) -> int:
    if event.processed_at is None or not event.usual_interval_s:
        return 1
    return 1 + max(0, int((event.processed_at - since_ms) / 1000 / event.usual_interval_s))


def aligned(
    partitions: Sequence[PartitionLag], numbers: Sequence[int]
) -> Sequence[PartitionLag | None]:
    """The partitions with these numbers, in the order of `numbers`. None: no such partition."""
    # The usual case: no dictionary of thousands of partitions for each measurement.
    if [partition.partition for partition in partitions] == numbers:
        return partitions
    by_number = {partition.partition: partition for partition in partitions}
    return [by_number.get(number) for number in numbers]
