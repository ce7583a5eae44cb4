"""Lag from positions and offsets. Pure functions: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aiokafka.structs import TopicPartition

from sparklag_schemas import Cause, LagEvent, MeasuredBy, PartitionLag, Status, TopicLag
from sparklag_service.offsets import ClusterOffsets, Latest, Offsets, Topic
from sparklag_service.query_state import QueryState, SourceState

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
_NO_BATCH = "no batch has completed yet"
_ADDED = "added: counted from its first offset, Spark has not planned it yet"
_ANEW = "the topic was deleted and created anew: the position is one of the topic before"
_NO_PARTITION = "there is no partition that it reads"


class Moment(NamedTuple):
    """When a query is measured. Offsets asked for at `asked_s` or later came after its position."""

    now_ms: int
    """Epoch milliseconds."""
    now_s: float
    asked_s: float
    """`time.monotonic()`, both."""


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
        unread: list[_Finding] = []
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
    ) -> tuple[TopicLag, _Finding | None]:
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
        one = _OneTopic(source, name, topic, topic_id, said, moment, self.latest_max_age_s)
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


class _OneTopic:
    """The lag of each partition of one topic of one source."""

    def __init__(
        self,
        source: SourceState,
        name: str,
        topic: Topic,
        topic_id: str | None,
        said: ClusterOffsets,
        moment: Moment,
        max_age_s: float,
    ) -> None:
        self._name = name
        self._topic = topic
        self._existing = frozenset(topic.partitions)
        self._has_ids = topic_id is not None
        self._processed = (source.processed or {}).get(name, {})
        self._planned = (source.planned or {}).get(name, {})
        self._started = source.processed is not None
        self._latest = said.latest[source.isolation_level]
        self._earliest = said.earliest
        self._unknown = said.unknown
        self._moment = moment
        self._max_age_s = max_age_s
        self._obstacle = _obstacle(source, name, topic, topic_id)

    def nothing_known(self) -> _Finding:
        """Why no partition is known."""
        if self._obstacle is not None:
            return self._obstacle
        if self._topic.missing is not None:
            return _Finding("UNKNOWN", self._topic.missing)
        return _Finding("UNKNOWN", "not measured yet" if self._started else _NO_BATCH)

    def partition_lags(
        self, numbers: list[int], olds: dict[int, PartitionLag]
    ) -> list[PartitionLag]:
        """`olds` is what was said of the partitions before, while the topic was the same."""
        name, obstacle = self._name, self._obstacle
        latest, earliest = self._latest, self._earliest
        processed, planned, asked_s = self._processed, self._planned, self._moment.asked_s
        found: list[PartitionLag] = []
        for number in numbers:
            # Equal to the TopicPartition, and made in less time.
            key = (name, number)
            old = olds.get(number)
            read = latest.get(key)
            first = earliest.get(key)
            at = processed.get(number)
            # Most partitions, most of the time: nothing is to say but the lag.
            if (
                read is None
                or at is None
                or obstacle is not None
                or read.asked_s < asked_s
                or read.offset < at
                or (first is not None and first > at)
                or (old is not None and not _is_plain(old, at))
            ):
                found.append(self._partition_lag(number, at, read, first, old))
            elif (
                old is not None
                and old.latest_offset == read.offset
                and old.processed_offset == at
                and old.earliest_offset == first
                and old.planned_offset == planned.get(number)
            ):
                found.append(old)
            else:
                found.append(
                    PartitionLag(
                        partition=number,
                        processed_offset=at,
                        planned_offset=planned.get(number),
                        latest_offset=read.offset,
                        earliest_offset=first,
                        lag=read.offset - at,
                        status="OK",
                    )
                )
        return found

    def _partition_lag(
        self,
        number: int,
        processed: int | None,
        latest: Latest | None,
        earliest: int | None,
        old: PartitionLag | None,
    ) -> PartitionLag:
        rewound_from = _rewound_from(processed, old)
        partition = TopicPartition(self._name, number)
        found = self._judge(partition, processed, latest, earliest, rewound_from)
        return PartitionLag(
            partition=number,
            processed_offset=processed,
            planned_offset=self._planned.get(number),
            latest_offset=found.latest,
            earliest_offset=earliest,
            lag=found.lag,
            measured_at=found.measured_at_ms,
            lost_records=found.lost,
            rewound_from=rewound_from,
            status=found.status,
            reason=found.reason,
        )

    def _judge(
        self,
        partition: TopicPartition,
        processed: int | None,
        read: Latest | None,
        earliest: int | None,
        rewound_from: int | None,
    ) -> _Finding:
        if self._obstacle is not None:
            return self._obstacle
        fresh = read is not None and read.asked_s >= self._moment.asked_s
        if self._existing and partition.partition not in self._existing and not fresh:
            return _Finding("GONE", f"topic {self._name} has no partition {partition.partition}")
        trouble = self._unknown.get(partition) or self._topic.missing
        if read is None:
            return _Finding("UNKNOWN", trouble or "not measured yet")
        measured_at_ms = None
        if not fresh:
            age_s = self._moment.now_s - read.asked_s
            too_old = age_s > self._max_age_s
            if trouble is not None or too_old:
                trouble = f"{trouble or 'no answer yet'}: its latest offset is {age_s:.0f} s old"
            if too_old:
                return _Finding("UNKNOWN", trouble)
            measured_at_ms = self._moment.now_ms - round(age_s * 1000)
        else:
            trouble = None
        if processed is None:
            if not self._started:
                return _Finding("UNKNOWN", _NO_BATCH, read.offset, measured_at_ms=measured_at_ms)
            if earliest is None or read.offset < earliest:
                reason = "added: its first offset is not known yet"
                return _Finding("UNKNOWN", reason, read.offset, measured_at_ms=measured_at_ms)
            return _Finding("OK", _ADDED, read.offset, read.offset - earliest, measured_at_ms)
        if read.offset < processed:
            return self._short(processed, read.offset, measured_at_ms)
        lag = read.offset - processed
        # One past the log's end is of another time, or of the topic before.
        if earliest is not None and processed < earliest <= read.offset:
            lost = earliest - processed
            reason = f"{lost} records were deleted before they were read"
            return _Finding("DATA_LOSS", reason, read.offset, lag, measured_at_ms, lost)
        if rewound_from is not None:
            reason = f"went back from {rewound_from} to older offsets, it is at {processed}"
            return _Finding("REWIND", reason, read.offset, lag, measured_at_ms)
        return _Finding("OK", trouble, read.offset, lag, measured_at_ms)

    def _short(self, processed: int, latest: int, measured_at_ms: int | None) -> _Finding:
        """The log ends before the position."""
        if measured_at_ms is not None:
            reason = f"its latest offset {latest} was read before the position {processed}"
            return _Finding("UNKNOWN", reason, latest, measured_at_ms=measured_at_ms)
        reason = f"the log ends at {latest}, before the processed offset {processed}"
        if not self._has_ids:
            return _Finding("RECREATED", f"{reason}: the topic was created anew", latest)
        # The same topic by its id: a new leader that has not caught up, or one that lost records.
        return _Finding("UNKNOWN", f"{reason}: its leader has lost records, or is new", latest)


class _Finding(NamedTuple):
    status: Status
    reason: str | None
    latest: int | None = None
    lag: int | None = None
    measured_at_ms: int | None = None
    lost: int | None = None


def _obstacle(
    source: SourceState, name: str, topic: Topic, topic_id: str | None
) -> _Finding | None:
    """What keeps the whole topic from being measured."""
    if source.cluster is None:
        return _Finding("UNKNOWN", "reads from brokers of no cluster that is configured")
    if topic.gone:
        return _Finding("GONE", topic.missing or f"topic {name} does not exist")
    if topic.topic_id is not None and topic.topic_id != topic_id:
        return _Finding("RECREATED", _ANEW)
    return None


def _positions(topic: TopicLag) -> dict[int, int]:
    return {
        partition.partition: partition.processed_offset
        for partition in topic.partitions
        if partition.processed_offset is not None
    }


def _is_plain(old: PartitionLag, processed: int) -> bool:
    """Whether nothing was to say of it but its lag, and it did not go back since."""
    return (
        old.status == "OK"
        and old.reason is None
        and old.measured_at is None
        and (old.processed_offset is None or old.processed_offset <= processed)
    )


def _was_recreated(topic: TopicLag) -> bool:
    return any(partition.status == "RECREATED" for partition in topic.partitions)


def _rewound_from(processed: int | None, old: PartitionLag | None) -> int | None:
    """Where the query was before it went back, as long as it is not there again."""
    if processed is None or old is None or old.processed_offset is None:
        return None
    if old.status == "RECREATED" and processed != old.processed_offset:
        # By a broker without ids: this position is the first one in the new topic.
        return None
    farthest = max(old.processed_offset, old.rewound_from or 0)
    return farthest if processed < farthest else None


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
    state: QueryState, partitions: list[PartitionLag], unread: list[_Finding], silent: bool
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
    telling: list[PartitionLag | _Finding] = [one for one in unread if one.reason != _NO_BATCH]
    if not state.known:
        telling += [one for one in partitions if one.status not in ("OK", "UNKNOWN")]
        if not telling:
            return "UNKNOWN", _NO_BATCH
    else:
        telling += [one for one in partitions if one.reason is not None]
    if not telling:
        return ("OK", None) if partitions else ("UNKNOWN", _NO_PARTITION)
    worst = max(telling, key=lambda one: _SEVERITY.index(one.status))
    if isinstance(worst, _Finding):
        return worst.status, worst.reason
    alike = sum(one.status == worst.status and one.reason is not None for one in partitions)
    return worst.status, f"{alike} of {len(partitions)} partitions: {worst.reason}"
