"""The state of `sparklag top`: the responses of the service, and texts for the screens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct
from rich.text import Text

from sparklag_schemas.messages.bounds import Count, EpochMs
from sparklag_schemas.messages.enumerations import mark
from sparklag_schemas.presentation import sentences
from sparklag_schemas.presentation.rows import COLOURS, Summary, severity
from sparklag_schemas.rest_interface import path_segment
from sparklag_schemas.text.formatting import ago, records, span
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.printable import printable
from sparklag_service.cli.requests import ServiceClient, decoded
from sparklag_service.cli.top.columns import ORDERS, LagHistory

_PAGE: Final = "1000"
"""Queries in a response: the maximum of the service."""


class LagPage(Struct, frozen=True, kw_only=True):
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


def _searched(query: Summary) -> str:
    texts = (query.query or "", query.query_id, query.status, query.reason or "", *query.topics)
    return "\n".join(texts).casefold()


class Fleet:
    """The queries of the last response, and whether the service responds."""

    def __init__(self) -> None:
        self.queries: dict[str, Summary] = {}
        self.failing: dict[str, str] = {}
        self.read_at_ms: int | None = None
        """The time of the last response. None: no response yet."""
        self.error: str | None = None
        """Why the last request failed: the queries stay. None: it succeeded."""
        self._histories: dict[str, LagHistory] = {}
        self._loaded: set[str] = set()

    def update(self, page: LagPage, now_ms: int) -> None:
        if self.error is not None:
            self.outdate_histories()
        self.queries = {query.query_id: query for query in page.queries}
        self.failing = page.failing or {}
        self.read_at_ms, self.error = now_ms, None
        for query in page.queries:
            self.history(query.query_id).add(query.measured_at, query.total_lag)
        self._histories = {query_id: self._histories[query_id] for query_id in self.queries}
        self._loaded &= self.queries.keys()

    def history(self, query_id: str) -> LagHistory:
        return self._histories.setdefault(query_id, LagHistory())

    def without_history(self, query_ids: Iterable[str]) -> list[str]:
        """The queries whose history must still be read from the service."""
        return [i for i in query_ids if i in self.queries and i not in self._loaded]

    def load_history(self, query_id: str, points: Iterable[LagPoint]) -> None:
        for point in points:
            self.history(query_id).add(point.measured_at, point.max_total_lag)
        self._loaded.add(query_id)

    def outdate_histories(self) -> None:
        """Have all histories read again: the service measured while no response arrived."""
        self._loaded.clear()


@dataclass
class State:
    url: str
    interval_s: float
    fleet: Fleet = field(default_factory=Fleet)
    order: str = next(iter(ORDERS))
    is_reversed: bool = False
    text: str = ""
    """The filter: part of a name, id, status, topic or reason, in any case."""
    is_paused: bool = False

    def listed(self) -> list[Summary]:
        wanted = self.text.casefold()
        key = ORDERS[self.order]
        return sorted(
            (query for query in self.fleet.queries.values() if wanted in _searched(query)),
            key=lambda query: (*key(query), query.display_name, query.query_id),
            reverse=self.is_reversed,
        )

    def next_order(self) -> None:
        orders = list(ORDERS)
        self.order = orders[(orders.index(self.order) + 1) % len(orders)]
        self.is_reversed = False

    def title(self, now_ms: int, shown: int) -> Text:
        """The source and age of the numbers, their order and filter."""
        facts = [f"every {self.interval_s:g} s"]
        if self.fleet.read_at_ms is not None:
            facts.insert(0, f"read {ago(self.fleet.read_at_ms, now_ms)}")
        order = f"sort: {self.order}{', reversed' if self.is_reversed else ''}"
        facts.append(order)
        if self.text:
            listed = f"{shown:,} of {len(self.fleet.queries):,}"
            facts.append(f"filter {printable(self.text, 30)}: {listed}")
        url = printable(shown_url(self.url))
        return Text.assemble(("sparklag top", "bold"), f"  {'  '.join(facts)}  {url}")

    def totals(self) -> Text:
        """Queries by status, records behind, the longest time lag."""
        if self.fleet.read_at_ms is None:
            return Text("no response yet")
        queries = list(self.fleet.queries.values())
        lags = [query.total_lag for query in queries if query.total_lag is not None]
        behind = (query.max_time_lag_s for query in queries if query.total_lag != 0)
        known_s = [time_lag_s for time_lag_s in behind if time_lag_s is not None]
        text = Text(f"{len(queries):,} {'query' if len(queries) == 1 else 'queries'}")
        counts = Counter(query.status for query in queries)
        for status in sorted(counts, key=lambda status: (severity(status), status)):
            level = mark(status)
            style = f"bold {COLOURS[level]}" if level == "bad" else COLOURS[level]
            text.append("  ").append(f"{counts[status]:,} {printable(status, 20)}", style)
        if queries:
            lag, unknown = sum(lags) if lags else None, len(queries) - len(lags)
            more = f", {unknown:,} unknown" if unknown else ""
            text.append(f"\n{records(lag)} records behind{more}")
            if lag != 0 or unknown:
                longest = span(max(known_s)) if known_s else "unknown"
                text.append(f"  time lag {longest}")
        return text

    def alarm(self, now_ms: int) -> str:
        """Why the numbers are old or incomplete; empty if they are not."""
        fleet = self.fleet
        if fleet.error is not None:
            at_ms = fleet.read_at_ms
            shown = "" if at_ms is None else f", shown as of {ago(at_ms, now_ms)}"
            return f"NO ANSWER{shown}: {printable(fleet.error)}"
        failing = "; ".join(
            f"{printable(part, 50)}: {printable(why)}" for part, why in fleet.failing.items()
        )
        return f"SERVICE NOT READY: {failing}" if failing else ""

    def placeholder(self) -> str:
        if self.fleet.read_at_ms is None:
            return f"waiting for {printable(shown_url(self.url))}"
        return "no query like this" if self.fleet.queries else "no query has been observed yet"


def sentence(query: Summary, now_ms: int) -> str:
    status = printable(sentences.status(query, now_ms), 2_000)
    return f"{printable(query.display_name)}: {status}"
