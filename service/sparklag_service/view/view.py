"""The newest lag event of every query, and its summary. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import Struct

from sparklag_schemas import LagEvent
from sparklag_schemas.codec import encode
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.messages.bounds import TopicName
from sparklag_schemas.messages.query_names import has_ended, ids_with_prefix, is_live, name_meaning
from sparklag_schemas.settings import LimitSettings
from sparklag_service.evaluation.evaluator import without_numbers


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

    def __init__(self, limits: LimitSettings = _DEFAULTS) -> None:
        self._most_queries = limits.queries
        self._most_bytes = limits.view_mb * 1024 * 1024
        self.size_bytes = 0
        """The size of the events' JSON."""
        self._finished: dict[str, None] = {}
        self._entries: dict[str, Entry] = {}
        self._ids_by_name: dict[str, set[str]] = {}
        self._listed: list[tuple[bytes, str]] = []
        """Position and id of every query, sorted."""
        self._meant: dict[tuple[str, str], LagEvent] = {}
        """A cache: the newest event of the query that a name means, by cluster and name, until
        another event may change that. Only queries with a driver."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def query_ids(self) -> list[str]:
        """The ids of all queries."""
        return list(self._entries)

    def listed(self, after: bytes | None = None) -> Iterator[tuple[bytes, LagEvent]]:
        """Positions and newest events in the order of positions, after `after`. The view must not
        change during the iteration."""
        start = 0 if after is None else bisect_right(self._listed, after, key=itemgetter(0))
        for index in range(start, len(self._listed)):
            position, query_id = self._listed[index]
            yield position, self._entries[query_id].event

    def get(self, query_id: str) -> Entry | None:
        """The newest event of a query id."""
        return self._entries.get(query_id)

    def event(self, query_id: str) -> LagEvent | None:
        """The newest event of a query id, without its document."""
        entry = self._entries.get(query_id)
        return None if entry is None else entry.event

    def find(self, wanted: str) -> list[Entry]:
        """The query with this id; else the query that the name means: its live query, or its
        newest; else the queries whose id has this prefix. Several if that is ambiguous."""
        by_id = self._entries.get(wanted)
        if by_id is not None:
            return [by_id]
        meant = name_meaning(entry.event for entry in self.named(wanted))
        return [self._entries[event.query_id] for event in meant] or self.with_prefix(wanted)

    def named(self, name: str) -> list[Entry]:
        """All queries of that name, sorted by id."""
        return [self._entries[i] for i in sorted(self._ids_by_name.get(name, ()))]

    def with_prefix(self, prefix: str) -> list[Entry]:
        """All queries whose id has that prefix, sorted by id."""
        return [self._entries[i] for i in ids_with_prefix(prefix, self._entries)]

    def successor(self, event: LagEvent) -> str | None:
        """The id of the query that now has the name of the event's query, in its cluster, if no
        driver reports the latter. None without a driver: such queries are named after folders."""
        if event.query is None or event.run_id is None or is_live(event):
            return None
        meant = self._meaning(event.cluster, event.query)
        if meant is None or meant.query_id == event.query_id:
            return None
        return meant.query_id if is_live(meant) or _is_newer(meant, event) else None

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
            self._ids_by_name.setdefault(entry.event.query, set()).add(query_id)
            self._outdate_meaning(entry.event, entry.event.query)
        return True

    def remove(self, query_id: str) -> None:
        """Forget a query: its tombstone was read."""
        current = self._entries.pop(query_id, None)
        if current is not None:
            self._remove_name(current.event)
            self._unlist(current.event)
            self._finished.pop(query_id, None)
            self.size_bytes -= len(current.document)

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
        while not self._has_room(more_bytes, is_new=current is None):
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
        cut = without_numbers(event, reason)
        if has_ended(event.status):
            # An alarm remains an alarm.
            cut = msgspec.structs.replace(
                cut, status=event.status, reason=f"{event.reason}; {reason}"
            )
        return replace(entry, event=cut, document=encode(cut))

    def _has_room(self, more_bytes: int, *, is_new: bool) -> bool:
        return (
            len(self._entries) + is_new <= self._most_queries
            and self.size_bytes + more_bytes <= self._most_bytes
        )

    def _remove_name(self, event: LagEvent) -> None:
        if event.query is None:
            return
        self._outdate_meaning(event, event.query)
        ids = self._ids_by_name[event.query]
        ids.discard(event.query_id)
        if not ids:
            del self._ids_by_name[event.query]

    def _unlist(self, event: LagEvent) -> None:
        del self._listed[bisect_left(self._listed, (_position(event), event.query_id))]

    def _meaning(self, cluster: str, name: str) -> LagEvent | None:
        if (cluster, name) not in self._meant:
            meant = name_meaning(
                entry.event
                for entry in self.named(name)
                if entry.event.cluster == cluster and entry.event.run_id is not None
            )
            if not meant:
                return None
            self._meant[cluster, name] = meant[0]
        return self._meant[cluster, name]

    def _outdate_meaning(self, event: LagEvent, name: str) -> None:
        meant = self._meant.get((event.cluster, name))
        if meant is not None and (
            meant.query_id == event.query_id or is_live(event) or _is_newer(event, meant)
        ):
            del self._meant[event.cluster, name]


def _position(event: LagEvent) -> bytes:
    """A key that sorts by name, then id: UTF-8 sorts like code points."""
    return f"{event.query or ''}\0{event.query_id}".encode("utf-8", "surrogatepass")


def _is_newer(event: LagEvent, other: LagEvent) -> bool:
    return event.observed_at > other.observed_at


def is_forgettable(event: LagEvent) -> bool:
    """Returns whether no source reports the query: no driver; without a driver, neither its
    checkpoint nor its group can be read."""
    return not is_live(event) if event.run_id is not None else event.status == "UNKNOWN"
