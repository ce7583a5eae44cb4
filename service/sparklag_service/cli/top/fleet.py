"""All queries in `sparklag top`: the responses of the service, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from sparklag_schemas.messages.bounds import Count, EpochMs
from sparklag_schemas.rest_interface import path_segment
from sparklag_service.cli.requests import ServiceClient, decoded
from sparklag_service.cli.summary import Summary
from sparklag_service.cli.top.columns import ORDERS, LagHistory, severity

_PAGE: Final = "1000"
"""Queries in a response: the most that the service takes."""


class LagPage(Struct, frozen=True, kw_only=True):
    """A page of `GET /lag`."""

    queries: list[Summary]
    next_cursor: str | None = None
    failing: dict[str, str] | None = None
    """Parts of the service that are not ready, with the reason."""


class LagPoint(Struct, frozen=True, kw_only=True):
    """A step of a query's history. None: unknown."""

    measured_at: EpochMs
    max_total_lag: Count | None = None


class _HistoryPage(Struct, frozen=True, kw_only=True):
    points: list[LagPoint]


async def read_fleet(client: ServiceClient) -> LagPage:
    """All pages of `GET /lag` as one. Raises ServiceError."""
    parameters = {"limit": _PAGE}
    queries: list[Summary] = []
    while True:
        page = decoded(await client.get("/lag", parameters), LagPage, client.url)
        queries += page.queries
        if page.next_cursor is None:
            return msgspec.structs.replace(page, queries=queries)
        parameters["cursor"] = page.next_cursor


async def read_history(client: ServiceClient, query_id: str, step_s: int) -> list[LagPoint]:
    """The query's last hour, in steps of about `step_s`. Raises ServiceError."""
    path = f"/lag/{path_segment(query_id)}/history"
    content = await client.get(path, {"since": "1h", "step": f"{step_s}s"})
    return decoded(content, _HistoryPage, client.url).points


@dataclass(frozen=True)
class Listing:
    """Which queries are listed, and in which order."""

    order: str = next(iter(ORDERS))
    is_reversed: bool = False
    text: str = ""
    """Part of a name, id, status, topic or reason, in any case."""

    def listed(self, queries: Iterable[Summary]) -> list[Summary]:
        """Those that match, in order."""
        wanted = self.text.casefold()
        key = ORDERS[self.order]
        return sorted(
            (query for query in queries if not wanted or wanted in _searched(query)),
            key=lambda query: (*key(query), query.display_name, query.query_id),
            reverse=self.is_reversed,
        )


def _searched(query: Summary) -> str:
    texts = (query.query or "", query.query_id, query.status, query.reason or "", *query.topics)
    return "\n".join(texts).casefold()


class Totals(NamedTuple):
    """Over all queries."""

    queries: int
    statuses: list[tuple[str, int]]
    """With their number, the worst first."""
    lag: int | None
    """Records, of the queries whose lag is known. None: it is known of none."""
    unknown_lags: int
    max_time_lag_s: float | None
    """Age of the oldest unprocessed record. None: none is known."""


def totals_of(queries: Sequence[Summary]) -> Totals:
    """Their totals."""
    lags = [query.total_lag for query in queries if query.total_lag is not None]
    lagging = [query for query in queries if query.total_lag != 0]
    ages_s = [query.max_time_lag_s for query in lagging if query.max_time_lag_s is not None]
    counts = Counter(query.status for query in queries)
    return Totals(
        len(queries),
        sorted(counts.items(), key=lambda pair: (severity(pair[0]), pair[0])),
        sum(lags) if lags else None,
        len(queries) - len(lags),
        max(ages_s, default=None),
    )


class Fleet:
    """The queries as of the last response, and whether the service answers."""

    def __init__(self) -> None:
        self.queries: dict[str, Summary] = {}
        self.failing: dict[str, str] = {}
        self.read_at_ms: int | None = None
        """When the service answered last. None: it has not yet."""
        self.error: str | None = None
        """Why it does not answer. None: it does."""
        self._histories: dict[str, LagHistory] = {}
        self._loaded: set[str] = set()

    def update(self, page: LagPage, now_ms: int) -> None:
        """Take over a response of the service."""
        if self.error is not None:
            self.outdate_histories()
        self.queries = {query.query_id: query for query in page.queries}
        self.failing = page.failing or {}
        self.read_at_ms, self.error = now_ms, None
        for query in page.queries:
            self.history(query.query_id).add(query.measured_at, query.total_lag)
        self._histories = {each: self._histories[each] for each in self.queries}
        self._loaded &= self.queries.keys()

    def fail(self, reason: str) -> None:
        """The service does not answer: what is known of the queries stays."""
        self.error = reason

    def history(self, query_id: str) -> LagHistory:
        """Of one query."""
        return self._histories.setdefault(query_id, LagHistory())

    def without_history(self, query_ids: Iterable[str]) -> list[str]:
        """Those of them whose history is still to be read from the service."""
        return [each for each in query_ids if each in self.queries and each not in self._loaded]

    def load_history(self, query_id: str, points: Iterable[LagPoint]) -> None:
        """Take over a query's history from the service."""
        for point in points:
            self.history(query_id).add(point.measured_at, point.max_total_lag)
        self._loaded.add(query_id)

    def outdate_histories(self) -> None:
        """There was a time without responses: the service knows what was measured in it."""
        self._loaded.clear()
