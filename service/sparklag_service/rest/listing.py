"""`GET /lag`: every query's summary, filtered, sorted, paged. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from sparklag_schemas import LagEvent, Status

MAX_PAGE = 1_000


class BadCursor(ValueError):
    """Not a cursor that a page ended with."""


@dataclass(frozen=True)
class Filter:
    """What a query must be to be listed; None is no condition."""

    status: Status | None = None
    topic: str | None = None
    cluster: str | None = None

    def takes(self, event: LagEvent) -> bool:
        """Whether `event` keeps every condition."""
        return (
            (self.status is None or event.status == self.status)
            and (self.cluster is None or self.cluster in _clusters(event))
            and (self.topic is None or any(t.topic == self.topic for t in event.topics))
        )


@dataclass(frozen=True)
class Page:
    """Summaries in the order of name, then id; `next_cursor` is None on the last page."""

    queries: list[dict[str, object]]
    next_cursor: str | None


def page(events: Iterable[LagEvent], wanted: Filter, limit: int, cursor: str | None) -> Page:
    """The first `limit` summaries after `cursor`. Raises BadCursor.

    The order does not depend on lag, so that paging misses no query while lags change.
    """
    after = _decode(cursor) if cursor else None
    listed = sorted((event for event in events if wanted.takes(event)), key=_place)
    if after is not None:
        listed = [event for event in listed if _place(event) > after]
    shown = listed[:limit]
    more = len(listed) > limit
    return Page([summary(event) for event in shown], _encode(_place(shown[-1])) if more else None)


def summary(event: LagEvent) -> dict[str, object]:
    """The event without its partitions: topics by name."""
    document: dict[str, object] = msgspec.structs.asdict(event)
    document["batch"] = msgspec.to_builtins(event.batch)
    document["topics"] = sorted({topic.topic for topic in event.topics})
    return document


def _clusters(event: LagEvent) -> set[str | None]:
    return {event.cluster, *(topic.cluster for topic in event.topics)}


def _place(event: LagEvent) -> tuple[str, str]:
    return (event.query or "", event.query_id)


def _encode(place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _decode(cursor: str) -> tuple[str, str]:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[str, str])
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise BadCursor("not a cursor of this listing") from error
