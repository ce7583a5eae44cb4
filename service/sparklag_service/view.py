"""The newest lag event of every query: what any instance answers from. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparklag_schemas import LagEvent


@dataclass(frozen=True)
class Entry:
    """An event as it stands on the topic."""

    event: LagEvent
    document: bytes
    """Its JSON, as it was read if that is what was read: what REST answers with."""
    heard_s: float
    """When it was read (`time.monotonic()`): clocks of other machines do not count."""


class View:
    """Events by query id and by name. Keeps the higher version, whatever order they come in."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._ids_by_name: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, query_id: str) -> Entry | None:
        """The newest event of a query id."""
        return self._entries.get(query_id)

    def find(self, name_or_id: str) -> list[Entry]:
        """The query of that id, or those of that name: more than one where they share it."""
        by_id = self._entries.get(name_or_id)
        if by_id is not None:
            return [by_id]
        return [self._entries[i] for i in sorted(self._ids_by_name.get(name_or_id, ()))]

    def put(self, entry: Entry) -> bool:
        """Take an event in; whether it is the newest of its query."""
        query_id = entry.event.query_id
        known = self._entries.get(query_id)
        if known is not None:
            if entry.event.version < known.event.version:
                return False
            self._unname(known.event)
        self._entries[query_id] = entry
        if entry.event.query is not None:
            self._ids_by_name.setdefault(entry.event.query, set()).add(query_id)
        return True

    def remove(self, query_id: str) -> None:
        """Forget a query: its tombstone was read."""
        known = self._entries.pop(query_id, None)
        if known is not None:
            self._unname(known.event)

    def _unname(self, event: LagEvent) -> None:
        if event.query is None:
            return
        ids = self._ids_by_name[event.query]
        ids.discard(event.query_id)
        if not ids:
            del self._ids_by_name[event.query]
