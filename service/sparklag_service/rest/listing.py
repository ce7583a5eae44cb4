"""`GET /lag`: every query's summary, filtered, sorted, paged. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from msgspec import Raw

from sparklag_schemas import LagEvent, Status
from sparklag_service.view.summary import summary

MAX_PAGE: Final = 1_000
CURSOR: Final = "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?$"
"""The regular expression of a cursor: a position in the order."""


@dataclass(frozen=True)
class Filter:
    """Conditions for a query to be listed; None is no condition."""

    status: Status | None = None
    topic: str | None = None
    cluster: str | None = None
    superseded: bool = False
    """Whether those are listed too whose name is another query's now."""

    def matches(self, event: LagEvent) -> bool:
        """Whether `event` meets every condition."""
        return (
            (self.superseded or event.superseded_by is None)
            and (self.status is None or event.status == self.status)
            and (self.cluster is None or self.cluster in _clusters(event))
            and (self.topic is None or any(t.topic == self.topic for t in event.topics))
        )


@dataclass(frozen=True)
class Page:
    """Summaries in the order of name, then id; `next_cursor` is None on the last page."""

    queries: list[Raw]
    next_cursor: str | None


def page(events: Iterable[LagEvent], wanted: Filter, limit: int, cursor: str | None) -> Page:
    """The first `limit` summaries after `cursor`, which matches CURSOR.

    The order does not depend on lag, so that paging misses no query while lags change.
    """
    after = _decode(cursor) if cursor else None
    matching = {_position(event): event for event in events if wanted.matches(event)}
    following = (position for position in matching if after is None or position > after)
    listed = nsmallest(limit + 1, following)
    shown = listed[:limit]
    return Page(
        [Raw(summary(matching[position])) for position in shown],
        _encode(shown[-1]) if len(listed) > limit else None,
    )


def _clusters(event: LagEvent) -> set[str | None]:
    return {event.cluster, *(topic.cluster for topic in event.topics)}


def _position(event: LagEvent) -> bytes:
    # In the order of UTF-8 bytes are those of code points.
    return f"{event.query or ''}\0{event.query_id}".encode("utf-8", "surrogatepass")


def _encode(position: bytes) -> str:
    return base64.urlsafe_b64encode(position).decode().rstrip("=")


def _decode(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
