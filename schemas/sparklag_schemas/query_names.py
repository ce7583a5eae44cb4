"""What the name of a query means: its one live query, else its newest. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.query_ids import ids_with_prefix


def has_ended(status: str) -> bool:
    """Whether the query's driver has ended, or is dead."""
    return status in ("FINISHED", "FAILED", "STOP")


def is_live(event: LagEvent) -> bool:
    """Whether its driver speaks of it still: it has not ended, is not dead, and observes it."""
    return not has_ended(event.status) and event.driver_end != "closed"


def name_meaning(events: Iterable[LagEvent]) -> list[LagEvent]:
    """Of the events of one name, those that are live; if none is, the newest."""
    named = list(events)
    live = [event for event in named if is_live(event)]
    return live or sorted(named, key=lambda event: event.observed_at)[-1:]


def find_query(wanted: str, events: Mapping[str, LagEvent]) -> list[LagEvent]:
    """Of `events` by query id: the query of that id; or that the name means; or whose id begins so.
    More than one where that is ambiguous."""
    if wanted in events:
        return [events[wanted]]
    named = (events[query_id] for query_id in sorted(events) if events[query_id].query == wanted)
    return name_meaning(named) or [events[i] for i in ids_with_prefix(wanted, events)]


def ambiguity(wanted: str, events: Collection[LagEvent]) -> str:
    """Why `wanted` is ambiguous: it means all of `events`."""
    is_name = any(event.query == wanted for event in events)
    have = "live queries have the name" if is_name else "ids begin with"
    return f"{len(events)} {have} {wanted!r}: request one of them by its id"
