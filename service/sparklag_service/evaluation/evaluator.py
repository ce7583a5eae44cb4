"""Computes lag from positions and offsets. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from sparklag_schemas import (
    Batch,
    LagEvent,
    MeasuredBy,
    PartitionLag,
    Settings,
    Status,
    Thresholds,
    TopicLag,
)
from sparklag_schemas.messages.bounds import MAX_RATE, bounded, bounded_s
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.observation import QueryMessage
from sparklag_schemas.messages.query_names import has_ended
from sparklag_service.enrichment.cluster_offsets import MeasureTime, OffsetsByCluster
from sparklag_service.evaluation.burrow import CommitWindow, inherited_window
from sparklag_service.evaluation.query_history import (
    QueryHistory,
    SourceTopic,
    advance_history,
    moved_history,
    start_history,
)
from sparklag_service.evaluation.query_measure import measure_query
from sparklag_service.evaluation.rates import Rates, catch_up, headroom_of, rates_of
from sparklag_service.evaluation.status import Evidence, patience_s, query_status
from sparklag_service.evaluation.topic_measure import unread_records, with_partitions
from sparklag_service.evaluation.trends import FLAGS, TopicTrends, alarms_by_trend
from sparklag_service.tracking.query_state import QueryState, identity, query_fields


@dataclass(frozen=True)
class EvaluatedQuery:
    """A query's last event, and the history it was computed from."""

    event: LagEvent
    history: QueryHistory
    window: CommitWindow | None = None
    """The commits of a group that Burrow's rules evaluate."""
    thresholds: Thresholds | None = None
    """The thresholds of `event.query`. None: not looked up yet."""


@dataclass(frozen=True)
class Evaluator:
    """Makes lag events that carry `measured_by`.

    A latest offset older than `latest_max_age_s` does not count. `thresholds_of` takes a query's
    name and id. Burrow's own rules evaluate the consumer groups of `burrow_clusters`.
    """

    measured_by: MeasuredBy
    latest_max_age_s: float
    thresholds_of: Callable[[str | None, str], Thresholds] = Settings().thresholds_of
    burrow_clusters: Container[str] = ()
    home: str = ""
    """Alias of the cluster of `own_topics`, the topics of sparklag."""
    own_topics: frozenset[str] = frozenset()
    instance: str | None = None

    def evaluate(
        self,
        state: QueryState,
        offsets: OffsetsByCluster,
        measure_time: MeasureTime,
        *,
        event_id: str,
        cause: str,
        previous: EvaluatedQuery | None = None,
        silent: bool = False,
    ) -> EvaluatedQuery:
        """The lag of a query: `latest - processed` of each partition, what of it is left to read,
        the sum of that, and the figures that follow from the query's history.

        `previous`: its last evaluation. `silent`: the driver has sent nothing for longer than a
        living driver pauses; without a driver, the checkpoint or group was unreadable for as long.
        """
        last = previous.event if previous is not None else None
        thresholds = previous.thresholds if previous is not None else None
        if thresholds is None or last is None or last.query != state.query:
            thresholds = self.thresholds_of(state.query, state.query_id)
        before = previous.history if previous is not None else start_history(state, measure_time)
        if last is not None and _is_moved(state, last):
            before = moved_history(before, state, measure_time)
        since_s = max(0.0, measure_time.now_s - before.at_s)
        measured = measure_query(state, offsets, measure_time, self.latest_max_age_s, last, since_s)
        lag = _query_lag(measured.topics)
        history = advance_history(before, state, measured, measure_time, thresholds)
        headroom = headroom_of(measured.topics, history, measure_time)
        rates = rates_of(history, history.overdue(state, thresholds))
        is_alarm = last is not None and alarms_by_trend(last)
        least_age_s = alarm_age_s = history.alarm_age_s()
        if is_alarm:
            # A longer usual interval ends no alarm.
            least_age_s = min(before.alarmed_age_s or before.alarm_age_s(), alarm_age_s)
        if history.alarmed_age_s != (least_age_s if is_alarm else None):
            history = replace(history, alarmed_age_s=least_age_s if is_alarm else None)
        was = last.status if last is not None else None
        if was == "WARN" and not is_alarm:
            # A limit alone: nothing of a trend to end.
            was = "OK"
        gets_better = _gets_better(history, rates, lag.total, state.batch, was)
        window = self._window(state, measured.topics, measure_time, thresholds, previous)
        if window is None:
            is_commit = history.trends is not before.trends
            trends = {
                key: of_topic
                for key, of_topic in history.trends.items()
                # Between two commits each partition keeps its `rising_since`.
                if of_topic.flags or (is_commit and (of_topic.rises or of_topic.had_rises))
            }
            topics = _with_trends(
                measured.topics,
                trends,
                (alarm_age_s, least_age_s),
                last,
                measure_time,
                gets_better=gets_better,
            )
        else:
            usual_s = (thresholds.window - 1) * (history.usual.interval_s or 0.0)
            least_s = max(patience_s(state, history.usual, thresholds), usual_s)
            topics = window.judged(measured.topics, measure_time, thresholds.allowed_lag, least_s)
        for index, unassigned in measured.unassigned.items():
            of_topic = sorted((*topics[index].partitions, *unassigned), key=lambda p: p.partition)
            topics[index] = with_partitions(topics[index], of_topic)
        partitions = [partition for topic in topics for partition in topic.partitions]
        evidence = Evidence(
            state,
            history,
            thresholds,
            measure_time,
            lag.total,
            lag.max_time_s,
            headroom,
            least_age_s,
            [
                partition.open_transaction
                for topic in topics
                if topic.isolation_level == "read_committed"
                for partition in topic.partitions
                if partition.open_transaction is not None
            ],
            gets_better=gets_better,
            silent=silent,
            home=self.home,
            own_topics=self.own_topics,
            is_window_judged=window is not None,
        )
        status, reason = query_status(evidence, partitions, measured.unmeasured)
        run_status: Status = "FINISHED" if state.ended else status
        rates = rates.at_status(run_status)
        is_group = traits_of(state.origin).commits_offsets
        catch_up_s, catch_up_reason = catch_up(lag.total, rates, state.batch, run_status)
        fields = query_fields(state)
        is_gone = has_ended(run_status)
        if is_gone:
            # A driver that is gone runs no batch.
            fields.update(running_batch=None, activity=None)
        behind_since_s = history.stalled_since_s()
        max_time_lag_s = lag.max_time_s
        if measured.unassigned:
            lag, of_members = _query_lag(topics), lag
            if lag.total != of_members.total:
                catch_up_s, catch_up_reason = None, "no member reads all of it"
        event = LagEvent(
            **fields,
            event_id=event_id,
            cause=cause,
            measured_by=self.measured_by,
            instance=self.instance,
            status=status,
            status_since=_status_since(status, last, measure_time),
            reason=reason,
            total_lag=lag.total,
            max_lag=lag.max,
            max_time_lag_s=max_time_lag_s,
            in_flight=None if is_gone else _in_flight(state, partitions),
            unread_estimate=None if is_gone else _unread_estimate(state, lag.total),
            unknown_partitions=len(partitions) - lag.partitions,
            lost_records=bounded(sum([p.lost_records for p in partitions if p.lost_records])),
            skew=lag.skew,
            processed_rate=_rounded(rates.processed),
            input_rate=_rounded(rates.input),
            batch_rate=_rounded(rates.batch),
            commit_rate=_rounded(rates.commits) if is_group else None,
            lag_trend=_rounded(rates.trend),
            catch_up_s=bounded_s(catch_up_s),
            catch_up_reason=catch_up_reason,
            min_headroom_records=headroom.records,
            min_headroom_s=headroom.seconds,
            loss_expected_at=headroom.loss_expected_at_ms,
            behind_since=None
            if behind_since_s is None
            else max(0, measure_time.epoch_ms(behind_since_s)),
            rising_since=None if history.rise is None else history.rise.since_ms,
            usual_batch_s=_rounded(history.usual.batch_s),
            usual_interval_s=_rounded(history.usual.interval_s),
            other_run_id=state.other_run_id,
            runs=state.runs,
            observation_offset=state.observation_offset,
            measured_at=_measured_at(state, last, measure_time),
            topics=topics,
        )
        return EvaluatedQuery(event, history, window, thresholds)

    def _window(
        self,
        state: QueryState,
        topics: Sequence[TopicLag],
        measure_time: MeasureTime,
        thresholds: Thresholds,
        previous: EvaluatedQuery | None,
    ) -> CommitWindow | None:
        """The window of commits, if Burrow's rules evaluate this group."""
        if state.cluster not in self.burrow_clusters or not traits_of(state.origin).commits_offsets:
            return None
        window = CommitWindow()
        if previous is not None:
            window = previous.window or inherited_window(previous.event, measure_time)
        return window.after(state, topics, measure_time, thresholds.window)


def _is_moved(state: QueryState, last: LagEvent) -> bool:
    """Returns whether, without a driver, another copy of the checkpoint is read now."""
    locations = state.checkpoint_location, last.checkpoint_location
    return state.run_id is None and None not in locations and locations[0] != locations[1]


class _QueryLag(NamedTuple):
    total: int | None
    max: int | None
    max_time_s: float | None
    partitions: int
    """Number of partitions with a known lag."""

    @property
    def skew(self) -> float | None:
        """The largest lag as a share of the total."""
        if not self.total or not self.max or self.partitions < 2:
            return None
        return round(self.max / self.total, 3)


def _query_lag(topics: Sequence[TopicLag]) -> _QueryLag:
    totals = [topic.total_lag for topic in topics if topic.total_lag is not None]
    lags = [p.lag for topic in topics for p in topic.partitions if p.lag is not None]
    ages = [p.time_lag_s for topic in topics for p in topic.partitions if p.time_lag_s is not None]
    total = bounded(sum(totals)) if totals else None
    # The usual case, without calls: all of it is left to read.
    if total != sum(lags):
        lags = [lag for topic in topics for lag in unread_records(topic.partitions)]
    return _QueryLag(total, max(lags, default=None), max(ages, default=None), len(lags))


def _gets_better(
    history: QueryHistory, rates: Rates, lag: int | None, batch: Batch | None, was: str | None
) -> bool:
    """Returns whether the lag falls, or will be gone before its records are old. `was`: the last
    status, which an estimate does not end."""
    if not history.has_rates():
        # The predecessor's rates are why a rise was no alarm.
        return history.is_resumed and was == "OK"
    # Over a minute it may fall, and yet be higher than ever after the last batch.
    if rates.lag_falls and not (history.rise is not None and history.lag == history.rise.peak):
        return True
    catch_up_s, _ = catch_up(lag, rates, batch, "OK")
    is_soon = catch_up_s is not None and catch_up_s <= history.alarm_age_s()
    return is_soon and was in (None, "OK", "UNKNOWN")


def unknown_event(
    message: QueryMessage, measured_by: str, now_ms: int, *, event_id: str, reason: str | None
) -> LagEvent:
    """The event of a query that cannot be evaluated: its identity without numbers, since any of
    them may be wrong."""
    return LagEvent(
        **identity(message),
        event_id=event_id,
        cause="refresh",
        measured_by=measured_by,
        status="UNKNOWN",
        reason=reason,
        measured_at=now_ms,
        topics=[],
    )


def _with_trends(
    topics: Sequence[TopicLag],
    trends: Mapping[SourceTopic, TopicTrends],
    ages_s: tuple[float, float],
    last: LagEvent | None,
    measure_time: MeasureTime,
    *,
    gets_better: bool,
) -> list[TopicLag]:
    """Topics with `rising_since`, and the verdicts on the past of their partitions: for partitions
    that are OK and have old enough records; no WARN if the lag of the query `gets_better`.
    `ages_s`: what is old enough to begin, and to stay.

    A minimum age is no evidence against the verdict in the `last` event: its records may be older.
    Nor is a lag that cannot be measured.
    """
    were = {
        (topic.source, topic.topic, partition.partition): partition.status
        for topic in (last.topics if last is not None and trends else ())
        for partition in topic.partitions
        if partition.status in FLAGS
    }

    def with_trend(topic: TopicLag, partition: PartitionLag, of_topic: TopicTrends) -> PartitionLag:
        number = partition.partition
        rise, status = of_topic.rises.get(number), of_topic.flags.get(number)
        since_ms = None if rise is None else rise.since_ms
        if status is not None and not (gets_better and status == "WARN"):
            was_same = were.get((topic.source, topic.topic, number)) == status
            is_floor = partition.time_lag_method == "floor"
            is_old = (partition.time_lag_s or 0) > ages_s[was_same] or (is_floor and was_same)
            is_unknown = partition.status == "UNKNOWN" and was_same
            if is_unknown or (partition.status == "OK" and is_old):
                reason = of_topic.reason(number, partition.unread, measure_time)
                if is_unknown:
                    reason = f"{reason}; {partition.reason}"
                return replace(partition, status=status, reason=reason, rising_since=since_ms)
        if since_ms != partition.rising_since:
            return replace(partition, rising_since=since_ms)
        return partition

    result = []
    for topic in topics:
        of_topic = trends.get((topic.source, topic.topic))
        if of_topic is not None:
            partitions = [with_trend(topic, each, of_topic) for each in topic.partitions]
            topic = replace(topic, partitions=partitions)
        result.append(topic)
    return result


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(max(-MAX_RATE, min(number, MAX_RATE)), 3)


def _measured_at(state: QueryState, last: LagEvent | None, measure_time: MeasureTime) -> int:
    """The version only rises, even if a clock was set back."""
    if last is not None and last.observed_at == state.observed_at:
        return max(measure_time.now_ms, last.measured_at + 1)
    return measure_time.now_ms


def _status_since(status: Status, last: LagEvent | None, measure_time: MeasureTime) -> int:
    if last is not None and last.status == status and last.status_since is not None:
        return last.status_since
    return measure_time.now_ms


def _unread_estimate(state: QueryState, total_lag: int | None) -> int | None:
    """Records of the lag that the running batch of a query in real-time mode has not read, as far
    as its tasks have reported: at most."""
    running = state.running_batch
    if state.mode != "real-time" or total_lag is None or running is None:
        return None
    follows = running.batch_id == (0 if state.batch_id is None else state.batch_id + 1)
    return max(0, total_lag - running.rows_read) if follows and running.rows_read else None


def _in_flight(state: QueryState, partitions: list[PartitionLag]) -> int | None:
    """Records of the running batch."""
    if state.planned_batch_id is None:
        return None
    return bounded(
        sum(
            max(0, partition.planned_offset - partition.processed_offset)
            for partition in partitions
            if partition.planned_offset is not None and partition.processed_offset is not None
        )
    )
