"""What a query did up to now: its last batches, and which lags have grown since when. Pure.

A *commit* is a completed micro-batch, an epoch of continuous processing, or a commit of a consumer
group. Times are `time.monotonic()`, by when this service saw it: the drivers' clocks are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparklag_schemas import Batch, LagEvent, Thresholds, TopicLag
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.finding import Finding, is_flag
from sparklag_service.evaluation.trends import Rise, Trends, risen
from sparklag_service.tracking.query_state import QueryState

RECENT_S: Final = 60.0
"""How far back rates look, where that is enough commits."""
_ARRIVALS_EVERY_S: Final = 5.0

Place = tuple[int, str]
"""Source and topic."""


class Commit(NamedTuple):
    """One that was seen, and what was counted up to it."""

    at_s: float
    waited_s: float | None
    """Since the one before, or since the query said that it was idle. None: of the first."""
    batches: int
    """That completed since the one before: some may not have been seen."""
    duration_s: float | None
    """Of a batch."""
    moved: int
    arrived: int


class Arrivals(NamedTuple):
    """Records that had come at a time."""

    at_s: float
    records: int


class Usual(NamedTuple):
    """What the last batches took, seconds."""

    batch_s: float | None = None
    """95th percentile of their durations."""
    interval_s: float | None = None
    """Median time from the end of one to that of the next."""


class QueryHistory(Struct, frozen=True, kw_only=True):
    """The past of a query, as rates and rules need it."""

    at_s: float
    """When it was measured last."""
    commit_key: tuple[int | None, int | None]
    """The batch, or where they have no numbers the time: another one is another commit."""
    idle_key: int = 0
    commits: tuple[Commit, ...] = ()
    idle_s: float | None = None
    """When it last said that there is nothing to do."""
    behind_since_s: float | None = None
    """Since when some partition lags more than is allowed. None: none does."""
    moved: int = 0
    arrived: int = 0
    arrivals: tuple[Arrivals, ...] = ()
    """Of the last minute, each some seconds after the other."""
    trends: Mapping[Place, Trends] = {}
    earlier: Mapping[Place, TopicLag] = {}
    """The lag at an earlier commit, a minute ago or more where there is one."""
    earlier_s: float = 0.0
    lag: int | None = None
    """Of the whole query, after the last commit."""
    rise: Rise | None = None
    """Of that."""
    flag: Finding | None = None
    """What follows from that."""
    usual: Usual = Usual()
    """What its batches take, by this instance or the one before it."""

    def recent(self) -> Sequence[Commit]:
        """The commits that rates are computed from: of the last minute, or the last three
        intervals where those took longer."""
        last = len(self.commits) - 1
        for first in range(last - 3, 0, -1):
            if self.commits[last].at_s - self.commits[first].at_s >= RECENT_S:
                return self.commits[first:]
        return self.commits

    def stands_since_s(self) -> float | None:
        """Since when it lags, is not idle and completes nothing. None: it does not lag, or has
        never completed anything."""
        if not self.commits or self.behind_since_s is None:
            return None
        return max(self.commits[-1].at_s, self.behind_since_s, self.idle_s or self.behind_since_s)


def begun(state: QueryState, moment: Moment) -> QueryHistory:
    """The course of a query that was never measured before."""
    return _with_last_commit(
        QueryHistory(at_s=moment.now_s, commit_key=_commit_key(state), idle_key=state.idle_at_ms),
        moment,
        state.processed_at_ms,
        _duration_s(state.batch),
    )


def resumed(event: LagEvent, moment: Moment) -> QueryHistory:
    """The course of a query that was measured by another instance: `event` says what it knew.

    What it says of the past (STALL, WARN) stays until the next commit.
    """
    measured_s = min(moment.now_s, moment.monotonic_s(event.measured_at))
    trends: dict[Place, Trends] = {}
    for topic in event.topics:
        flags = {
            one.partition: Finding(one.status, one.reason)
            for one in topic.partitions
            if is_flag(one.status)
        }
        if flags:
            trends[topic.source, topic.topic] = Trends(flags=flags)
    course = QueryHistory(
        at_s=measured_s,
        commit_key=_key(event.batch_id, event.processed_at),
        # What was no alarm then does not become one by the change of hands.
        idle_s=None if event.status in ("STALL", "STOP") else measured_s,
        behind_since_s=measured_s - (event.max_time_lag_s or 0.0) if event.total_lag else None,
        trends=trends,
        flag=Finding("WARN", event.reason) if event.status == "WARN" else None,
        usual=Usual(event.usual_batch_s, event.usual_interval_s),
    )
    return _with_last_commit(course, moment, event.processed_at, _duration_s(event.batch))


def advanced(
    course: QueryHistory,
    state: QueryState,
    topics: Sequence[TopicLag],
    moment: Moment,
    *,
    arrived: int,
    moved: int,
    thresholds: Thresholds,
) -> QueryHistory:
    """`course`, one measurement on: since the last one, records `arrived` and `moved` on."""
    now_s = moment.now_s
    is_idle = state.idle_at_ms != course.idle_key
    behind_since_s = None
    if _is_behind(topics, thresholds.allowed_lag):
        behind_since_s = now_s if course.behind_since_s is None else course.behind_since_s
    arrived += course.arrived
    course = replace(
        course,
        at_s=now_s,
        idle_key=state.idle_at_ms,
        idle_s=now_s if is_idle else course.idle_s,
        behind_since_s=behind_since_s,
        moved=course.moved + moved,
        arrived=arrived,
        arrivals=_with_arrivals(course.arrivals, Arrivals(now_s, arrived)),
    )
    if _commit_key(state) == course.commit_key:
        return course
    return _with_commit(course, state, topics, now_s, thresholds)


def _with_commit(
    course: QueryHistory,
    state: QueryState,
    topics: Sequence[TopicLag],
    now_s: float,
    thresholds: Thresholds,
) -> QueryHistory:
    waited_s = None
    before_s = now_s
    if course.commits:
        before_s = course.commits[-1].at_s
        waited_s = now_s - max(before_s, course.idle_s or before_s)
    batches = 1
    if state.batch_id is not None and course.commit_key[0] is not None:
        batches = max(1, state.batch_id - course.commit_key[0])
    commit = Commit(
        now_s, waited_s, batches, _duration_s(state.batch), course.moved, course.arrived
    )
    lag = sum(topic.total_lag or 0 for topic in topics)
    rise = None
    if course.lag is not None and min(lag, course.lag) > thresholds.allowed_lag:
        rise = risen(course.rise, lag, course.lag)
    flag = rise.finding(lag) if rise is not None and rise.is_trend(thresholds) else None
    trends = {
        (topic.source, topic.topic): course.trends.get((topic.source, topic.topic), Trends()).after(
            topic, thresholds
        )
        for topic in topics
    }
    earlier, earlier_s = course.earlier, course.earlier_s
    if not earlier or now_s - earlier_s > 2 * RECENT_S:
        earlier = {place: known.last for place, known in course.trends.items() if known.last}
        earlier_s = before_s
    commits = (*course.commits, commit)[-thresholds.window :]
    return replace(
        course,
        commit_key=_commit_key(state),
        commits=commits,
        usual=_usual(commits) if len(commits) > 1 else course.usual,
        trends=trends,
        earlier=earlier,
        earlier_s=earlier_s,
        lag=lag,
        rise=rise,
        flag=flag,
    )


def _usual(commits: Sequence[Commit]) -> Usual:
    intervals = [one.waited_s / one.batches for one in commits if one.waited_s is not None]
    durations = sorted(one.duration_s for one in commits if one.duration_s is not None)
    return Usual(
        # By the nearest rank.
        batch_s=durations[ceil(0.95 * len(durations)) - 1] if durations else None,
        interval_s=median(intervals) if intervals else None,
    )


def _with_last_commit(
    course: QueryHistory, moment: Moment, processed_at_ms: int | None, duration_s: float | None
) -> QueryHistory:
    if processed_at_ms is None:
        return course
    at_s = min(moment.now_s, moment.monotonic_s(processed_at_ms))
    return replace(course, commits=(Commit(at_s, None, 1, duration_s, 0, 0),))


def _with_arrivals(known: tuple[Arrivals, ...], now: Arrivals) -> tuple[Arrivals, ...]:
    """One more, where the last one is some seconds old; of those older than a minute, one."""
    if known and now.at_s - known[-1].at_s < _ARRIVALS_EVERY_S:
        return known
    first = 0
    while first + 1 < len(known) and known[first + 1].at_s <= now.at_s - RECENT_S:
        first += 1
    return (*known[first:], now)


def _is_behind(topics: Sequence[TopicLag], allowed_lag: int) -> bool:
    return any(
        topic.total_lag
        and (not allowed_lag or any((one.lag or 0) > allowed_lag for one in topic.partitions))
        for topic in topics
    )


def _commit_key(state: QueryState) -> tuple[int | None, int | None]:
    return _key(state.batch_id, state.processed_at_ms)


def _key(batch_id: int | None, processed_at_ms: int | None) -> tuple[int | None, int | None]:
    # A driver and its checkpoint say the time of one batch differently.
    return (batch_id, processed_at_ms if batch_id is None else None)


def _duration_s(batch: Batch | None) -> float | None:
    if batch is None or batch.duration_ms is None:
        return None
    return batch.duration_ms / 1000
