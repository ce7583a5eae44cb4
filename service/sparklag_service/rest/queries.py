"""The queries that a request selects: one by its name or id, or a page of all."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from fastapi import Request
from msgspec import Raw

from sparklag_schemas import LagEvent, Status
from sparklag_schemas.messages.query_names import alike, ambiguity
from sparklag_service.access.principals import visible
from sparklag_service.rest.authentication import principal_of
from sparklag_service.rest.problems import Problem
from sparklag_service.rest.system import Backend, failing
from sparklag_service.view.view import Entry, View, summary

_HIDE_QUERIES = ("view", "kafka")
"""Parts of the service. While one of them fails, the view may lack existing queries."""
_RETRY_AFTER_S = 2


def find_query(backend: Backend, request: Request, wanted: str) -> Entry:
    """The newest event of a query, by its name, its id or a prefix of its id. Raises Problem."""
    view = visible(backend.view, principal_of(request))
    return the_one(backend, request, view, view.find(wanted), wanted)


def the_one(
    backend: Backend, request: Request, view: View, entries: Sequence[Entry], wanted: str
) -> Entry:
    """Returns the only one of `entries`, those of `view` that match `wanted`. Raises Problem."""
    if len(entries) == 1:
        return entries[0]
    if not entries:
        raise _unknown(failing(backend, request), view, wanted)
    raise Problem(
        "ambiguous-query-name",
        ambiguity(wanted, [entry.event for entry in entries]),
        query_ids=[entry.event.query_id for entry in entries],
    )


def _unknown(parts: dict[str, str], view: View, wanted: str) -> Problem:
    unknown = f"no query has the name or id {wanted!r}"
    if not any(part in parts for part in _HIDE_QUERIES):
        return Problem("unknown-query", unknown, alike=alike(wanted, view.names()))
    reasons = "; ".join(f"{part}: {reason}" for part, reason in parts.items())
    return Problem(
        "not-ready",
        f"{unknown} yet, and the view is not complete: {reasons}",
        failing=parts,
        retry_after_s=_RETRY_AFTER_S,
    )


MAX_PAGE: Final = 1_000
CURSOR: Final = "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?$"
"""The regular expression of a cursor, which encodes a position in the order."""


@dataclass(frozen=True)
class Filter:
    """Conditions for the listed queries. None: no condition."""

    status: Status | None = None
    topic: str | None = None
    cluster: str | None = None
    superseded: bool = False
    """Also lists queries whose name now belongs to another query."""

    def matches(self, event: LagEvent) -> bool:
        return (
            (self.superseded or event.superseded_by is None)
            and (self.status is None or event.status == self.status)
            and (
                self.cluster is None
                or self.cluster in {event.cluster, *(t.cluster for t in event.topics)}
            )
            and (self.topic is None or any(t.topic == self.topic for t in event.topics))
        )


class Page(NamedTuple):
    """Summaries by name, then id; `next_cursor` is None on the last page."""

    queries: list[Raw]
    next_cursor: str | None


def page(view: View, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """The first `limit` summaries after `cursor`, which matches CURSOR.

    The order is independent of lag, so paging misses no query while lags change.
    """
    after = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)) if cursor else None
    matching = (item for item in view.listed(after) if wanted.matches(item[1]))
    shown = list(islice(matching, limit))
    next_cursor = None
    if next(matching, None) is not None:
        next_cursor = base64.urlsafe_b64encode(shown[-1][0]).decode().rstrip("=")
    return Page([Raw(summary(event)) for _, event in shown], next_cursor)
