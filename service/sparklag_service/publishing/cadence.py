"""When a query is measured again, and when an event of it is due. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from sparklag_schemas import LagEvent, PartitionLag, Settings, TopicLag
from sparklag_schemas.messages.bounds import facts

_EARLY: Final = 0.5
"""Of a refresh interval."""


@dataclass(frozen=True)
class _Published:
    event: LagEvent
    at_s: float


class Cadence:
    """When a query is measured again, and when an event of it is due. Pure: `now_s` is any clock
    that only rises."""

    def __init__(self, settings: Settings) -> None:
        self._publish_interval_s = settings.publish_interval_s
        self._heartbeat_s = settings.heartbeat_s
        self._refresh_interval_of = lru_cache(4_096)(settings.refresh_interval_of)
        # On a busy machine one evaluation comes late and the next one in time. What is due within
        # half a refresh is not left to the next: it would come a whole refresh later.
        self._early_s = _EARLY * settings.refresh_interval_s
        self._last: dict[str, _Published] = {}
        self._last_observed_s: dict[str, float] = {}
        self._unchanged_s: dict[str, float] = {}
        """When a query was evaluated, of those that were as published."""

    def refresh_due(self, query: str | None, query_id: str, now_s: float) -> bool:
        """Whether to measure a query again: always, or in its interval of `refresh_intervals` and
        at the heartbeat while it is as published."""
        unchanged_s = self._unchanged_s.get(query_id)
        if unchanged_s is None:
            return True
        next_s = unchanged_s + self._refresh_interval_of(query, query_id)
        heartbeat_s = self._last[query_id].at_s + self._heartbeat_s
        return now_s + self._early_s >= min(next_s, heartbeat_s)

    def due(self, event: LagEvent, now_s: float) -> bool:
        """Whether to publish `event` now.

        A start and an end always are, and so is the last of a driver. A progress is, once in
        `publish_interval_s`, however short ago a refresh was published; a refresh, when something
        changed, the same interval after whatever was published last; and anything, changed or not,
        at the heartbeat.
        """
        last = self._last.get(event.query_id)
        changed = last is None or has_changed(last.event, event)
        if changed:
            self._unchanged_s.pop(event.query_id, None)
        else:
            self._unchanged_s[event.query_id] = now_s
        if last is None or event.cause in ("started", "terminated", "closed"):
            return True
        since_s = now_s - last.at_s + self._early_s
        if since_s >= self._heartbeat_s:
            return True
        if event.cause != "refresh":
            since_s = now_s - self._last_observed_s.get(event.query_id, float("-inf"))
        return changed and since_s >= self._publish_interval_s

    def published(self, event: LagEvent, now_s: float) -> None:
        """`event` is on its way."""
        self._last[event.query_id] = _Published(event, now_s)
        if event.cause != "refresh":
            self._last_observed_s[event.query_id] = now_s

    def forget(self, query_id: str) -> None:
        """Whatever comes next of this query is due."""
        self._last.pop(query_id, None)
        self._unchanged_s.pop(query_id, None)
        self._last_observed_s.pop(query_id, None)


def _comparison(kind: type[Struct], *without: str) -> Callable[[Any, Any], bool]:
    """A function that says whether two structs differ by more than that time has passed.

    It is generated from the fields, like the methods of a dataclass: it runs for every partition in
    every pass. Unlike `operator.attrgetter` it builds no tuples, and ends at the first difference.
    """
    names = [name for name in facts(kind) if name not in without]
    terms = " or ".join(f"was.{name} != now.{name}" for name in names)
    compare: Callable[[Any, Any], bool] = eval(f"lambda was, now: was is not now and ({terms})")
    return compare


partition_changed: Final = _comparison(PartitionLag)
_topic_changed: Final = _comparison(TopicLag, "partitions")


def has_changed(last: LagEvent, event: LagEvent) -> bool:
    """Whether there is more to say than that time has passed: a record that waits grows older, and
    everybody can reckon that from `measured_at`."""
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
