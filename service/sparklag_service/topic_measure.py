"""The lag of one topic, partition by partition, and why it is not known. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from aiokafka.structs import TopicPartition

from sparklag_schemas import PartitionLag, Status
from sparklag_service.offsets import ClusterOffsets, Latest, Topic
from sparklag_service.query_state import SourceState

NO_BATCH: Final = "no batch has completed yet"
_ADDED = "added: counted from its first offset, Spark has not planned it yet"
_ANEW = "the topic was deleted and created anew: the position is one of the topic before"


class Moment(NamedTuple):
    """When a query is measured. Offsets asked for at `asked_s` or later came after its position."""

    now_ms: int
    """Epoch milliseconds."""
    now_s: float
    asked_s: float
    """`time.monotonic()`, both."""


class Finding(NamedTuple):
    """What is to say of a partition, or of a topic none of whose partitions is known."""

    status: Status
    reason: str | None
    latest: int | None = None
    lag: int | None = None
    measured_at_ms: int | None = None
    lost: int | None = None


class TopicMeasure:
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

    def nothing_known(self) -> Finding:
        """Why no partition is known."""
        if self._obstacle is not None:
            return self._obstacle
        if self._topic.missing is not None:
            return Finding("UNKNOWN", self._topic.missing)
        return Finding("UNKNOWN", "not measured yet" if self._started else NO_BATCH)

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
    ) -> Finding:
        if self._obstacle is not None:
            return self._obstacle
        fresh = read is not None and read.asked_s >= self._moment.asked_s
        if self._existing and partition.partition not in self._existing and not fresh:
            return Finding("GONE", f"topic {self._name} has no partition {partition.partition}")
        trouble = self._unknown.get(partition) or self._topic.missing
        if read is None:
            return Finding("UNKNOWN", trouble or "not measured yet")
        measured_at_ms = None
        if not fresh:
            age_s = self._moment.now_s - read.asked_s
            too_old = age_s > self._max_age_s
            if trouble is not None or too_old:
                trouble = f"{trouble or 'no answer yet'}: its latest offset is {age_s:.0f} s old"
            if too_old:
                return Finding("UNKNOWN", trouble)
            measured_at_ms = self._moment.now_ms - round(age_s * 1000)
        else:
            trouble = None
        if processed is None:
            if not self._started:
                return Finding("UNKNOWN", NO_BATCH, read.offset, measured_at_ms=measured_at_ms)
            if earliest is None or read.offset < earliest:
                reason = "added: its first offset is not known yet"
                return Finding("UNKNOWN", reason, read.offset, measured_at_ms=measured_at_ms)
            return Finding("OK", _ADDED, read.offset, read.offset - earliest, measured_at_ms)
        if read.offset < processed:
            return self._short(processed, read.offset, measured_at_ms)
        lag = read.offset - processed
        # One past the log's end is of another time, or of the topic before.
        if earliest is not None and processed < earliest <= read.offset:
            lost = earliest - processed
            reason = f"{lost} records were deleted before they were read"
            return Finding("DATA_LOSS", reason, read.offset, lag, measured_at_ms, lost)
        if rewound_from is not None:
            reason = f"went back from {rewound_from} to older offsets, it is at {processed}"
            return Finding("REWIND", reason, read.offset, lag, measured_at_ms)
        return Finding("OK", trouble, read.offset, lag, measured_at_ms)

    def _short(self, processed: int, latest: int, measured_at_ms: int | None) -> Finding:
        """The log ends before the position."""
        if measured_at_ms is not None:
            reason = f"its latest offset {latest} was read before the position {processed}"
            return Finding("UNKNOWN", reason, latest, measured_at_ms=measured_at_ms)
        reason = f"the log ends at {latest}, before the processed offset {processed}"
        if not self._has_ids:
            return Finding("RECREATED", f"{reason}: the topic was created anew", latest)
        # The same topic by its id: a new leader that has not caught up, or one that lost records.
        return Finding("UNKNOWN", f"{reason}: its leader has lost records, or is new", latest)


def _obstacle(source: SourceState, name: str, topic: Topic, topic_id: str | None) -> Finding | None:
    """What keeps the whole topic from being measured."""
    if source.cluster is None:
        return Finding("UNKNOWN", "reads from brokers of no cluster that is configured")
    if topic.gone:
        return Finding("GONE", topic.missing or f"topic {name} does not exist")
    if topic.topic_id is not None and topic.topic_id != topic_id:
        return Finding("RECREATED", _ANEW)
    return None


def _is_plain(old: PartitionLag, processed: int) -> bool:
    """Whether nothing was to say of it but its lag, and it did not go back since."""
    return (
        old.status == "OK"
        and old.reason is None
        and old.measured_at is None
        and (old.processed_offset is None or old.processed_offset <= processed)
    )


def _rewound_from(processed: int | None, old: PartitionLag | None) -> int | None:
    """Where the query was before it went back, as long as it is not there again."""
    if processed is None or old is None or old.processed_offset is None:
        return None
    if old.status == "RECREATED" and processed != old.processed_offset:
        # By a broker without ids: this position is the first one in the new topic.
        return None
    farthest = max(old.processed_offset, old.rewound_from or 0)
    return farthest if processed < farthest else None
