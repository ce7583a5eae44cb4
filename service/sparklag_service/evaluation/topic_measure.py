"""The lag of one topic, partition by partition, and why it is not known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from aiokafka.structs import TopicPartition

from sparklag_schemas import PartitionLag, Status
from sparklag_schemas.bounds import bounded_s
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets, Topic
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.measure_time import Moment
from sparklag_service.evaluation.aligned import aligned
from sparklag_service.evaluation.finding import FLAGS, Finding
from sparklag_service.evaluation.time_lag import TopicAges
from sparklag_service.tracking.query_state import SourceState

NO_BATCH: Final = "no batch has completed yet"
_ADDED = "added: counted from its first offset, Spark has not planned it yet"
_ANEW = "the topic was deleted and created anew: the position is one of the topic before"


class Before(NamedTuple):
    """What was said of a topic's partitions last, while it was the same topic."""

    partitions: Sequence[PartitionLag]
    since_s: float
    """How long ago."""
    flags: Mapping[int, Finding]
    """What the past says of partitions with which all is well now."""


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
        before: Before,
    ) -> None:
        self._name = name
        self._before = before
        self._topic = topic
        self._existing = topic.numbers
        self._has_ids = topic_id is not None
        self._processed = (source.processed or {}).get(name, {})
        self._planned = (source.planned or {}).get(name, {})
        self._started = source.processed is not None
        self._latest = said.latest[source.isolation_level].get(name, {})
        self._earliest = said.earliest.get(name, {})
        self._advances = said.advances
        self._unknown = said.unknown
        self._ages = TopicAges(name, said, source.isolation_level, moment, before.since_s)
        self._moment = moment
        self._max_age_s = max_age_s
        self._obstacle = _obstacle(source, name, topic, topic_id)
        self.arrived = 0
        """Records that came since the topic was measured before."""
        self.moved = 0
        """Records that were processed since then."""

    def nothing_known(self) -> Finding:
        """Why no partition is known."""
        if self._obstacle is not None:
            return self._obstacle
        if self._topic.missing is not None:
            return Finding("UNKNOWN", self._topic.missing)
        return Finding("UNKNOWN", "not measured yet" if self._started else NO_BATCH)

    def partition_lags(self, numbers: list[int]) -> list[PartitionLag]:
        """Of the partitions `numbers`, in their order."""
        obstacle, flags, age_of = self._obstacle, self._before.flags, self._ages.age
        latest, earliest, advances = self._latest, self._earliest, self._advances
        processed, planned, asked_s = self._processed, self._planned, self._moment.asked_s
        arrived = moved = 0
        found: list[PartitionLag] = []
        end: int | None
        lag: int | None
        age_s: float | None
        method: str | None
        status: Status
        olds = aligned(self._before.partitions, numbers)
        for number, old in zip(numbers, olds, strict=True):
            read = latest.get(number)
            first = earliest.get(number)
            at = processed.get(number)
            plan = planned.get(number) if planned else None
            # Most partitions, most of the time: nothing is to say but the lag, nor was before, and
            # the query did not go back.
            if (
                read is None
                or at is None
                or obstacle is not None
                or read.requested_s < asked_s
                or read.offset < at
                or (first is not None and first > at)
                or (
                    old is not None
                    and (
                        (old.reason is not None if old.status == "OK" else old.status not in FLAGS)
                        or old.measured_at is not None
                        or (old.processed_offset is not None and old.processed_offset > at)
                    )
                )
            ):
                rewound_from = _rewound_from(at, old)
                partition = TopicPartition(self._name, number)
                finding = self._judge(partition, at, read, first, rewound_from)
                self._count(at, finding, old)
                status, reason, end, lag, measured_at_ms, lost = finding
                age_s, method = self._age(number, at if at is not None else first, read, lag, old)
            else:
                rewound_from = measured_at_ms = lost = None
                end = read.offset
                lag = end - at
                stands = old if old is not None and old.processed_offset == at else None
                if old is not None:
                    if old.latest_offset is not None and end > old.latest_offset:
                        arrived += end - old.latest_offset
                    if stands is None and old.processed_offset is not None:
                        moved += at - old.processed_offset
                age_s, method = 0.0, None
                if lag:
                    age_s, method = age_of(number, at, read, stands)
                elif (
                    stands is not None
                    and stands.latest_offset == end
                    and stands.earliest_offset == first
                    and stands.planned_offset == plan
                    and stands.status == "OK"
                ):
                    found.append(stands)
                    continue
                status, reason = "OK", None
            if flags and status == "OK" and number in flags:
                status, reason = flags[number].status, flags[number].reason
            found.append(
                PartitionLag(
                    partition=number,
                    processed_offset=at,
                    planned_offset=plan,
                    latest_offset=end,
                    earliest_offset=first,
                    lag=lag,
                    time_lag_s=age_s,
                    time_lag_method=method,
                    headroom_s=self._headroom_s(number, at, first, end) if advances else None,
                    measured_at=measured_at_ms,
                    lost_records=lost,
                    rewound_from=rewound_from,
                    status=status,
                    reason=reason,
                )
            )
        self.arrived += arrived
        self.moved += moved
        return found

    def _count(self, processed: int | None, found: Finding, old: PartitionLag | None) -> None:
        if old is None:
            return
        if found.latest is not None and old.latest_offset is not None:
            self.arrived += max(0, found.latest - old.latest_offset)
        if processed is not None and old.processed_offset is not None:
            # Going back is no work that was undone.
            self.moved += max(0, processed - old.processed_offset)

    def _age(
        self,
        number: int,
        at: int | None,
        latest: LatestOffset | None,
        lag: int | None,
        old: PartitionLag | None,
    ) -> tuple[float | None, str | None]:
        """Of the first record that is not processed: what is not known has none."""
        if lag is None or at is None or latest is None:
            return None, None
        if lag == 0:
            return 0.0, None
        stands = old if old is not None and old.processed_offset == at else None
        return self._ages.age(number, at, latest, stands)

    def _headroom_s(
        self, number: int, at: int | None, earliest: int | None, latest: int | None
    ) -> float | None:
        """Until the log's start, at its rate, is where the query is: see `Advances`."""
        advances = self._advances.get(TopicPartition(self._name, number))
        at = at if at is not None else earliest
        if advances is None or at is None or earliest is None or latest is None or latest <= at:
            return None
        rate = advances.rate(self._moment.now_s)
        return None if not rate else bounded_s(round(max(0, at - earliest) / rate, 1))

    def _judge(
        self,
        partition: TopicPartition,
        processed: int | None,
        read: LatestOffset | None,
        earliest: int | None,
        rewound_from: int | None,
    ) -> Finding:
        if self._obstacle is not None:
            return self._obstacle
        fresh = read is not None and read.requested_s >= self._moment.asked_s
        if self._existing and partition.partition not in self._existing and not fresh:
            return Finding("GONE", f"topic {self._name} has no partition {partition.partition}")
        trouble = self._unknown.get(partition) or self._topic.missing
        if read is None:
            return Finding("UNKNOWN", trouble or "not measured yet")
        measured_at_ms = None
        if not fresh:
            age_s = self._moment.now_s - read.requested_s
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


def _rewound_from(processed: int | None, old: PartitionLag | None) -> int | None:
    """Where the query was before it went back, as long as it is not there again."""
    if processed is None or old is None or old.processed_offset is None:
        return None
    if old.status == "RECREATED" and processed != old.processed_offset:
        # By a broker without ids: this position is the first one in the new topic.
        return None
    farthest = max(old.processed_offset, old.rewound_from or 0)
    return farthest if processed < farthest else None
