"""Burrow's own rules, for ordinary consumer groups: `evaluator = "burrow"`. Pure.

As LinkedIn's Burrow evaluates (its wiki's "Consumer Lag Evaluation Rules", and its caching
evaluator), the first that holds: 1. the lag is allowed: OK. 2. no commit for longer than the window
lasted, and the log ended behind the position all the while: STOP. 3. went back, and is not there
again: REWIND. 4. some lag of the window is allowed: OK. 5. the offset is the same in all of it:
STALL. 6. the lag never fell: WARN; else OK.

Burrow reads each commit. Here a group's offsets are asked for at intervals: a commit is seen
where it changes one of them, and counts for all of the group's partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparklag_schemas import LagEvent, Status, Thresholds, TopicLag
from sparklag_schemas.formatting import span
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.finding import Finding
from sparklag_service.evaluation.query_history import Place
from sparklag_service.tracking.query_state import QueryState

_ENDS: Final = 10
_ENDS_EVERY_S: Final = 10.0
"""Burrow's defaults: `intervals`, `offset-refresh`."""
_SAID: Final[tuple[Status, ...]] = ("WARN", "STALL", "STOP", "REWIND")


class Committed(NamedTuple):
    """What was committed for a partition, and its lag then. None: not known."""

    offset: int
    lag: int | None


class Commit(NamedTuple):
    """One of the group."""

    at_s: float
    """`time.monotonic()`."""
    partitions: Mapping[Place, Mapping[int, Committed]]


class Ends(NamedTuple):
    """Where the logs ended."""

    at_s: float
    partitions: Mapping[Place, Mapping[int, int]]


@dataclass(frozen=True)
class Window:
    """A group's last commits, and the last log ends; the oldest first."""

    commits: tuple[Commit, ...] = ()
    ends: tuple[Ends, ...] = ()
    said: Mapping[Place, Mapping[int, Finding]] = field(default_factory=dict)
    """By the instance that measured it before: stays until there are two commits to look at."""
    processed_at_ms: int | None = None

    def after(
        self, state: QueryState, topics: Sequence[TopicLag], moment: Moment, size: int
    ) -> Window:
        """One measurement on; `size` commits are kept."""
        commits, ends = self.commits, self.ends
        if not ends or moment.now_s - ends[-1].at_s >= _ENDS_EVERY_S:
            ends = (*ends[1 - _ENDS :], Ends(moment.now_s, _ends(topics)))
        if state.processed_at_ms is not None and state.processed_at_ms != self.processed_at_ms:
            at_s = min(moment.now_s, moment.monotonic_s(state.processed_at_ms))
            if commits:
                at_s = max(at_s, commits[-1].at_s)
            commits = (*commits[1 - size :], Commit(at_s, _committed(topics)))
        return Window(commits, ends, self.said, state.processed_at_ms)

    def judge(self, topics: Sequence[TopicLag], moment: Moment, thresholds: Thresholds) -> None:
        """Say of each partition whose lag is known what the rules do, in place."""
        allowed_lag = thresholds.allowed_lag
        for topic in topics:
            place = (topic.source, topic.topic)
            for index, one in enumerate(topic.partitions):
                if one.lag is None:
                    continue
                found = None
                if one.lag > allowed_lag:
                    found = self._finding(place, one.partition, one.lag, moment.now_s, allowed_lag)
                if found is None:
                    found = Finding("OK", one.reason if one.status == "OK" else None)
                if (found.status, found.reason) != (one.status, one.reason):
                    topic.partitions[index] = replace(one, status=found.status, reason=found.reason)

    def _finding(
        self, place: Place, number: int, lag: int, now_s: float, allowed_lag: int
    ) -> Finding | None:
        """Rules 2 to 6. None: all is well."""
        commits: list[Committed] = []
        times_s: list[float] = []
        for commit in self.commits:
            one = commit.partitions.get(place, {}).get(number)
            if one is not None:
                commits.append(one)
                times_s.append(commit.at_s)
        if len(commits) < 2:
            return self.said.get(place, {}).get(number)
        waits = f"{lag:,} records wait"
        last = commits[-1].offset
        stands_s, lasted_s = now_s - times_s[-1], times_s[-1] - times_s[0]
        if stands_s > lasted_s and not self._was_at_end(place, number, last):
            took = f"the {len(commits)} before took {span(lasted_s)}"
            return Finding("STOP", f"no commit for {span(stands_s)}, {took}; {waits}")
        farthest = _went_back_from([one.offset for one in commits])
        if farthest is not None:
            told = f"went back from {farthest} to older offsets, it is at {last}"
            return Finding("REWIND", told)
        lags = [one.lag for one in commits if one.lag is not None]
        if any(one <= allowed_lag for one in lags):
            return None
        if all(one.offset == last for one in commits):
            return Finding("STALL", f"has not moved in {len(commits)} commits, {waits}")
        if all(lag >= before for before, lag in pairwise(lags)):
            told = f"lag has not fallen in {len(commits)} commits"
            return Finding("WARN", f"{told}: from {lags[0]:,} to {lags[-1]:,} records")
        return None

    def _was_at_end(self, place: Place, number: int, offset: int) -> bool:
        """Whether the log ended there, or before, a short time ago."""
        known = (ends.partitions.get(place, {}).get(number) for ends in self.ends)
        return any(end is not None and end <= offset for end in known)


def window_of(event: LagEvent) -> Window:
    """The window of a group that was measured by another instance."""
    said = {
        (topic.source, topic.topic): {
            one.partition: Finding(one.status, one.reason)
            for one in topic.partitions
            if one.status in _SAID
        }
        for topic in event.topics
    }
    return Window(said=said, processed_at_ms=event.processed_at)


def _committed(topics: Sequence[TopicLag]) -> Mapping[Place, Mapping[int, Committed]]:
    return {
        (topic.source, topic.topic): {
            one.partition: Committed(one.processed_offset, one.lag)
            for one in topic.partitions
            if one.processed_offset is not None
        }
        for topic in topics
    }


def _ends(topics: Sequence[TopicLag]) -> Mapping[Place, Mapping[int, int]]:
    return {
        (topic.source, topic.topic): {
            one.partition: one.latest_offset
            for one in topic.partitions
            if one.latest_offset is not None
        }
        for topic in topics
    }


def _went_back_from(offsets: Sequence[int]) -> int | None:
    """Where it was before it went back the first time. None: it did not, or is there again."""
    for index, (before, offset) in enumerate(pairwise(offsets)):
        if offset < before:
            return before if all(later < before for later in offsets[index + 1 :]) else None
    return None
