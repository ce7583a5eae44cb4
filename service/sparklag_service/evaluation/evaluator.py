"""Lag from positions and offsets. Pure functions: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from sparklag_schemas import (
    LagEvent,
    MeasuredBy,
    PartitionLag,
    Settings,
    Status,
    Thresholds,
    TopicLag,
)
from sparklag_schemas.bounds import MAX_RATE, bounded, bounded_s
from sparklag_schemas.origins import traits_of
from sparklag_service.enrichment.cluster_offsets import OffsetsByCluster
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.burrow import Window, window_of
from sparklag_service.evaluation.finding import FLAGS, Finding
from sparklag_service.evaluation.headroom import headroom
from sparklag_service.evaluation.query_history import Place, QueryHistory, advanced, begun
from sparklag_service.evaluation.query_measure import QueryMeasure
from sparklag_service.evaluation.rates import catch_up, rates
from sparklag_service.evaluation.status import past_findings, query_status
from sparklag_service.evaluation.trends import Trends
from sparklag_service.tracking.query_state import QueryState


@dataclass(frozen=True)
class Evaluated:
    """A query's last event, and the past that goes with it."""

    event: LagEvent
    course: QueryHistory
    window: Window | None = None
    """Of a group that Burrow's rules judge."""


@dataclass(frozen=True)
class Evaluator:
    """`measured_by` is said in each event; a latest offset older than `latest_max_age_s` does not
    count; thresholds are those of a query's name and id; `burrow_clusters` are those whose groups
    Burrow's own rules judge."""

    measured_by: MeasuredBy
    latest_max_age_s: float
    thresholds_of: Callable[[str | None, str], Thresholds] = Settings().thresholds_of
    burrow_clusters: Container[str] = ()

    def evaluate(
        self,
        state: QueryState,
        offsets: OffsetsByCluster,
        moment: Moment,
        *,
        event_id: str,
        cause: str,
        previous: Evaluated | None = None,
        silent: bool = False,
    ) -> Evaluated:
        """The lag of a query: `latest - processed` of each partition, their sum, and what its past
        makes of them.

        `previous` is where it was, in which topics, and what it did. `silent`: its driver has said
        nothing for longer than a living one does; without a driver, its checkpoint or the group
        could not be read for so long.
        """
        thresholds = self.thresholds_of(state.name, state.query_id)
        course = previous.course if previous is not None else begun(state, moment)
        last = previous.event if previous is not None else None
        measure = QueryMeasure(state, offsets, moment, self.latest_max_age_s, course)
        measure.take(last)
        topics, trends_before = measure.topics, course.trends
        course = advanced(
            course,
            state,
            topics,
            moment,
            arrived=measure.arrived,
            moved=measure.moved,
            thresholds=thresholds,
        )
        _flag_anew(topics, trends_before, course.trends)
        window = self._window(state, topics, moment, thresholds, previous)
        partitions = [one for topic in topics for one in topic.partitions]
        lags = [one.lag for one in partitions if one.lag is not None]
        ages = [one.time_lag_s for one in partitions if one.time_lag_s is not None]
        total_lag, max_lag = (bounded(sum(lags)), max(lags)) if lags else (None, None)
        max_time_lag_s = max(ages, default=None)
        room = headroom(topics, course, moment)
        past: Iterable[Finding] = ()
        if window is None:
            past = past_findings(
                state,
                course,
                thresholds,
                moment,
                total_lag=total_lag,
                max_time_lag_s=max_time_lag_s,
                room=room,
            )
        status, reason, *_ = query_status(state, partitions, measure.unread, [*past], silent=silent)
        pace = rates(course)
        catch_up_s, catch_up_reason = catch_up(total_lag, pace, state.batch, status)
        usual = course.usual
        event = LagEvent(
            event_id=event_id,
            cluster=state.cluster,
            query_id=state.query_id,
            run_id=state.run_id,
            query=state.name,
            batch_id=state.batch_id,
            cause=cause,
            measured_by=self.measured_by,
            origin=state.origin,
            planned_batch_id=state.planned_batch_id,
            activity=state.activity,
            status=status,
            status_since=_status_since(status, last, moment),
            reason=reason,
            total_lag=total_lag,
            max_lag=max_lag,
            max_time_lag_s=max_time_lag_s,
            in_flight=_in_flight(state, partitions),
            unknown_partitions=len(partitions) - len(lags),
            lost_records=bounded(sum(one.lost_records or 0 for one in partitions)),
            skew=round(max_lag / total_lag, 3) if total_lag and max_lag and len(lags) > 1 else None,
            processed_rate=_rounded(pace.processed),
            input_rate=_rounded(pace.input),
            batch_rate=_rounded(pace.batch),
            lag_trend=_rounded(pace.trend),
            catch_up_s=bounded_s(catch_up_s),
            catch_up_reason=catch_up_reason,
            min_headroom_records=room.records,
            min_headroom_s=room.seconds,
            loss_expected_at=room.loss_expected_at_ms,
            usual_batch_s=_rounded(usual.batch_s),
            usual_interval_s=_rounded(usual.interval_s),
            other_run_id=state.other_run_id,
            observation_offset=state.observation_offset,
            processed_at=state.processed_at_ms,
            observed_at=state.observed_at_ms,
            measured_at=_measured_at(state, last, moment),
            batch=state.batch,
            checkpoint_location=state.checkpoint_location,
            exception=state.exception,
            topics=topics,
        )
        return Evaluated(event, course, window)

    def _window(
        self,
        state: QueryState,
        topics: Sequence[TopicLag],
        moment: Moment,
        thresholds: Thresholds,
        previous: Evaluated | None,
    ) -> Window | None:
        """Judge `topics` by Burrow's rules, if those are the ones of this group."""
        judged = state.cluster in self.burrow_clusters and traits_of(state.origin).commits_offsets
        if not judged:
            return None
        window = Window()
        if previous is not None:
            window = previous.window or window_of(previous.event)
        window = window.after(state, topics, moment, thresholds.window)
        window.judge(topics, moment, thresholds)
        return window


def _flag_anew(
    topics: Sequence[TopicLag], before: Mapping[Place, Trends], now: Mapping[Place, Trends]
) -> None:
    """Partitions were measured with what their past said before the commit that was seen now."""
    if before is now:
        return
    for topic in topics:
        place = (topic.source, topic.topic)
        was = before[place].flags if place in before else {}
        flags = now[place].flags
        for index, one in enumerate(topic.partitions) if was or flags else ():
            old, new = was.get(one.partition), flags.get(one.partition)
            is_flagged = old is not None and one.status in FLAGS
            if old is not new and (one.status == "OK" or is_flagged):
                status, reason = (new.status, new.reason) if new is not None else ("OK", None)
                topic.partitions[index] = replace(one, status=status, reason=reason)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(max(-MAX_RATE, min(number, MAX_RATE)), 3)


def _measured_at(state: QueryState, last: LagEvent | None, moment: Moment) -> int:
    """A version only rises, also where a clock was stepped back."""
    if last is not None and last.observed_at == state.observed_at_ms:
        return max(moment.now_ms, last.measured_at + 1)
    return moment.now_ms


def _status_since(status: Status, last: LagEvent | None, moment: Moment) -> int:
    if last is not None and last.status == status and last.status_since is not None:
        return last.status_since
    return moment.now_ms


def _in_flight(state: QueryState, partitions: list[PartitionLag]) -> int | None:
    """Records of the batch that runs. One that was planned by a run that ended does not."""
    if state.planned_batch_id is None or state.ended:
        return None
    return bounded(
        sum(
            max(0, one.planned_offset - one.processed_offset)
            for one in partitions
            if one.planned_offset is not None and one.processed_offset is not None
        )
    )
