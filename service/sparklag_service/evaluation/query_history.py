"""The history of a query: its last commits, and since when lags have grown. Pure.

A *commit* is a completed micro-batch, an epoch of continuous processing, or a commit of a consumer
group. Its time is when this service observed it, by `time.monotonic()`: the drivers' clocks differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparklag_schemas import Batch, LagEvent, Thresholds, TopicLag
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.text.formatting import OVERDUE, span
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_measure import MeasuredQuery
from sparklag_service.evaluation.trends import (
    LagRise,
    TopicTrends,
    alarms_by_trend,
    extended,
    resume_rise,
    resume_trends,
)
from sparklag_service.tracking.query_state import QueryState

RECENT_S: Final = 60.0
"""The period of rates, if it has enough commits."""
_ARRIVALS_EVERY_S: Final = 5.0
ALARM_AGE_S: Final = 30.0
_OVERDUE_S: Final = 30.0
_EVIDENT_INTERVALS: Final = 3
_ALARM_INTERVALS: Final = 2
"""An unread record is at most one interval and one batch old, where batches have fixed times."""

_NO_COMMIT: Final = (None, None)

SourceTopic = tuple[int, str]
"""Index of a source, and a topic."""


class CommitSample(NamedTuple):
    """A commit, and the counts up to it."""

    at_s: float
    waited_s: float | None
    """Since the previous commit, or since the query was idle. None: the first commit."""
    batches: int
    """Batches completed since the previous commit: not every batch is reported."""
    duration_s: float | None
    moved: int
    arrived: int


class ArrivalSample(NamedTuple):
    at_s: float
    records: int


class UsualTimes(NamedTuple):
    """The usual times of the last batches, seconds."""

    batch_s: float | None = None
    """95th percentile of their durations."""
    interval_s: float | None = None
    """Median time from the end of a batch to the end of the next."""

    @property
    def longest_s(self) -> float:
        """The longer of the two. 0: neither is known."""
        return max(self.interval_s or 0.0, self.batch_s or 0.0)


class QueryHistory(Struct, frozen=True, kw_only=True):
    """The past of a query, for rates and rules."""

    at_s: float
    """Time of the last measurement."""
    commit_key: tuple[int | None, int | None]
    """The batch, or its time where batches have no numbers. A changed key means a new commit."""
    idle_key: int = 0
    commits: tuple[CommitSample, ...] = ()
    first_read_s: float | None = None
    """When the offsets of a group were first read: it committed them at that time or earlier. None:
    a later commit was observed."""
    idle_s: float | None = None
    """When the query last reported that it is idle."""
    behind_since_s: float | None = None
    """Since when some partition lags more than is allowed. None: no partition does."""
    moved: int = 0
    arrived: int = 0
    arrivals: tuple[ArrivalSample, ...] = ()
    """Arrivals in the last minute, some seconds apart."""
    trends: Mapping[SourceTopic, TopicTrends] = {}
    earlier: Mapping[SourceTopic, TopicLag] = {}
    """The lag at an earlier commit, at least a minute ago if possible."""
    earlier_s: float = 0.0
    lag: int | None = None
    """Lag of the whole query, after the last commit at which it was known."""
    rise: LagRise | None = None
    is_resumed: bool = False
    """True: another instance observed its commits up to a few intervals ago. The first commits
    after a hand-over are observed late, and their lag is too high to tell that a later one fell."""
    has_evidence: bool = False
    """True: a commit was observed, or there was nothing to read."""
    usual: UsualTimes = UsualTimes()
    """Measured by this instance or its predecessor."""
    alarmed_age_s: float | None = None
    """The lowest `alarm_age_s` since a trend is an alarm. None: none is."""

    def alarm_age_s(self) -> float:
        """The age that records of the query must have before its past is a reason for an alarm."""
        return max(ALARM_AGE_S, _ALARM_INTERVALS * self.usual.longest_s)

    def has_rates(self) -> bool:
        """Returns whether the rates cover enough commits to be evidence against a verdict."""
        return len(self.commits) > _EVIDENT_INTERVALS

    def recent(self) -> Sequence[CommitSample]:
        """The commits that rates are computed from: those of the last minute, or of the last three
        intervals if those took longer."""
        last = len(self.commits) - 1
        for first in range(last - _EVIDENT_INTERVALS, 0, -1):
            if self.commits[last].at_s - self.commits[first].at_s >= RECENT_S:
                return self.commits[first:]
        return self.commits

    def overdue(self, state: QueryState, thresholds: Thresholds) -> str | None:
        """Why the next commit is overdue: it has taken `stall_factor` times as long as usual, and
        30 s. None: it is not, or the usual time is not known."""
        batch = state.running_batch
        waits, usual_s = f"no {traits_of(state.origin).step} for", self.usual.longest_s
        since_s = self.stalled_since_s()
        taken_s = 0.0 if since_s is None else self.at_s - since_s
        if batch is not None and self.usual.batch_s is not None:
            waits, usual_s = "the running batch has taken", self.usual.batch_s
            taken_s = (batch.observed_at - batch.started_at) / 1000
        if not usual_s or taken_s <= max(_OVERDUE_S, thresholds.stall_factor * usual_s):
            return None
        return f"{OVERDUE}: {waits} {span(taken_s)}, usually {span(usual_s)}"

    def stalled_since_s(self) -> float | None:
        """Since when the query lags, is not idle and completes nothing. None: it does not lag, or
        has never completed anything."""
        last_s = self.commits[-1].at_s if self.commits else self.first_read_s
        if last_s is None or self.behind_since_s is None:
            return None
        return max(last_s, self.behind_since_s, self.idle_s or self.behind_since_s)


def start_history(state: QueryState, measure_time: MeasureTime) -> QueryHistory:
    """The history of a query without an earlier measurement."""
    history = QueryHistory(
        at_s=measure_time.now_s,
        commit_key=_NO_COMMIT,
        idle_key=state.idle_at_ms,
        first_read_s=measure_time.now_s if traits_of(state.origin).commits_offsets else None,
    )
    return moved_history(history, state, measure_time)


def moved_history(
    history: QueryHistory, state: QueryState, measure_time: MeasureTime
) -> QueryHistory:
    """The history of a query whose checkpoint is read at another location now: its last commit
    there was not made now."""
    history = replace(history, commit_key=_key(state))
    return _with_last_commit(history, measure_time, state.processed_at, _duration_s(state.batch))


def resume_history(event: LagEvent, measure_time: MeasureTime) -> QueryHistory:
    """The history of a query that another instance measured, as far as its last event contains it.

    The verdicts on its past (STALL, WARN) hold until contrary evidence. Time in which nobody
    measured is no evidence of a stall.
    """
    now_s = measure_time.now_s
    measured_s = min(now_s, measure_time.monotonic_s(event.measured_at))
    behind_since_s = measured_s - (event.max_time_lag_s or 0.0) if event.total_lag else None
    if event.behind_since is not None:
        behind_since_s = now_s - max(0, event.measured_at - event.behind_since) / 1000
    first_read_s = None
    if traits_of(event.origin).commits_offsets:
        # Without `processed_at` no commit was observed: the status is as old as the first read.
        status_since_s = measure_time.monotonic_s(event.status_since or event.measured_at)
        first_read_s = min(measured_s, status_since_s)
        if event.status in ("STALL", "STOP") and behind_since_s is not None:
            first_read_s = min(first_read_s, behind_since_s)
    history = QueryHistory(
        at_s=measured_s,
        commit_key=_key(event),
        first_read_s=first_read_s,
        # The change of owner must not raise an alarm: the query may have been idle. A group is
        # never idle.
        idle_s=None
        if first_read_s is not None or event.behind_since or event.status in ("STALL", "STOP")
        else measured_s,
        behind_since_s=behind_since_s,
        trends={
            (topic.source, topic.topic): resume_trends(topic, event, measure_time)
            for topic in event.topics
        },
        lag=event.total_lag,
        is_resumed=True,
        rise=resume_rise(
            event.rising_since,
            event.total_lag,
            event,
            is_alarm=event.status == "WARN" and alarms_by_trend(event),
        ),
        has_evidence=event.status != "UNKNOWN",
        usual=UsualTimes(event.usual_batch_s, event.usual_interval_s),
        # The usual times may have become longer since the alarm began.
        alarmed_age_s=ALARM_AGE_S if alarms_by_trend(event) else None,
    )
    processed_at = event.processed_at
    if processed_at is not None and event.behind_since is not None:
        # The driver's clock may be ahead.
        processed_at = min(processed_at, event.behind_since)
    return _with_last_commit(history, measure_time, processed_at, _duration_s(event.batch))


def advance_history(
    history: QueryHistory,
    state: QueryState,
    measured: MeasuredQuery,
    measure_time: MeasureTime,
    thresholds: Thresholds,
) -> QueryHistory:
    now_s, topics = measure_time.now_s, measured.topics
    is_idle = state.idle_at_ms != history.idle_key
    behind_since_s = history.behind_since_s
    if _is_behind(topics, thresholds.allowed_lag):
        behind_since_s = now_s if behind_since_s is None else behind_since_s
    elif behind_since_s is not None and _whole_lag(topics) is not None:
        behind_since_s = None
    arrived = history.arrived + measured.arrived
    is_read = state.has_position and all(topic.total_lag == 0 for topic in topics)
    history = replace(
        history,
        at_s=now_s,
        idle_key=state.idle_at_ms,
        idle_s=now_s if is_idle else history.idle_s,
        behind_since_s=behind_since_s,
        has_evidence=history.has_evidence or is_read,
        moved=history.moved + measured.moved,
        arrived=arrived,
        arrivals=_with_arrivals(history.arrivals, ArrivalSample(now_s, arrived)),
    )
    if _key(state) == history.commit_key:
        return history
    return _with_commit(history, state, topics, measure_time, thresholds)


def _with_commit(
    history: QueryHistory,
    state: QueryState,
    topics: Sequence[TopicLag],
    measure_time: MeasureTime,
    thresholds: Thresholds,
) -> QueryHistory:
    waited_s = None
    before_s = now_s = measure_time.now_s
    committed_s = now_s - _age_s(state)
    if history.commit_key == _NO_COMMIT and state.processed_at is not None:
        committed_s = min(now_s, measure_time.monotonic_s(state.processed_at))
    if history.commits:
        before_s = history.commits[-1].at_s
        committed_s = max(committed_s, before_s)
        waited_s = max(0.0, committed_s - max(before_s, history.idle_s or before_s))
    batches = 1
    if state.batch_id is not None and history.commit_key[0] is not None:
        batches = max(1, state.batch_id - history.commit_key[0])
    commit = CommitSample(
        committed_s, waited_s, batches, _duration_s(state.batch), history.moved, history.arrived
    )
    of_group = traits_of(state.origin).commits_offsets
    lag, rise = _whole_lag(topics), history.rise
    lags = [each for each in (lag, history.lag) if each is not None]
    # A group commits its partitions one by one, so an uncommitted partition is no rise.
    if of_group or min(lags, default=1 + thresholds.allowed_lag) <= thresholds.allowed_lag:
        rise = None
    elif lag is not None:
        since_ms, is_resumed = measure_time.epoch_ms(before_s), history.is_resumed
        rise = extended(rise, lag, history.lag, since_ms, thresholds, is_resumed=is_resumed)
    trends = {}
    for topic in topics:
        key = (topic.source, topic.topic)
        of_topic = history.trends.get(key, TopicTrends())
        trends[key] = of_topic.after(
            topic,
            thresholds,
            measure_time,
            before_s,
            of_group=of_group,
            is_resumed=history.is_resumed,
        )
    earlier, earlier_s = history.earlier, history.earlier_s
    if not earlier or now_s - earlier_s > 2 * RECENT_S:
        earlier = {key: of.last for key, of in history.trends.items() if of.last}
        earlier_s = before_s
    commits = _with_commits(history, commit)[-thresholds.window :]
    is_resumed = history.is_resumed and len(commits) <= _EVIDENT_INTERVALS
    return replace(
        history,
        commit_key=_key(state),
        commits=commits,
        usual=history.usual if is_resumed or len(commits) == 1 else _usual(commits),
        trends=trends,
        earlier=earlier,
        earlier_s=earlier_s,
        lag=lag if lag is not None else history.lag,
        rise=rise,
        is_resumed=is_resumed,
        # A first position may be of an old batch.
        has_evidence=history.has_evidence or history.commit_key != _NO_COMMIT,
    )


def _with_commits(history: QueryHistory, commit: CommitSample) -> tuple[CommitSample, ...]:
    """The commits with one more. Those made while nobody measured are observed all at once after a
    hand-over, and count as one: their number is what is usual for that time."""
    commits, usual_s = history.commits, history.usual.interval_s
    if history.is_resumed and len(commits) > 1 and usual_s:
        last = commits[-1]
        merged = commit._replace(
            waited_s=(commit.waited_s or 0.0) + (last.waited_s or 0.0),
            batches=commit.batches + last.batches,
        )
        usually = 1 + (commit.at_s - commits[-2].at_s) / usual_s
        if commit.at_s - last.at_s < usual_s / 2 and merged.batches <= usually:
            return (*commits[:-1], merged)
    return (*commits, commit)


def _age_s(state: QueryState) -> float:
    """How long ago the driver made the last commit when it wrote its last message, by its own
    clock: after an outage a commit is observed long after it was made."""
    if state.processed_at is None or traits_of(state.origin).is_checkpoint:
        return 0.0
    return max(0, state.driver_written_at_ms - state.processed_at) / 1000


def _whole_lag(topics: Sequence[TopicLag]) -> int | None:
    """The lag of the query. None: that of some partition is not known."""
    lags = [partition.lag for topic in topics for partition in topic.partitions]
    return sum(topic.total_lag or 0 for topic in topics) if None not in lags else None


def _usual(commits: Sequence[CommitSample]) -> UsualTimes:
    intervals = [c.waited_s / c.batches for c in commits if c.waited_s is not None]
    durations = sorted(c.duration_s for c in commits if c.duration_s is not None)
    return UsualTimes(
        # Nearest rank.
        batch_s=durations[ceil(0.95 * len(durations)) - 1] if durations else None,
        interval_s=median(intervals) if intervals else None,
    )


def _with_last_commit(
    history: QueryHistory,
    measure_time: MeasureTime,
    processed_at_ms: int | None,
    duration_s: float | None,
) -> QueryHistory:
    if processed_at_ms is None:
        return history
    at_s = min(measure_time.now_s, measure_time.monotonic_s(processed_at_ms))
    last = CommitSample(at_s, None, 1, duration_s, history.moved, history.arrived)
    return replace(history, commits=(last,))


def _with_arrivals(
    arrivals: tuple[ArrivalSample, ...], now: ArrivalSample
) -> tuple[ArrivalSample, ...]:
    """Adds an arrival if the last is some seconds old. Keeps one of those older than a minute."""
    if arrivals and now.at_s - arrivals[-1].at_s < _ARRIVALS_EVERY_S:
        return arrivals
    first = 0
    while first + 1 < len(arrivals) and arrivals[first + 1].at_s <= now.at_s - RECENT_S:
        first += 1
    return (*arrivals[first:], now)


def _is_behind(topics: Sequence[TopicLag], allowed_lag: int) -> bool:
    return any(
        topic.total_lag
        and (not allowed_lag or any((p.unread or 0) > allowed_lag for p in topic.partitions))
        for topic in topics
    )


def _key(query: QueryState | LagEvent) -> tuple[int | None, int | None]:
    # A driver and its checkpoint have different times for the same batch.
    return query.batch_id, query.processed_at if query.batch_id is None else None


def _duration_s(batch: Batch | None) -> float | None:
    if batch is None or batch.duration_ms is None:
        return None
    return batch.duration_ms / 1000
