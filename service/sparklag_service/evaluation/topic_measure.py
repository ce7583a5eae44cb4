"""The lag of each partition of a topic, or why it is unknown. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparklag_schemas import OpenTransaction, PartitionLag, Status, TopicLag
from sparklag_schemas.messages.bounds import bounded, bounded_s
from sparklag_service.enrichment.cluster_offsets import (
    SETTLED_S,
    MeasureTime,
    TopicOffsets,
)
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.evaluation.time_lag import TopicAges
from sparklag_service.evaluation.topic_identity import (
    LOST_OR_FOREIGN,
    ends_before,
    misfit,
    obstacle_of,
    rewound_from_of,
    topic_id_of,
    was_inside,
)
from sparklag_service.evaluation.trends import FLAGS, Verdict, aligned
from sparklag_service.tracking.query_state import TrackedSource

NO_BATCH: Final = "no batch has completed yet"
NOT_READ: Final = "not read yet: the completed batches read other sources"
_ADDED = "added, not planned by Spark yet: lag counts from the earliest offset"
_FROM_START = f"{NO_BATCH}: lag counts from startingOffsets"
_SHORT_TRANSACTION_S: Final = 10.0
"""Records that wait this long behind the last stable offset wait for a transaction in progress."""


class _Measure(NamedTuple):
    """The verdict on a partition, and its figures."""

    status: Status
    reason: str | None
    latest: int | None = None
    lag: int | None = None
    measured_at_ms: int | None = None
    lost: int | None = None


@dataclass(eq=False, repr=False)
class TopicMeasure:
    """The lag of each partition of one topic of one source."""

    _source: TrackedSource
    _name: str
    _offsets: TopicOffsets
    _measure_time: MeasureTime
    _max_age_s: float
    before: InitVar[TopicLag | None]
    """The topic in the query's last event, `since_s` seconds ago."""
    since_s: InitVar[float]
    _processed_at_ms: int
    """When the query reached its position."""
    _unread: str
    """Why a source has no position."""
    arrived: int = 0
    """Records that arrived since the previous measurement."""
    moved: int = 0
    """Records that were processed since the previous measurement."""

    def __post_init__(self, before: TopicLag | None, since_s: float) -> None:
        source, name, measure_time = self._source, self._name, self._measure_time
        self._topic = topic = self._offsets.description
        self._processed = (source.processed or {}).get(name, {})
        self._planned = (source.planned or {}).get(name, {})
        self._started = source.processed is not None
        self._starting: Mapping[int, int] | None = None
        if source.starting is not None and self._unread == NO_BATCH:
            self._starting = source.starting.get(name, {})
        self._latest = self._offsets.latest[source.isolation_level]
        self._topic_id = topic_id_of(topic, self._processed, before, self._latest)
        self._previous: Sequence[PartitionLag] = ()
        if before is not None and before.topic_id in (self._topic_id, None):
            self._previous = before.partitions
        self._without_records = self._offsets.without_records[source.isolation_level]
        self._waits = source.isolation_level == "read_committed"
        has_waited = before is not None and before.isolation_level == "read_committed"
        self._is_plain = not (self._without_records or self._waits or has_waited)
        """False: a partition may have less to read than its lag, or an open transaction."""
        self._ages = TopicAges(self._offsets, source.isolation_level, measure_time, since_s)
        self._obstacle = obstacle_of(source, name, topic, self._topic_id) or misfit(
            name, topic, self._processed, self._latest, self._previous, measure_time.requested_s
        )

    def unmeasured(self) -> Verdict:
        """The verdict on a topic without partitions."""
        if self._obstacle is not None:
            return self._obstacle
        if self._topic.missing is not None:
            return Verdict("UNKNOWN", self._topic.missing)
        return Verdict("UNKNOWN", "not measured yet" if self._started else self._unread)

    def topic_lag(self, unassigned: Collection[int]) -> tuple[TopicLag, list[PartitionLag]]:
        """The topic with its partitions, without verdicts on their past; and the `unassigned` ones,
        which no member of the group reads: nothing is counted of them."""
        source = self._source
        numbers = source.watched_partitions(self._name, self._topic.partitions)
        without_member: list[PartitionLag] = []
        if unassigned:
            what = "topic" if set(numbers) <= set(unassigned) else "partition"
            for partition in self._partition_lags([n for n in numbers if n in unassigned]):
                reason = f"no member reads this {what}"
                if partition.lag is None and partition.reason is not None:
                    reason = f"{reason}; {partition.reason}"
                quiet = {"headroom_s": None, "lost_records": None, "rising_since": None}
                partition = replace(partition, status="OK", reason=reason, **quiet)
                without_member.append(partition)
            numbers = [n for n in numbers if n not in unassigned]
            self.arrived = self.moved = 0
        topic = TopicLag(
            topic=self._name,
            source=source.source,
            cluster=source.cluster,
            topic_id=self._topic_id,
            assigned=source.assigned is not None,
            isolation_level=source.isolation_level,
            partitions=[],
        )
        return with_partitions(topic, self._partition_lags(numbers)), without_member

    def _partition_lags(self, numbers: list[int]) -> list[PartitionLag]:
        obstacle, age_of = self._obstacle, self._ages.age
        latest, earliest, advances = self._latest, self._offsets.earliest, self._offsets.advances
        processed, planned, processed_at_ms, requested_s = (
            self._processed,
            self._planned,
            self._processed_at_ms,
            self._measure_time.requested_s,
        )
        arrived = moved = 0
        lags: list[PartitionLag] = []
        end: int | None
        lag: int | None
        age_s: float | None
        method: str | None
        status: Status
        previous = aligned(self._previous, numbers)
        for number, old in zip(numbers, previous, strict=True):
            read = latest.get(number)
            first = earliest.get(number)
            at = position = processed.get(number)
            plan = planned.get(number) if planned else None
            rewound_from = measured_at_ms = lost = rising_ms = None
            advanced_ms: int | None = processed_at_ms
            # The usual case, without calls: the partition has a lag and nothing else to report, now
            # and before, and the query did not go back.
            if (
                read is None
                or at is None
                or obstacle is not None
                or read.requested_s < requested_s
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
                position = at if at is not None else self._start(number, first)
                rewound_from = rewound_from_of(at, old)
                measure = self._judge(number, at, read, first, old, rewound_from)
                status, reason, end, lag, measured_at_ms, lost = measure
                if lost is not None:
                    self._is_plain = False
                if at is None:
                    advanced_ms = None
            else:
                status, reason, end, lag = "OK", None, read.offset, read.offset - at
            unmoved = None
            if old is not None:
                rising_ms = old.rising_since
                if end is not None and old.latest_offset is not None and end > old.latest_offset:
                    arrived += end - old.latest_offset
                if old.processed_offset == position:
                    unmoved, advanced_ms = old, old.advanced_at
                elif (
                    at is not None
                    and old.processed_offset is not None
                    # A step back undoes no work.
                    and at > old.processed_offset
                ):
                    moved += at - old.processed_offset
            age_s, method = (None if lag is None else 0.0), None
            if lag and position is not None and read is not None:
                age_s, method = age_of(number, position, read, unmoved)
            elif (
                lag == 0
                and unmoved is not None
                and unmoved.latest_offset == end
                and unmoved.earliest_offset == first
                and unmoved.planned_offset == plan
                and unmoved.measured_at == measured_at_ms
                and (unmoved.status, unmoved.reason) == (status, reason)
            ):
                lags.append(unmoved)
                continue
            partition = PartitionLag(
                partition=number,
                processed_offset=at,
                planned_offset=plan,
                latest_offset=end,
                earliest_offset=first,
                lag=lag,
                time_lag_s=age_s,
                time_lag_method=method,
                headroom_s=self._headroom_s(number, at, first, end) if advances else None,
                advanced_at=advanced_ms,
                rising_since=rising_ms,
                status=status,
                reason=reason,
            )
            if measured_at_ms is not None or lost is not None or rewound_from is not None:
                # CPython calls with more than 15 keywords take four times as long.
                partition = replace(
                    partition,
                    measured_at=measured_at_ms,
                    lost_records=lost,
                    rewound_from=rewound_from,
                )
            lags.append(partition)
        self.arrived += arrived
        self.moved += moved
        return lags if self._is_plain else list(map(self._readable, lags, previous))

    def _readable(self, partition: PartitionLag, old: PartitionLag | None) -> PartitionLag:
        """The partition with what is left to read, and the transaction that it waits for."""
        transaction = self._open_transaction(partition, old) if self._waits else None
        if partition.open_transaction != transaction:
            partition = replace(partition, open_transaction=transaction)
        number, end, lag = partition.partition, partition.latest_offset, partition.lag
        read = self._latest.get(number)
        if not lag or end is None or read is None:
            return partition
        start = end - lag + (partition.lost_records or 0)
        none = self._without_records.get(number)
        if none is not None and self._measure_time.now_s - none.since_s >= SETTLED_S:
            start = self._offsets.first_record(self._source.isolation_level, number, start)
        unread = max(0, end - start)
        if unread == lag:
            return partition
        if not unread:
            return replace(
                partition, readable_lag=0, time_lag_s=None, time_lag_method=None, headroom_s=None
            )
        was_start = (old.latest_offset or 0) - (old.unread or 0) if old is not None else None
        age_s, method = self._ages.age(number, start, read, old if was_start == start else None)
        return replace(partition, readable_lag=unread, time_lag_s=age_s, time_lag_method=method)

    def _open_transaction(
        self, partition: PartitionLag, old: PartitionLag | None
    ) -> OpenTransaction | None:
        """What waits behind the last stable offset. It counts from the last event on, which another
        instance may have published, until a read shows that nothing waits."""
        number, end = partition.partition, partition.latest_offset
        read, mark = self._latest.get(number), self._offsets.latest["read_uncommitted"].get(number)
        before = old.open_transaction if old is not None and self._obstacle is None else None
        if end is None or read is None:
            return before
        # Without a last stable offset before: a query that has read up to it shows that it stayed.
        if old is not None and end not in (old.latest_offset, old.processed_offset):
            before = None
        if mark is None or mark.offset <= end:
            return before if mark is None else None
        if before is not None:
            return OpenTransaction(records=mark.offset - end, since=before.since)
        waiting = self._offsets.waiting.get(number)
        if waiting is None or waiting.stable != end:
            return None
        if read.requested_s - waiting.since_s < _SHORT_TRANSACTION_S:
            return None
        since = self._measure_time.epoch_ms(waiting.since_s)
        return OpenTransaction(records=mark.offset - end, since=since)

    def _headroom_s(
        self, number: int, at: int | None, earliest: int | None, latest: int | None
    ) -> float | None:
        """Seconds until the log start reaches the position, at its present rate: see `Advances`."""
        advances = self._offsets.advances.get(number)
        at = at if at is not None else earliest
        if advances is None or at is None or earliest is None or latest is None or latest <= at:
            return None
        rate = advances.rate(self._measure_time.now_s)
        return None if not rate else bounded_s(round(max(0, at - earliest) / rate, 1))

    def _judge(
        self,
        number: int,
        processed: int | None,
        read: LatestOffset | None,
        earliest: int | None,
        old: PartitionLag | None,
        rewound_from: int | None,
    ) -> _Measure:
        fresh = read is not None and read.requested_s >= self._measure_time.requested_s
        if self._obstacle is not None:
            has_latest = read is not None and fresh and self._obstacle.status == "UNKNOWN"
            return _Measure(*self._obstacle, read.offset if read and has_latest else None)
        if self._topic.numbers and number not in self._topic.numbers and not fresh:
            reason = f"topic {self._name} has no partition {number}"
            if old is not None and (old.latest_offset is not None or old.status == "GONE"):
                return _Measure("GONE", reason)
            return _Measure("UNKNOWN", f"{reason}, and had none when it was first seen")
        problem = self._offsets.unknown.get(number) or self._topic.missing
        if read is None:
            return _Measure("UNKNOWN", problem or "not measured yet")
        measured_at_ms = None
        if not fresh:
            age_s = self._measure_time.now_s - read.requested_s
            too_old = age_s > self._max_age_s
            if problem is not None or too_old:
                problem = f"{problem or 'no answer yet'}: its latest offset is {age_s:.0f} s old"
            if too_old:
                return _Measure("UNKNOWN", problem)
            measured_at_ms = self._measure_time.now_ms - round(age_s * 1000)
        else:
            problem = None
        if processed is None:
            if not self._started:
                return self._before_first_batch(number, read.offset, earliest, measured_at_ms)
            if earliest is None or read.offset < earliest:
                reason = "added: its earliest offset is not known yet"
                return _Measure("UNKNOWN", reason, read.offset, measured_at_ms=measured_at_ms)
            return _Measure("OK", _ADDED, read.offset, read.offset - earliest, measured_at_ms)
        if read.offset < processed:
            return self._short(processed, read.offset, measured_at_ms, old)
        lag = read.offset - processed
        # An earliest offset past the log end is of another time, or of an earlier topic.
        if earliest is not None and processed < earliest <= read.offset:
            lost = earliest - processed
            reason = f"{lost} records were deleted before they were read"
            return _Measure("DATA_LOSS", reason, read.offset, lag, measured_at_ms, lost)
        if rewound_from is not None:
            reason = f"went back from offset {rewound_from}, now at offset {processed}"
            return _Measure("REWIND", reason, read.offset, lag, measured_at_ms)
        return _Measure("OK", problem, read.offset, lag, measured_at_ms)

    def _start(self, number: int, earliest: int | None) -> int | None:
        """The first offset that the query reads of a partition without a position. None: not
        known."""
        if self._started:
            return earliest
        start = -1 if self._starting is None else self._starting.get(number, 0)
        return None if earliest is None or start == -1 else max(start, earliest)

    def _before_first_batch(
        self, number: int, latest: int, earliest: int | None, measured_at_ms: int | None
    ) -> _Measure:
        start = earliest if earliest == latest else self._start(number, earliest)
        if start is None or start > latest:
            return _Measure("UNKNOWN", self._unread, latest, measured_at_ms=measured_at_ms)
        return _Measure("OK", _FROM_START, latest, latest - start, measured_at_ms)

    def _short(
        self, processed: int, latest: int, measured_at_ms: int | None, old: PartitionLag | None
    ) -> _Measure:
        """The verdict if the log ends before the position."""
        if measured_at_ms is not None:
            reason = f"latest offset {latest} was read before the query reached {processed}"
            return _Measure("UNKNOWN", reason, latest, measured_at_ms=measured_at_ms)
        if self._topic_id is None and old is not None and was_inside(old):
            reason = f"{ends_before(latest, processed)}: the topic was recreated"
            return _Measure("RECREATED", reason, latest)
        return _Measure("UNKNOWN", f"{ends_before(latest, processed)}: {LOST_OR_FOREIGN}", latest)


def unread_records(partitions: Iterable[PartitionLag]) -> list[int]:
    """The records left to read in each partition where they are known."""
    return [
        partition.lag if partition.readable_lag is None else partition.readable_lag
        for partition in partitions
        if partition.lag is not None
    ]


def with_partitions(topic: TopicLag, partitions: list[PartitionLag]) -> TopicLag:
    """The topic with these partitions, and the sum of what is left to read."""
    lags = unread_records(partitions)
    total_lag = bounded(sum(lags)) if lags else None
    return replace(topic, partitions=partitions, total_lag=total_lag)
