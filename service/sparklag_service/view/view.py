"""The newest lag event of every query: what any instance answers from. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from sparklag_schemas import LagEvent
from sparklag_schemas.codec import encode
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.settings import LimitSettings
from sparklag_service.evaluation.unknown_event import without_numbers

_DEFAULTS: Final = LimitSettings()


@dataclass(frozen=True)
class Entry:
    """An event as it stands on the topic."""

    event: LagEvent
    document: bytes
    """Its JSON, as it was read if that is what was read: what REST answers with."""
    received_s: float
    """When it was read (`time.monotonic()`): clocks of other machines do not count."""


class View:
    """Events by query id and by name. Keeps the higher version, whatever order they come in.

    Where there is no room for an event of a query that lives, those give way whose driver is silent
    or has ended, the first to do so first; else that query's partitions are left out, or all of it
    where it is a new one.
    """

    def __init__(self, limits: LimitSettings = _DEFAULTS) -> None:
        self._most_queries = limits.queries
        self._most_bytes = limits.view_mb * 1024 * 1024
        self.held_bytes = 0
        """Of the events' JSON."""
        self._ended: dict[str, None] = {}
        self._entries: dict[str, Entry] = {}
        self._ids_by_name: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, query_id: str) -> Entry | None:
        """The newest event of a query id."""
        return self._entries.get(query_id)

    def event(self, query_id: str) -> LagEvent | None:
        """The same, without its document."""
        entry = self._entries.get(query_id)
        return None if entry is None else entry.event

    def find(self, name_or_id: str) -> list[Entry]:
        """The query of that id, or those of that name: more than one where they share it."""
        by_id = self._entries.get(name_or_id)
        if by_id is not None:
            return [by_id]
        return [self._entries[i] for i in sorted(self._ids_by_name.get(name_or_id, ()))]

    def put(self, entry: Entry) -> bool:
        """Take an event in; whether it is the newest of its query. Raises OverLimit."""
        query_id = entry.event.query_id
        known = self._entries.get(query_id)
        if known is not None and entry.event.version < known.event.version:
            return False
        entry = self._fitting(entry, known)
        if known is not None:
            self._unname(known.event)
            self.held_bytes -= len(known.document)
        self._entries[query_id] = entry
        self.held_bytes += len(entry.document)
        if has_ended(entry.event.status):
            self._ended.setdefault(query_id)
        else:
            self._ended.pop(query_id, None)
        if entry.event.query is not None:
            self._ids_by_name.setdefault(entry.event.query, set()).add(query_id)
        return True

    def remove(self, query_id: str) -> None:
        """Forget a query: its tombstone was read."""
        known = self._entries.pop(query_id, None)
        if known is not None:
            self._unname(known.event)
            self._ended.pop(query_id, None)
            self.held_bytes -= len(known.document)

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """How much of each limit is used: its setting, used, limit."""
        return {
            "queries": (len(self._entries), self._most_queries),
            "view_mb": (self.held_bytes >> 20, self._most_bytes >> 20),
        }

    def _fitting(self, entry: Entry, known: Entry | None) -> Entry:
        event = entry.event
        more_bytes = len(entry.document) - (len(known.document) if known is not None else 0)
        while not self._has_room(more_bytes, is_new=known is None):
            victim = next((i for i in self._ended if i != event.query_id), None)
            if victim is None or has_ended(event.status):
                break
            self.remove(victim)
        else:
            return entry
        if known is None:
            raise OverLimit(
                f"{len(self._entries):,} queries of {self.held_bytes >> 20} MB are known here"
                " (limits.queries, limits.view_mb)"
            )
        reason = f"its event of {len(entry.document):,} bytes has no room here (limits.view_mb)"
        cut = without_numbers(event, reason)
        return replace(entry, event=cut, document=encode(cut))

    def _has_room(self, more_bytes: int, *, is_new: bool) -> bool:
        return (
            len(self._entries) + is_new <= self._most_queries
            and self.held_bytes + more_bytes <= self._most_bytes
        )

    def _unname(self, event: LagEvent) -> None:
        if event.query is None:
            return
        ids = self._ids_by_name[event.query]
        ids.discard(event.query_id)
        if not ids:
            del self._ids_by_name[event.query]


def has_ended(status: str) -> bool:
    """Whether the query's driver ended, or fell silent."""
    return status in ("FINISHED", "FAILED", "STOP")
