"""Lag from positions and offsets. Pure functions: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from sparklag_schemas import Cause, LagEvent, MeasuredBy, PartitionLag, Status, TopicLag
from sparklag_service.offsets import ClusterOffsets, Offsets, Topic
from sparklag_service.query_state import QueryState, SourceState
from sparklag_service.topic_measure import NO_BATCH, Finding, Moment, TopicMeasure

# From good to bad: a query is as bad as its worst partition.
_SEVERITY: tuple[Status, ...] = (
    "OK",
    "FINISHED",
    "UNKNOWN",
    "WARN",
    "REWIND",
    "STALL",
    "STOP",
    "CONFLICT",
    "RECREATED",
    "GONE",
    "DATA_LOSS",
    "FAILED",
)
_NOTHING_SAID = ClusterOffsets()
_UNSEEN = Topic()
_NO_PARTITION = "there is no partition that it reads"


@dataclass(frozen=True)
class Evaluator:
    """`measured_by` is said in each event; a latest offset older than `latest_max_age_s` does not
    count."""

    measured_by: MeasuredBy
    latest_max_age_s: float

    def evaluate(
        self,
        state: QueryState,
        offsets: Offsets,
        moment: Moment,
        *,
        event_id: str,
        cause: Cause,
        previous: LagEvent | None = None,
        silent: bool = False,
    ) -> LagEvent:
        """The lag of a query: `latest - processed` of each partition, and their sum.

        `previous` is the query's last event: where it was, and in which topics. `silent`: its
        driver has said nothing for longer than a living one does; without a driver, its checkpoint
        or the group could not be read for so long.
        """
        before = {(t.source, t.topic): t for t in previous.topics} if previous else {}
        topics: list[TopicLag] = []
        unread: list[Finding] = []
        for source in state.sources:
            for name in source.watched_topics():
                old = before.get((source.source, name))
                topic, without = self._topic_lag(source, name, offsets, moment, old)
                topics.append(topic)
                if without is not None:
                    unread.append(without)
        partitions = [partition for topic in topics for partition in topic.partitions]
        lags = [partition.lag for partition in partitions if partition.lag is not None]
        status, reason = _query_status(state, partitions, unread, silent)
        measured_at_ms = moment.now_ms
        if previous is not None and previous.observed_at == state.observed_at_ms:
            # A version only rises, also where a clock was stepped back.
            measured_at_ms = max(measured_at_ms, previous.measured_at + 1)
        return LagEvent(
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
            status=status,
            reason=reason,
            total_lag=sum(lags) if lags else None,
            max_lag=max(lags, default=None),
            in_flight=_in_flight(state, partitions),
            unknown_partitions=len(partitions) - len(lags),
            lost_records=sum(partition.lost_records or 0 for partition in partitions),
            other_run_id=state.other_run_id,
            observation_offset=state.observation_offset,
            processed_at=state.processed_at_ms,
            observed_at=state.observed_at_ms,
            measured_at=measured_at_ms,
            batch=state.batch,
            checkpoint_location=state.checkpoint_location,
            exception=state.exception,
            topics=topics,
        )

    def _topic_lag(
        self,
        source: SourceState,
        name: str,
        offsets: Offsets,
        moment: Moment,
        before: TopicLag | None,
    ) -> tuple[TopicLag, Finding | None]:
        """The lag, and what is to say of a topic none of whose partitions is known."""
        said = offsets.get(source.cluster, _NOTHING_SAID) if source.cluster else _NOTHING_SAID
        topic = said.topics.get(name, _UNSEEN)
        processed = (source.processed or {}).get(name, {})
        topic_id = topic.topic_id
        if before is not None and processed and _positions(before) == processed:
            # The position did not move: it still is one of the topic it was reached in.
            topic_id = before.topic_id or topic_id
        elif topic_id is None and before is not None and not _was_recreated(before):
            topic_id = before.topic_id
        one = TopicMeasure(source, name, topic, topic_id, said, moment, self.latest_max_age_s)
        numbers = source.watched_partitions(name, topic.partitions)
        olds: dict[int, PartitionLag] = {}
        if before is not None and before.topic_id in (topic_id, None):
            olds = {old.partition: old for old in before.partitions}
        partitions = one.partition_lags(numbers, olds)
        lags = [partition.lag for partition in partitions if partition.lag is not None]
        found = TopicLag(
            topic=name,
            source=source.source,
            cluster=source.cluster,
            topic_id=topic_id,
            assigned=source.assigned is not None,
            isolation_level=source.isolation_level,
            total_lag=sum(lags) if lags else None,
            partitions=partitions,
        )
        return found, None if partitions else one.nothing_known()


def _positions(topic: TopicLag) -> dict[int, int]:
    return {
        partition.partition: partition.processed_offset
        for partition in topic.partitions
        if partition.processed_offset is not None
    }


def _was_recreated(topic: TopicLag) -> bool:
    return any(partition.status == "RECREATED" for partition in topic.partitions)


def _in_flight(state: QueryState, partitions: list[PartitionLag]) -> int | None:
    """Records of the batch that runs. One that was planned by a run that ended does not."""
    if state.planned_batch_id is None or state.ended:
        return None
    return sum(
        max(0, one.planned_offset - one.processed_offset)
        for one in partitions
        if one.planned_offset is not None and one.processed_offset is not None
    )


def _at(location: str | None) -> str:
    return f" at {location}" if location is not None else ""


def _query_status(
    state: QueryState, partitions: list[PartitionLag], unread: list[Finding], silent: bool
) -> tuple[Status, str | None]:
    if state.exception is not None:
        first_line = state.exception.strip().partition("\n")[0].rstrip()
        return "FAILED", f"the query failed: {first_line or 'it did not say why'}"
    if state.ended:
        if state.origin == "group":
            return "FINISHED", "there is no such group any more"
        return "FINISHED", "the query was stopped"
    if silent and state.run_id is None:
        where = "offsets" if state.origin == "group" else "checkpoint"
        return "UNKNOWN", f"its {where} cannot be read: it is where it was, or farther"
    if silent:
        return "STOP", "nothing is heard of it: its driver is gone, or cannot reach Kafka"
    if state.other_run_id is not None:
        return "CONFLICT", (
            f"run {state.other_run_id} of this query goes on beside run {state.run_id}:"
            f" two drivers share one checkpoint{_at(state.checkpoint_location)}"
        )
    telling: list[PartitionLag | Finding] = [one for one in unread if one.reason != NO_BATCH]
    if not state.known:
        telling += [one for one in partitions if one.status not in ("OK", "UNKNOWN")]
        if not telling:
            return "UNKNOWN", NO_BATCH
    else:
        telling += [one for one in partitions if one.reason is not None]
    if not telling:
        return ("OK", None) if partitions else ("UNKNOWN", _NO_PARTITION)
    worst = max(telling, key=lambda one: _SEVERITY.index(one.status))
    if isinstance(worst, Finding):
        return worst.status, worst.reason
    alike = sum(one.status == worst.status and one.reason is not None for one in partitions)
    return worst.status, f"{alike} of {len(partitions)} partitions: {worst.reason}"
