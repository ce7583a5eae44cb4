"""`GET /lag`: every query's summary, filtered, sorted, paged. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import islice
from typing import Final

from msgspec import Raw

from sparklag_schemas import LagEvent, Status
from sparklag_service.view.summary import summary
from sparklag_service.view.view import View

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


def page(view: View, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """The first `limit` summaries after `cursor`, which matches CURSOR.

    The order does not depend on lag, so that paging misses no query while lags change.
    """
    after = _decode(cursor) if cursor else None
    matching = (item for item in view.listed(after) if wanted.matches(item[1]))
    shown = list(islice(matching, limit))
    has_more = next(matching, None) is not None
    return Page(
        [Raw(summary(event)) for _, event in shown],
        _encode(shown[-1][0]) if has_more else None,
    )


def _clusters(event: LagEvent) -> set[str | None]:
    return {event.cluster, *(topic.cluster for topic in event.topics)}


def _encode(position: bytes) -> str:
    return base64.urlsafe_b64encode(position).decode().rstrip("=")


def _decode(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
