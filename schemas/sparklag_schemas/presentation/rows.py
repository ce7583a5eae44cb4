"""A query in lists: the fields of a lag event that lists show, and their texts by heading. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, get_args

from msgspec import Struct

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.messages import bounds
from sparklag_schemas.messages.enumerations import Mark, OpenActivity, OpenOrigin, OpenStatus, mark
from sparklag_schemas.messages.observation import RunningBatch
from sparklag_schemas.text.formatting import ago, catch_up, records, time_lag, trend
from sparklag_schemas.text.printable import printable


class Summary(Struct, frozen=True, kw_only=True):
    """The fields of a lag event that lists show."""

    query_id: bounds.Name
    query: bounds.Name | None = None
    application: bounds.Name | None = None
    topics: list[str] = []
    origin: OpenOrigin = "listener"
    status: OpenStatus = "UNKNOWN"
    status_since: bounds.EpochMs | None = None
    reason: bounds.Text | None = None
    measured_at: bounds.EpochMs
    observed_at: bounds.EpochMs | None = None
    processed_at: bounds.EpochMs | None = None
    total_lag: bounds.Count | None = None
    max_time_lag_s: bounds.DurationS | None = None
    lag_trend: bounds.SignedRate | None = None
    catch_up_s: bounds.DurationS | None = None
    catch_up_reason: bounds.Text | None = None
    min_headroom_records: bounds.Int64 | None = None
    min_headroom_s: bounds.DurationS | None = None
    activity: OpenActivity | None = None
    running_batch: RunningBatch | None = None

    @property
    def display_name(self) -> str:
        """The query's name, or the beginning of its id."""
        return self.query or self.query_id[:8]


QueryLag = LagEvent | Summary
COLOURS: Final[Mapping[Mark, str]] = {"bad": "red", "warn": "yellow", "ok": "green"}
CELLS: Final[Mapping[str, Callable[[QueryLag, int], str]]] = {
    "query": lambda query, _: printable(query.display_name),
    "status": lambda query, _: printable(query.status),
    "lag": lambda query, _: records(query.total_lag),
    "time lag": lambda query, _: time_lag(query.total_lag, query.max_time_lag_s),
    "trend": lambda query, _: trend(query.lag_trend),
    "catch-up": lambda query, _: catch_up(query.catch_up_s, query.catch_up_reason),
    "application": lambda query, _: printable(query.application or ""),
    "last batch": lambda query, now_ms: ago(query.processed_at, now_ms),
    "last measured": lambda query, now_ms: ago(query.measured_at, now_ms),
    "reason": lambda query, _: printable(query.reason or ""),
}
"""Text of a query at a time in epoch milliseconds, by heading."""
_WORST_FIRST: Final = get_args(Mark)


def severity(status: str) -> int:
    """Rank of a status: 0 is the worst."""
    return _WORST_FIRST.index(mark(status))


def partitions_of(event: LagEvent) -> Iterator[tuple[TopicLag, PartitionLag]]:
    return ((topic, partition) for topic in event.topics for partition in topic.partitions)


def worst_partition(event: LagEvent) -> tuple[TopicLag, PartitionLag] | None:
    """The partition whose known lag is the highest. None: none is known."""
    known = (pair for pair in partitions_of(event) if pair[1].unread is not None)
    return max(known, key=lambda pair: pair[1].unread or 0, default=None)


def worst_first(event: LagEvent) -> list[tuple[TopicLag, PartitionLag]]:
    """The partitions by lag; unknown lags come first, because one of them may be the worst."""
    return sorted(
        partitions_of(event), key=lambda pair: (pair[1].lag is not None, -(pair[1].unread or 0))
    )
