"""Decides which events and partition records of one query are due. Pure: `now_s` is any monotonic
clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec import Struct

from sparklag_schemas import LagEvent, PartitionLag, PartitionRecord, Settings, TopicLag
from sparklag_schemas.messages.bounds import facts
from sparklag_schemas.messages.lag_event import partition_key, partition_record

_EARLY: Final = 0.5
"""Share of a refresh interval. On a busy machine one evaluation is late and the next in time: an
event due within half a refresh does not wait for the next refresh."""


class Cadence:
    """When the query is measured again, and when an event of it is due."""

    __slots__ = ("_interval", "_last", "_observed_s", "_published_s", "_settings", "_unchanged_s")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._interval: tuple[str | None, float] | None = None
        """The query's name, and its refresh interval."""
        self.forget()

    def forget(self) -> None:
        """Make the next event due."""
        self._last: LagEvent | None = None
        self._published_s = self._observed_s = float("-inf")
        self._unchanged_s: float | None = None
        """When the query was last evaluated, if unchanged since its last event. Otherwise None."""

    def refresh_due(self, query: str | None, query_id: str, now_s: float) -> bool:
        """Returns whether to measure the query again. A query that has not changed is measured in
        its interval of `refresh_intervals` and at the heartbeat, any other at each refresh."""
        if self._unchanged_s is None:
            return True
        settings = self._settings
        if self._interval is None or self._interval[0] != query:
            self._interval = query, settings.refresh_interval_of(query, query_id)
        next_s = self._unchanged_s + self._interval[1]
        heartbeat_s = self._published_s + settings.heartbeat_s
        return now_s + _EARLY * settings.refresh_interval_s >= min(next_s, heartbeat_s)

    def due(self, event: LagEvent, now_s: float) -> bool:
        """Returns whether to publish `event` now.

        A start and an end are always due, and so is a driver's last event. A progress event is due
        if something changed, once in `publish_interval_s`, without regard to refreshes. A refresh
        is due if something changed, once in the same interval after any event. At the heartbeat
        every event is due.
        """
        last, settings = self._last, self._settings
        changed = last is None or has_changed(last, event)
        self._unchanged_s = None if changed else now_s
        if last is None or event.cause in ("started", "terminated", "closed"):
            return True
        early_s = _EARLY * settings.refresh_interval_s
        since_s = now_s - self._published_s + early_s
        if since_s >= settings.heartbeat_s:
            return True
        if event.cause != "refresh":
            since_s = now_s - self._observed_s
        return changed and since_s >= settings.publish_interval_s

    def published(self, event: LagEvent, now_s: float) -> None:
        """`event` is in flight."""
        self._last, self._published_s = event, now_s
        if event.cause != "refresh":
            self._observed_s = now_s


def _comparison(kind: type[Struct], *without: str) -> Callable[[Any, Any], bool]:
    """Returns a function that compares two structs, without the fields that change with time alone.

    It is generated from the fields, like the methods of a dataclass: it runs for every partition in
    every pass. Unlike `operator.attrgetter` it builds no tuples, and stops at the first difference.
    """
    names = [name for name in facts(kind) if name not in without]
    terms = " or ".join(f"was.{name} != now.{name}" for name in names)
    compare: Callable[[Any, Any], bool] = eval(f"lambda was, now: was is not now and ({terms})")
    return compare


partition_changed: Final = _comparison(PartitionLag)
_topic_changed: Final = _comparison(TopicLag, "partitions")


def has_changed(last: LagEvent, event: LagEvent) -> bool:
    """Returns whether more than the time has changed. The age of a waiting record grows, but each
    reader can calculate it from `measured_at`."""
    return (
        last.observed_at != event.observed_at
        or last.status != event.status
        or last.reason != event.reason
        or last.superseded_by != event.superseded_by
        or len(last.topics) != len(event.topics)
        or any(
            len(was.partitions) != len(now.partitions)
            or _topic_changed(was, now)
            or any(map(partition_changed, was.partitions, now.partitions))
            for was, now in zip(last.topics, event.topics, strict=True)
        )
    )


class Change(NamedTuple):
    """A record to write. None: the partition is gone, so a tombstone."""

    key: str
    record: PartitionRecord | None
    written: _Written | None


class _Written(NamedTuple):
    """The data of a key's last record."""

    partition: PartitionLag
    query_status: str
    at_s: float


class PartitionChanges:
    """Decides which partition records of the query are due."""

    __slots__ = ("_heartbeat_s", "_written")

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._written: dict[str, _Written | None] = {}
        """The last record of each key. None: another instance wrote it."""

    def take_over(self, event: LagEvent) -> None:
        """Store the keys of an event that another instance published with all its partitions."""
        self._written = {key: None for key, _, _ in _partitions(event)}

    def due(self, event: LagEvent, now_s: float) -> list[Change]:
        """The records of partitions that changed, or were not written for a heartbeat; tombstones
        of partitions that are gone."""
        changes = []
        keys = set()
        for key, topic, partition in _partitions(event):
            keys.add(key)
            last = self._written.get(key)
            if (
                last is None
                or now_s - last.at_s >= self._heartbeat_s
                or last.query_status != event.status
                or partition_changed(last.partition, partition)
            ):
                record = partition_record(event, topic, partition)
                changes.append(Change(key, record, _Written(partition, event.status, now_s)))
        return changes + [Change(key, None, None) for key in self._written.keys() - keys]

    def all_gone(self) -> list[Change]:
        """A tombstone for each partition of a forgotten query."""
        return [Change(key, None, None) for key in self._written]

    def written(self, change: Change) -> None:
        """Store that a change is acknowledged."""
        if change.written is not None:
            self._written[change.key] = change.written
        else:
            self._written.pop(change.key, None)


def _partitions(event: LagEvent) -> Iterator[tuple[str, TopicLag, PartitionLag]]:
    for topic in event.topics:
        for partition in topic.partitions:
            key = partition_key(event.query_id, topic.source, topic.topic, partition.partition)
            yield key, topic, partition


@dataclass(slots=True)
class PublishedQuery:
    """What the publisher keeps of one query."""

    query_id: str
    cadence: Cadence
    partitions: PartitionChanges
    in_flight: asyncio.Task[None] | None = None
    """The write of an event or the tombstone."""
    unwritten: LagEvent | None = None
    """The newest event whose partition records are not written yet."""
    is_queued: bool = False
    """True while the query is in the queue of the partition publisher."""
    is_forgotten: bool = False
    """True until every partition of a forgotten query has its tombstone."""
    is_released: bool = False
    """True once this instance no longer publishes the query, except for writes that have begun."""
