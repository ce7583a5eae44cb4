"""Burrow's own rules for ordinary consumer groups: `evaluator = "burrow"`. Pure.

The first rule that holds decides, as in LinkedIn's Burrow (its wiki's "Consumer Lag Evaluation
Rules", and its caching evaluator): 1. the lag is allowed: OK. 2. no commit for longer than the
window lasted, and the log end was past the position all that time: STOP. 3. the position went back,
and has not returned: REWIND. 4. some lag of the window is allowed: OK. 5. the lag never fell: WARN;
else OK.

Burrow reads each commit. sparklag reads a group's offsets at intervals: a changed offset is a
commit of its partition. A partition without commits, in a group that commits, is STALL by rule 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparklag_schemas import LagEvent, PartitionLag, Status, TopicLag
from sparklag_schemas.text.formatting import span
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_history import SourceTopic
from sparklag_service.evaluation.trends import Verdict
from sparklag_service.tracking.query_state import QueryState

_ENDS: Final = 10
_ENDS_EVERY_S: Final = 10.0
"""Burrow's defaults: `intervals`, `offset-refresh`."""
_FROM_WINDOW: Final[tuple[Status, ...]] = ("WARN", "STALL", "STOP", "REWIND")


class Commit(NamedTuple):
    at_s: float
    """`time.monotonic()`."""
    offset: int
    lag: int | None
    is_first_read: bool = False
    """True: the commit was made at `at_s` or earlier."""


class LogEnds(NamedTuple):
    at_s: float
    latest: Mapping[SourceTopic, Mapping[int, int | None]]


@dataclass(frozen=True)
class CommitWindow:
    """The last commits of each partition of a group, and the last log ends; oldest first."""

    commits: Mapping[SourceTopic, Mapping[int, tuple[Commit, ...]]] = field(default_factory=dict)
    ends: tuple[LogEnds, ...] = ()
    inherited: Mapping[SourceTopic, Mapping[int, Verdict]] = field(default_factory=dict)
    """The verdicts of the instance that measured the group before this one."""
    committed_s: float = 0.0

    def after(
        self, state: QueryState, topics: Sequence[TopicLag], measure_time: MeasureTime, size: int
    ) -> CommitWindow:
        """The window after one more measurement; it holds `size` commits of each partition."""
        ends, now_s, committed_s = self.ends, measure_time.now_s, self.committed_s
        if not ends or now_s - ends[-1].at_s >= _ENDS_EVERY_S:
            latest = {_key(t): {p.partition: p.latest_offset for p in t.partitions} for t in topics}
            ends = (*ends[1 - _ENDS :], LogEnds(now_s, latest))
        at_s, is_first_read = now_s, state.processed_at is None
        if state.processed_at is not None:
            at_s = max(committed_s, min(now_s, measure_time.monotonic_s(state.processed_at)))
        commits: dict[SourceTopic, Mapping[int, tuple[Commit, ...]]] = {}
        for topic in topics:
            of_topic = dict(self.commits.get(_key(topic), {}))
            for partition in topic.partitions:
                offset, earlier = partition.processed_offset, of_topic.get(partition.partition, ())
                if offset is not None and (not earlier or earlier[-1].offset != offset):
                    commit = Commit(at_s, offset, partition.unread, is_first_read)
                    of_topic[partition.partition] = (*earlier[1 - size :], commit)
                    committed_s = at_s
            commits[_key(topic)] = of_topic
        return CommitWindow(commits, ends, self.inherited, committed_s)

    def judged(
        self,
        topics: Sequence[TopicLag],
        measure_time: MeasureTime,
        allowed_lag: int,
        least_s: float,
    ) -> list[TopicLag]:
        """`topics` with the status and reason of each partition whose lag is known.

        A window with one commit, or whose first commit may be older than its time, lasts at least
        `least_s`.
        """

        def evaluate(key: SourceTopic, partition: PartitionLag) -> PartitionLag:
            number, lag, now_s = partition.partition, partition.unread, measure_time.now_s
            if lag is None or partition.status == "DATA_LOSS":
                return partition
            verdict = None
            if lag > allowed_lag:
                verdict = self._verdict(key, number, lag, now_s, allowed_lag, least_s)
            if verdict is None:
                verdict = Verdict("OK", partition.reason if partition.status == "OK" else None)
            if verdict == (partition.status, partition.reason):
                return partition
            return replace(partition, status=verdict.status, reason=verdict.reason)

        return [
            replace(topic, partitions=[evaluate(_key(topic), p) for p in topic.partitions])
            for topic in topics
        ]

    def _verdict(
        self,
        key: SourceTopic,
        number: int,
        lag: int,
        now_s: float,
        allowed_lag: int,
        least_s: float,
    ) -> Verdict | None:
        """Rules 2 to 5. None: OK."""
        commits = self.commits[key].get(number, ())
        if not commits:
            return None
        first, last = commits[0], commits[-1]
        inherited = self.inherited.get(key, {}).get(number)
        since_s, lasted_s = now_s - last.at_s, last.at_s - first.at_s
        if first.is_first_read or len(commits) == 1:
            lasted_s = max(lasted_s, least_s)
        if since_s > lasted_s and not self._was_at_end(key, number, last.offset):
            reason = (
                f"no commit for {span(since_s)}, {span(lasted_s)} is allowed;"
                f" lag is {lag:,} records"
            )
            # The group runs if it commits other partitions.
            return Verdict("STOP" if now_s - self.committed_s > lasted_s else "STALL", reason)
        if inherited is not None and last.is_first_read:
            return inherited
        farthest = _went_back_from([commit.offset for commit in commits])
        if farthest is not None:
            reason = f"went back from offset {farthest}, now at offset {last.offset}"
            return Verdict("REWIND", reason)
        lags = [commit.lag for commit in commits if commit.lag is not None]
        if any(lag <= allowed_lag for lag in lags):
            return None
        if len(lags) < 2:
            return inherited if inherited is not None and inherited.status == "WARN" else None
        if all(newer >= older for older, newer in pairwise(lags)):
            reason = f"lag has not fallen in {len(commits)} commits"
            return Verdict("WARN", f"{reason}: from {lags[0]:,} to {lags[-1]:,} records")
        return None

    def _was_at_end(self, key: SourceTopic, number: int, offset: int) -> bool:
        """Returns whether a recent log end was at `offset` or before it."""
        ends = (sample.latest.get(key, {}).get(number) for sample in self.ends)
        return any(end is not None and end <= offset for end in ends)


def inherited_window(event: LagEvent, measure_time: MeasureTime) -> CommitWindow:
    """The window of a group that another instance measured: the last commit of each partition, and
    the offset it was rewound from."""
    at_ms = event.processed_at or event.status_since or event.measured_at
    at_s = min(measure_time.now_s, measure_time.monotonic_s(at_ms))
    commits: dict[SourceTopic, dict[int, tuple[Commit, ...]]] = {}
    verdicts: dict[SourceTopic, dict[int, Verdict]] = {}
    for topic in event.topics:
        of_topic = commits[_key(topic)] = {}
        verdicts_of_topic = verdicts[_key(topic)] = {}
        for partition in topic.partitions:
            offsets = [partition.processed_offset]
            if partition.status == "REWIND":
                offsets.insert(0, partition.rewound_from)
            of_topic[partition.partition] = tuple(
                Commit(at_s, offset, None, True) for offset in offsets if offset is not None
            )
            if partition.status in _FROM_WINDOW:
                verdict = Verdict(partition.status, partition.reason)
                verdicts_of_topic[partition.partition] = verdict
    return CommitWindow(commits, (), verdicts, at_s)


def _key(topic: TopicLag) -> SourceTopic:
    return topic.source, topic.topic


def _went_back_from(offsets: Sequence[int]) -> int | None:
    """The offset before the first step back. None: no step back, or it was reached again."""
    for index, (before, offset) in enumerate(pairwise(offsets)):
        if offset < before:
            return before if all(later < before for later in offsets[index + 1 :]) else None
    return None
