"""Which query a name, an id or the beginning of an id means. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from heapq import nsmallest
from itertools import pairwise, zip_longest
from typing import Final

from sparklag_schemas.messages.lag_event import LagEvent

MIN_PREFIX: Final = 4
"""Characters."""
_LATE_END_MS: Final = 1_000
"""Spark may report the end of a query after the start of the next: it queues ends, not starts."""
_MIN_SHOWN: Final = 8
"""Characters of an id in a table: a later id may begin with the same ones."""
_COMPARED: Final = 100
"""Names, and characters of the wanted one."""


def ids_with_prefix(prefix: str, query_ids: Iterable[str]) -> list[str]:
    """The `query_ids` that begin with `prefix`, sorted; none where it is too short."""
    if len(prefix) < MIN_PREFIX:
        return []
    return sorted(query_id for query_id in query_ids if query_id.startswith(prefix))


def shown_prefixes(query_ids: Iterable[str]) -> dict[str, str]:
    """The first characters of each id, by id, for a table of all of them: at least eight, and as
    many as distinguish it from the others."""
    ordered = sorted(set(query_ids))
    lengths = dict.fromkeys(ordered, _MIN_SHOWN)
    for first, second in pairwise(ordered):
        differs_at = next(n for n, (a, b) in enumerate(zip_longest(first, second), 1) if a != b)
        for query_id in (first, second):
            lengths[query_id] = max(lengths[query_id], differs_at)
    return {query_id: query_id[:length] for query_id, length in lengths.items()}


def alike(wanted: str, names: Iterable[str]) -> list[str]:
    """At most three of `names` that are spelled like `wanted`, the most alike first."""
    # difflib needs up to 1 ms for a name: it compares those with almost the same characters alone.
    wanted = wanted[:_COMPARED]
    characters = frozenset(wanted)
    nearest = nsmallest(_COMPARED, names, lambda name: len(characters.symmetric_difference(name)))
    return get_close_matches(wanted, nearest)


def has_ended(status: str) -> bool:
    """True: the query's driver has ended, or is dead."""
    return status in ("FINISHED", "FAILED", "STOP")


def is_live(event: LagEvent) -> bool:
    """True: the query's driver has not ended, is not dead, and still observes the query."""
    return not (has_ended(event.status) or is_over(event) or event.driver_end == "closed")


def is_over(event: LagEvent) -> bool:
    """True: the end of the query's last run was reported, whatever its status is."""
    return event.status in ("FINISHED", "FAILED") or (event.runs is not None and event.runs.ended)


def follows(event: LagEvent, ended: LagEvent) -> bool:
    """True: the query of `event` began after the other's driver had reported last, and reads one of
    its topics. Of two that ran side by side, none follows the other."""
    if event.runs is None or event.query_id == ended.query_id or event.cluster != ended.cluster:
        return False
    reported_at = ended.observed_at if ended.runs is None else ended.runs.reported_at
    if event.runs.first_at < reported_at - _LATE_END_MS:
        return False
    if ended.runs is not None and age_order(event) <= age_order(ended):
        # Of two that ended within the tolerance each would follow the other: no alarm was left.
        return False
    read = {(topic.cluster, topic.topic) for topic in ended.topics}
    return not read or any((topic.cluster, topic.topic) in read for topic in event.topics)


def age_order(event: LagEvent) -> tuple[int, str]:
    """A key that sorts by the start of the first run, then id."""
    return (event.runs.first_at if event.runs is not None else 0, event.query_id)


def name_meaning(events: Iterable[LagEvent]) -> list[LagEvent]:
    """The live events among those of one name; if none is live, the newest."""
    named = list(events)
    live = [event for event in named if is_live(event)]
    return live or sorted(named, key=lambda event: event.observed_at)[-1:]


def find_query(wanted: str, events: Mapping[str, LagEvent]) -> list[LagEvent]:
    """The events (`events` is by query id) of the query with the id `wanted`, else with that name,
    else with an id that begins with it. Several events: `wanted` is ambiguous."""
    if wanted in events:
        return [events[wanted]]
    named = (events[query_id] for query_id in sorted(events) if events[query_id].query == wanted)
    return name_meaning(named) or [events[i] for i in ids_with_prefix(wanted, events)]


def ambiguity(wanted: str, events: Collection[LagEvent]) -> str:
    """Why `wanted`, which matches all of `events`, is ambiguous."""
    is_name = any(event.query == wanted for event in events)
    have = "live queries have the name" if is_name else "ids begin with"
    return f"{len(events)} {have} {wanted!r}: request one of them by its id"
