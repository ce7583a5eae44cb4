"""The newest lag event of every query, and its summary. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import Struct

from sparklag_schemas import LagEvent
from sparklag_schemas.codec import encode
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.messages.bounds import TopicName
from sparklag_schemas.messages.query_names import (
    age_order,
    follows,
    has_ended,
    ids_with_prefix,
    is_live,
    name_meaning,
)
from sparklag_schemas.settings import LimitSettings
from sparklag_schemas.text.formatting import ago
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.evaluation.evaluator import unknown_event


class _Topic(Struct, frozen=True, gc=False):
    topic: TopicName


class _WithoutPartitions(LagEvent, frozen=True, kw_only=True):
    topics: list[_Topic]  # type: ignore[assignment]  # the partitions are not decoded


_decoder: Final = msgspec.json.Decoder(_WithoutPartitions)


def summary(event: LagEvent) -> bytes:
    """The JSON of an event's summary."""
    topics = sorted({topic.topic for topic in event.topics})
    # msgspec checks types only when it decodes.
    return encode(msgspec.structs.replace(event, topics=topics))


def summary_of_document(document: bytes) -> bytes:
    """The JSON of an event's summary, from the event's JSON."""
    return summary(_decoder.decode(document))


_DEFAULTS: Final = LimitSettings()


@dataclass(frozen=True)
class Entry:
    """An event as read from the topic."""

    event: LagEvent
    document: bytes
    """The event's JSON, as REST returns it."""
    received_s: float
    """When the event was read (`time.monotonic()`)."""
    partition: int
    offset: int


class View:
    """Events by query id and by name. Keeps the higher version, in whatever order events arrive.

    At a limit, an event of a live query evicts finished queries, the earliest first. Dead and
    failed queries are alarms and stay. If no finished query is left, the event loses its
    partitions, or a new query is refused.
    """

    def __init__(
        self,
        limits: LimitSettings = _DEFAULTS,
        late_after_s: float = inf,
        now_ms: Callable[[], int] = epoch_ms,
    ) -> None:
        """An event that is older than `late_after_s` is late: see `shown`."""
        self.late_after_s = late_after_s
        self._now_ms = now_ms
        self._most_queries = limits.queries
        self._most_bytes = limits.view_mb * 1024 * 1024
        self.size_bytes = 0
        """The size of the events' JSON."""
        self._finished: dict[str, None] = {}
        self._entries: dict[str, Entry] = {}
        self._ids_by_name: dict[str, list[tuple[int, str]]] = {}
        """When each query of a name was first observed, and its id, sorted."""
        self._listed: list[tuple[bytes, str]] = []
        """Position and id of every query, sorted."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return map(self.shown, self._entries.values())

    def shown(self, entry: Entry) -> Entry:
        """The entry as every surface shows it. Every query is measured and published at each
        heartbeat, whatever its status: a late event is UNKNOWN, and its reason has its status."""
        event, now_ms = entry.event, self._now_ms()
        if not self.is_late(event, now_ms):
            return entry
        late = f"last measured {ago(event.measured_at, now_ms)}"
        was = f"was {event.status}{f' ({event.reason})' if event.reason else ''}"
        reason = f"{late}; {was}" if event.status not in ("OK", "UNKNOWN") else late
        event = msgspec.structs.replace(
            event,
            status="UNKNOWN",
            status_since=event.measured_at + round(self.late_after_s * 1000),
            reason=reason,
            catch_up_s=None,
            catch_up_reason=late,
        )
        return replace(entry, event=event, document=encode(event))

    def is_late(self, event: LagEvent, now_ms: int) -> bool:
        """Returns whether the event is too old to be the query's lag at `now_ms`."""
        return now_ms - event.measured_at > self.late_after_s * 1000

    def late(self) -> list[LagEvent]:
        """The newest event of each query whose event is late, as published."""
        now_ms = self._now_ms()
        return [
            entry.event for entry in self._entries.values() if self.is_late(entry.event, now_ms)
        ]

    def query_ids(self) -> list[str]:
        return list(self._entries)

    def listed(self, after: bytes | None = None) -> Iterator[tuple[bytes, LagEvent]]:
        """Positions and newest events in the order of positions, after `after`. The view must not
        change during the iteration."""
        start = 0 if after is None else bisect_right(self._listed, after, key=itemgetter(0))
        for index in range(start, len(self._listed)):
            position, query_id = self._listed[index]
            yield position, self.shown(self._entries[query_id]).event

    def get(self, query_id: str) -> Entry | None:
        return self._entries.get(query_id)

    def event(self, query_id: str) -> LagEvent | None:
        """The newest event of a query id, without its document."""
        entry = self._entries.get(query_id)
        return None if entry is None else entry.event

    def find(self, wanted: str) -> list[Entry]:
        """The query with this id; else the query that the name means: its live query, or its
        newest; else the queries whose id has this prefix. Several if that is ambiguous."""
        by_id = self.get(wanted)
        if by_id is not None:
            return [self.shown(by_id)]
        named = {entry.event.query_id: entry for entry in self.named(wanted)}
        meant = name_meaning(entry.event for entry in named.values())
        entries = [named[event.query_id] for event in meant] or self.with_prefix(wanted)
        return [self.shown(entry) for entry in entries]

    def named(self, name: str) -> list[Entry]:
        """All queries of that name, sorted by id."""
        return [self._entries[i] for i in sorted(i for _, i in self._ids_by_name.get(name, ()))]

    def names(self) -> Iterator[str]:
        return iter(self._ids_by_name)

    def with_prefix(self, prefix: str) -> list[Entry]:
        """All queries whose id has that prefix, sorted by id."""
        return [self._entries[i] for i in ids_with_prefix(prefix, self._entries)]

    def successor(self, event: LagEvent) -> str | None:
        """The id of the youngest query that follows the event's query under its name (see
        `follows`). None while a driver reports the latter, and without a driver: such queries are
        named after folders."""
        if event.query is None or event.run_id is None or is_live(event):
            return None
        # The youngest first: with many dead queries of one name, the first one usually follows.
        for _, query_id in reversed(self._ids_by_name.get(event.query, ())):
            if follows(self._entries[query_id].event, event):
                return query_id
        return None

    def put(self, entry: Entry) -> bool:
        """Store an event. Returns whether it is the newest of its query. Raises OverLimit."""
        query_id = entry.event.query_id
        current = self._entries.get(query_id)
        if current is not None and entry.event.version < current.event.version:
            return False
        entry = self._admitted(entry, current)
        if current is not None:
            self._remove_name(current.event)
            self.size_bytes -= len(current.document)
        if current is None or current.event.query != entry.event.query:
            if current is not None:
                self._unlist(current.event)
            insort(self._listed, (_position(entry.event), query_id))
        self._entries[query_id] = entry
        self.size_bytes += len(entry.document)
        if entry.event.status == "FINISHED":
            self._finished.setdefault(query_id)
        else:
            self._finished.pop(query_id, None)
        if entry.event.query is not None:
            insort(self._ids_by_name.setdefault(entry.event.query, []), age_order(entry.event))
        return True

    def remove(self, query_id: str) -> LagEvent | None:
        """Forget a query: its tombstone was read. Returns its last event."""
        current = self._entries.pop(query_id, None)
        if current is not None:
            self._remove_name(current.event)
            self._unlist(current.event)
            self._finished.pop(query_id, None)
            self.size_bytes -= len(current.document)
        return None if current is None else current.event

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """The use of each limit: setting to (used, limit)."""
        return {
            "queries": (len(self._entries), self._most_queries),
            "view_mb": (self.size_bytes >> 20, self._most_bytes >> 20),
        }

    def _admitted(self, entry: Entry, current: Entry | None) -> Entry:
        event = entry.event
        more_bytes = len(entry.document) - (len(current.document) if current is not None else 0)
        while (
            len(self._entries) + (current is None) > self._most_queries
            or self.size_bytes + more_bytes > self._most_bytes
        ):
            evicted = next((i for i in self._finished if i != event.query_id), None)
            if evicted is None or has_ended(event.status):
                break
            self.remove(evicted)
        else:
            return entry
        if current is None:
            raise OverLimit(
                f"{len(self._entries):,} queries of {self.size_bytes >> 20} MB are in the view"
                " (limits.queries, limits.view_mb)"
            )
        reason = f"its event of {len(entry.document):,} bytes has no room here (limits.view_mb)"
        by, at_ms = event.measured_by, event.measured_at
        cut = unknown_event(event, by, at_ms, event_id=event.event_id, reason=reason)
        if has_ended(event.status):
            # An alarm remains an alarm.
            cut = msgspec.structs.replace(
                cut, status=event.status, reason=f"{event.reason}; {reason}"
            )
        return replace(entry, event=cut, document=encode(cut))

    def _remove_name(self, event: LagEvent) -> None:
        if event.query is None:
            return
        ids = self._ids_by_name[event.query]
        del ids[bisect_left(ids, age_order(event))]
        if not ids:
            del self._ids_by_name[event.query]

    def _unlist(self, event: LagEvent) -> None:
        del self._listed[bisect_left(self._listed, (_position(event), event.query_id))]


def _position(event: LagEvent) -> bytes:
    """A key that sorts by name, then id: UTF-8 sorts like code points."""
    return f"{event.query or ''}\0{event.query_id}".encode("utf-8", "surrogatepass")


def is_forgettable(event: LagEvent) -> bool:
    """Returns whether no source reports the query: no driver; without a driver, neither its
    checkpoint nor its group can be read."""
    return not is_live(event) if event.run_id is not None else event.status == "UNKNOWN"
