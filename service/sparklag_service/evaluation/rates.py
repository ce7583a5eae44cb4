"""Rates of records, catch-up time, and the distance of unread records from retention. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklag_schemas import Batch, PartitionLag, Status, TopicLag
from sparklag_schemas.messages.bounds import MAX_EPOCH_MS
from sparklag_schemas.text.formatting import KEEPS_PACE, NEVER, NOT_RUNNING
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.query_history import RECENT_S, QueryHistory

_LEAST_S: Final = 1.0
"""The shortest time that gives a useful rate."""
_SAME_PACE: Final = 0.05
"""A query keeps pace if its rate is at most this share below the rate of its input."""
_ENDED: Final[tuple[Status, ...]] = ("STOP", "FINISHED", "FAILED")


@dataclass(frozen=True)
class Rates:
    """Offsets a second. None: not known.

    `input`: arrivals in the last minute, or since the oldest of the recent commits.
    `processed`: progress of the recent commits by the time since the oldest of them; it falls to 0
    while the next commit is overdue.
    `batch`: the same progress by the run time of the batches.
    `commits`: the number of those commits by the same time as `processed`.
    """

    input: float | None = None
    processed: float | None = None
    batch: float | None = None
    commits: float | None = None
    overdue: str | None = None
    """Why the next commit is overdue: then `processed` is not known. None: it is not overdue."""

    @property
    def trend(self) -> float | None:
        """The growth of the lag: by all that arrives, until the next commit is completed."""
        if self.overdue is not None:
            return self.input
        if self.input is None or self.processed is None:
            return None
        return self.input - self.processed

    @property
    def lag_falls(self) -> bool:
        """True if the query clearly processes more than arrives."""
        if self.input is None or self.processed is None:
            return False
        return self.processed > self.input * (1 + _SAME_PACE)

    def at_status(self, status: Status) -> Rates:
        """At a status: a query that does not run processes nothing, and its capacity is unknown."""
        return Rates(self.input, 0.0, None, 0.0) if status in _ENDED else self


def rates_of(history: QueryHistory, overdue: str | None = None) -> Rates:
    """The rates at the time of the last measurement. See `QueryHistory.overdue`."""
    recent, now_s = history.recent(), history.at_s
    processed = batch = commits = None
    if len(recent) > 1:
        first, last = recent[0], recent[-1]
        moved = last.moved - first.moved
        longest_s = max(newer.at_s - older.at_s for older, newer in pairwise(recent))
        elapsed_s = max(last.at_s - first.at_s, now_s - first.at_s - longest_s)
        if elapsed_s > 0:
            processed, commits = moved / elapsed_s, (len(recent) - 1) / elapsed_s
        if now_s - last.at_s > max(RECENT_S, 3 * longest_s):
            processed = commits = 0.0
        ran_s = 0.0
        for commit in recent[1:]:
            if commit.duration_s is None:
                break
            ran_s += commit.duration_s * commit.batches
        else:
            batch = moved / ran_s if ran_s > 0 else None
    since_s, arrived_before = now_s, 0
    if history.arrivals:
        since_s, arrived_before = history.arrivals[0]
    if len(recent) > 1 and recent[0].at_s < since_s:
        since_s, arrived_before = recent[0].at_s, recent[0].arrived
    long_enough = now_s - since_s >= _LEAST_S
    input_rate = (history.arrived - arrived_before) / (now_s - since_s) if long_enough else None
    return Rates(input_rate, None if overdue else processed, batch, commits, overdue)


def catch_up(
    lag: int | None, rates: Rates, batch: Batch | None, status: Status
) -> tuple[float | None, str | None]:
    """Seconds until the lag is gone; if unknown, None and the reason.

    Computed from `rates.batch`, the capacity of the query: a query that keeps up processes no more
    than arrives. Where a limit holds its batches, `rates.processed` is the capacity.
    """
    if lag is None:
        return None, "the lag is not known"
    if lag == 0:
        return 0.0, None
    if status == "STALL":
        return None, "the query is stalled"
    if status == "STOP":
        return None, "nothing shows that the query runs"
    if status in (*_ENDED, "GONE"):
        return None, NOT_RUNNING
    if rates.overdue is not None:
        return None, rates.overdue
    if rates.input is None or rates.processed is None:
        return None, "its pace is not known yet"
    limited = batch is not None and batch.rate_limited
    capacity = rates.processed if limited or rates.batch is None else rates.batch
    capacity = max(capacity, rates.processed)
    if capacity > rates.input * (1 + _SAME_PACE):
        return round(lag / (capacity - rates.input), 1), None
    both = f"input {rates.input:,.1f} records/s, processed {rates.processed:,.1f} records/s"
    if rates.processed >= rates.input * (1 - _SAME_PACE):
        return None, f"{KEEPS_PACE}: {both}"
    return None, f"{NEVER}: {both}"


@dataclass(frozen=True)
class Headroom:
    """The smallest headroom of the partitions that lag. None: not known, or no partition lags."""

    records: int | None = None
    seconds: float | None = None
    """At the rate of advance of that partition's earliest offset."""
    loss_expected_at_ms: int | None = None
    """At the present rates of query and retention. None: the query stays ahead."""


def headroom_of(
    topics: Sequence[TopicLag], history: QueryHistory, measure_time: MeasureTime
) -> Headroom:
    records: int | None = None
    nearest: tuple[float, TopicLag, PartitionLag] | None = None
    for topic in topics:
        for partition in topic.partitions:
            at, earliest = partition.processed_offset, partition.earliest_offset
            if not partition.lag or at is None or earliest is None or partition.lost_records:
                continue
            if partition.readable_lag == 0:
                continue
            if records is None or at - earliest < records:
                records = at - earliest
            headroom_s = partition.headroom_s
            if headroom_s is not None and (nearest is None or headroom_s < nearest[0]):
                nearest = (headroom_s, topic, partition)
    if records is None or nearest is None:
        return Headroom(records)
    seconds, topic, partition = nearest
    loss_at_ms = _loss_at_ms(topic, partition, seconds, history, measure_time)
    return Headroom(records, seconds, loss_at_ms)


def _loss_at_ms(
    topic: TopicLag,
    partition: PartitionLag,
    seconds: float,
    history: QueryHistory,
    measure_time: MeasureTime,
) -> int | None:
    headroom = (partition.processed_offset or 0) - (partition.earliest_offset or 0)
    if seconds <= 0 or headroom <= 0:
        return measure_time.now_ms
    delete_rate = headroom / seconds
    read_rate = _read_rate(topic, partition, history)
    if read_rate >= delete_rate:
        return None
    lost_ms = measure_time.now_ms + round(headroom / (delete_rate - read_rate) * 1000)
    return lost_ms if lost_ms <= MAX_EPOCH_MS else None


def _read_rate(topic: TopicLag, partition: PartitionLag, history: QueryHistory) -> float:
    """Offsets a second that the query reads of this partition."""
    earlier = history.earlier.get((topic.source, topic.topic))
    if earlier is None or not history.commits or earlier.topic_id != topic.topic_id:
        return 0.0
    before = next((p for p in earlier.partitions if p.partition == partition.partition), None)
    if before is None or before.processed_offset is None or partition.processed_offset is None:
        return 0.0
    last_s = history.commits[-1].at_s
    # While a commit is overdue, the query is slower or stuck.
    usual_s = history.usual.interval_s or 0.0
    elapsed_s = max(last_s - history.earlier_s, history.at_s - history.earlier_s - 2 * usual_s)
    moved = partition.processed_offset - before.processed_offset
    return max(0, moved) / elapsed_s if elapsed_s > 0 else 0.0
