"""Burrow's own rules, for ordinary consumer groups: `evaluator = "burrow"`. Pure.

As LinkedIn's Burrow evaluates (its wiki's "Consumer Lag Evaluation Rules", and its caching
evaluator), the first rule that holds: 1. the lag is allowed: OK. 2. no commit for longer than the
window lasted, and the log ended behind the position all the while: STOP. 3. went back, and is not
there again: REWIND. 4. some lag of the window is allowed: OK. 5. the offset is the same in all of
it: STALL. 6. the lag never fell: WARN; else OK.

Burrow reads each commit. Here a group's offsets are read at intervals: a commit is seen where it
changes one of them, and counts for all of the group's partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparklag_schemas import LagEvent, PartitionLag, Status, Thresholds, TopicLag
from sparklag_schemas.formatting import span
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_history import SourceTopic
from sparklag_service.evaluation.verdict import Verdict
from sparklag_service.tracking.query_state import QueryState

_ENDS: Final = 10
_ENDS_EVERY_S: Final = 10.0
"""Burrow's defaults: `intervals`, `offset-refresh`."""
_FROM_WINDOW: Final[tuple[Status, ...]] = ("WARN", "STALL", "STOP", "REWIND")


class Sample(NamedTuple):
    """The group's partitions at one time."""

    at_s: float
    """`time.monotonic()`."""
    partitions: Mapping[SourceTopic, Mapping[int, PartitionLag]]


@dataclass(frozen=True)
class CommitWindow:
    """A group's last commits, and the last log ends; the oldest first."""

    commits: tuple[Sample, ...] = ()
    ends: tuple[Sample, ...] = ()
    inherited: Mapping[SourceTopic, Mapping[int, Verdict]] = field(default_factory=dict)
    """The verdicts of the instance that measured the group before; they hold until two commits were
    seen here."""
    processed_at_ms: int | None = None

    def after(
        self, state: QueryState, topics: Sequence[TopicLag], measure_time: MeasureTime, size: int
    ) -> CommitWindow:
        """The window one measurement on; it holds `size` commits."""
        commits, ends, now_s = self.commits, self.ends, measure_time.now_s
        if not ends or now_s - ends[-1].at_s >= _ENDS_EVERY_S:
            ends = (*ends[1 - _ENDS :], Sample(now_s, _by_partition(topics)))
        if state.processed_at is not None and state.processed_at != self.processed_at_ms:
            at_s = min(now_s, measure_time.monotonic_s(state.processed_at))
            if commits:
                at_s = max(at_s, commits[-1].at_s)
            commits = (*commits[1 - size :], Sample(at_s, _by_partition(topics)))
        return CommitWindow(commits, ends, self.inherited, state.processed_at)

    def judge(
        self, topics: Sequence[TopicLag], measure_time: MeasureTime, thresholds: Thresholds
    ) -> None:
        """Set the status and reason of each partition whose lag is known, in place."""
        allowed_lag = thresholds.allowed_lag
        for topic in topics:
            key = (topic.source, topic.topic)
            for index, partition in enumerate(topic.partitions):
                lag = partition.lag
                if lag is None:
                    continue
                verdict = None
                if lag > allowed_lag:
                    number, now_s = partition.partition, measure_time.now_s
                    verdict = self._verdict(key, number, lag, now_s, allowed_lag)
                if verdict is None:
                    verdict = Verdict("OK", partition.reason if partition.status == "OK" else None)
                status, reason, *_ = verdict
                if (status, reason) != (partition.status, partition.reason):
                    topic.partitions[index] = replace(partition, status=status, reason=reason)

    def _verdict(
        self, key: SourceTopic, number: int, lag: int, now_s: float, allowed_lag: int
    ) -> Verdict | None:
        """Rules 2 to 6. None: OK."""
        times_s: list[float] = []
        offsets: list[int] = []
        lags: list[int] = []
        for commit in self.commits:
            partition = commit.partitions.get(key, {}).get(number)
            if partition is not None and partition.processed_offset is not None:
                times_s.append(commit.at_s)
                offsets.append(partition.processed_offset)
                if partition.lag is not None:
                    lags.append(partition.lag)
        if len(offsets) < 2:
            return self.inherited.get(key, {}).get(number)
        waits = f"{lag:,} records wait"
        last = offsets[-1]
        since_commit_s, lasted_s = now_s - times_s[-1], times_s[-1] - times_s[0]
        if since_commit_s > lasted_s and not self._was_at_end(key, number, last):
            took = f"the {len(offsets)} before took {span(lasted_s)}"
            return Verdict("STOP", f"no commit for {span(since_commit_s)}, {took}; {waits}")
        farthest = _went_back_from(offsets)
        if farthest is not None:
            reason = f"went back from {farthest} to older offsets, it is at {last}"
            return Verdict("REWIND", reason)
        if any(lag <= allowed_lag for lag in lags):
            return None
        if all(committed == last for committed in offsets):
            return Verdict("STALL", f"has not moved in {len(offsets)} commits, {waits}")
        if len(lags) > 1 and all(newer >= older for older, newer in pairwise(lags)):
            reason = f"lag has not fallen in {len(offsets)} commits"
            return Verdict("WARN", f"{reason}: from {lags[0]:,} to {lags[-1]:,} records")
        return None

    def _was_at_end(self, key: SourceTopic, number: int, offset: int) -> bool:
        """Whether the log ended there, or before, a short time ago."""
        ends = (sample.partitions.get(key, {}).get(number) for sample in self.ends)
        return any(
            end is not None and end.latest_offset is not None and end.latest_offset <= offset
            for end in ends
        )


def inherited_window(event: LagEvent) -> CommitWindow:
    """The window of a group that another instance measured."""
    verdicts = {
        (topic.source, topic.topic): {
            partition.partition: Verdict(partition.status, partition.reason)
            for partition in topic.partitions
            if partition.status in _FROM_WINDOW
        }
        for topic in event.topics
    }
    return CommitWindow(inherited=verdicts, processed_at_ms=event.processed_at)


def _by_partition(
    topics: Sequence[TopicLag],
) -> Mapping[SourceTopic, Mapping[int, PartitionLag]]:
    return {
        (topic.source, topic.topic): {p.partition: p for p in topic.partitions} for topic in topics
    }


def _went_back_from(offsets: Sequence[int]) -> int | None:
    """The offset before the first step back. None: there was none, or it was reached again."""
    for index, (before, offset) in enumerate(pairwise(offsets)):
        if offset < before:
            return before if all(later < before for later in offsets[index + 1 :]) else None
    return None
