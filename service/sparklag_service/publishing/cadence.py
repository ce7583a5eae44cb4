"""When an event of a query is due. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.bounds import facts

_EARLY: Final = 0.1
"""Of a refresh interval."""


@dataclass(frozen=True)
class _Published:
    event: LagEvent
    at_s: float


class Cadence:
    """When an event of a query is due. Pure: `now_s` is any clock that only rises."""

    def __init__(
        self, publish_interval_s: float, heartbeat_s: float, refresh_interval_s: float
    ) -> None:
        self._publish_interval_s = publish_interval_s
        self._heartbeat_s = heartbeat_s
        # No refresh takes exactly as long as the one before: one that comes a moment early does
        # not leave it to the next.
        self._early_s = _EARLY * refresh_interval_s
        self._last: dict[str, _Published] = {}
        self._last_observed_s: dict[str, float] = {}

    def due(self, event: LagEvent, now_s: float) -> bool:
        """Whether to publish `event` now.

        A start and an end always are, and so is the last of a driver. A progress is, once in
        `publish_interval_s`, however short ago a refresh was published; a refresh, when something
        changed, the same interval after whatever was published last; and anything, changed or not,
        at the heartbeat.
        """
        last = self._last.get(event.query_id)
        if last is None or event.cause in ("started", "terminated", "closed"):
            return True
        since_s = now_s - last.at_s + self._early_s
        if since_s >= self._heartbeat_s:
            return True
        if event.cause != "refresh":
            since_s = now_s - self._last_observed_s.get(event.query_id, float("-inf"))
        return since_s >= self._publish_interval_s and has_changed(last.event, event)

    def published(self, event: LagEvent, now_s: float) -> None:
        """`event` is on its way."""
        self._last[event.query_id] = _Published(event, now_s)
        if event.cause != "refresh":
            self._last_observed_s[event.query_id] = now_s

    def forget(self, query_id: str) -> None:
        """Whatever comes next of this query is due."""
        self._last.pop(query_id, None)
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
