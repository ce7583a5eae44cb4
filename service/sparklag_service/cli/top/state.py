"""The state that the screens of `top` show, and its lines of text. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from rich.text import Text

from sparklag_schemas.text.formatting import ago, mark, records, span
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.printable import printable
from sparklag_service.cli.summary import Summary
from sparklag_service.cli.terminal import COLOURS
from sparklag_service.cli.top.columns import ORDERS
from sparklag_service.cli.top.fleet import Fleet, Listing, totals_of
from sparklag_service.view import lag_text

_ORDERS: Final = list(ORDERS)


@dataclass
class State:
    """Of one run of `top`."""

    url: str
    interval_s: float
    fleet: Fleet = field(default_factory=Fleet)
    listing: Listing = field(default_factory=Listing)
    is_paused: bool = False

    def listed(self) -> list[Summary]:
        """The queries to show, in order."""
        return self.listing.listed(self.fleet.queries.values())

    def next_order(self) -> None:
        """Sort by the next column."""
        number = (_ORDERS.index(self.listing.order) + 1) % len(_ORDERS)
        self.listing = replace(self.listing, order=_ORDERS[number], is_reversed=False)

    def title(self, now_ms: int, shown: int) -> Text:
        """Where the numbers are from, how old they are, their order and filter."""
        facts = [f"every {self.interval_s:g} s"]
        if self.fleet.read_at_ms is not None:
            facts.insert(0, f"read {ago(self.fleet.read_at_ms, now_ms)}")
        order = f"sort: {self.listing.order}{', reversed' if self.listing.is_reversed else ''}"
        facts.append(order)
        if self.listing.text:
            listed = f"{shown:,} of {len(self.fleet.queries):,}"
            facts.append(f"filter {printable(self.listing.text, 30)}: {listed}")
        url = printable(shown_url(self.url))
        return Text.assemble(("sparklag top", "bold"), f"  {'  '.join(facts)}  {url}")

    def totals(self) -> Text:
        """Queries by status, records behind, the oldest unprocessed record."""
        if self.fleet.read_at_ms is None:
            return Text("no response yet")
        totals = totals_of(list(self.fleet.queries.values()))
        text = Text(f"{totals.queries:,} {'query' if totals.queries == 1 else 'queries'}")
        for status, count in totals.statuses:
            severity = mark(status)
            style = f"bold {COLOURS[severity]}" if severity == "bad" else COLOURS[severity]
            text.append("  ").append(f"{count:,} {printable(status, 20)}", style)
        if totals.queries:
            unknown = f", {totals.unknown_lags:,} unknown" if totals.unknown_lags else ""
            age_s = totals.max_time_lag_s
            age = "of unknown age" if age_s is None else f"{span(age_s)} old"
            text.append(f"\n{records(totals.lag)} records behind{unknown}")
            if totals.lag != 0 or totals.unknown_lags:
                text.append(f"  oldest unprocessed record {age}")
        return text

    def alarm(self, now_ms: int) -> str:
        """Why the numbers are old or incomplete. Empty: they are neither."""
        fleet = self.fleet
        if fleet.error is not None:
            shown = (
                "" if fleet.read_at_ms is None else f", shown as of {ago(fleet.read_at_ms, now_ms)}"
            )
            return f"NO ANSWER{shown}: {printable(fleet.error)}"
        failing = "; ".join(
            f"{printable(part, 50)}: {printable(why)}" for part, why in fleet.failing.items()
        )
        if failing:
            return f"SERVICE NOT READY: {failing}"
        return ""

    def placeholder(self) -> str:
        """Why no query is shown."""
        if self.fleet.read_at_ms is None:
            return f"waiting for {printable(shown_url(self.url))}"
        return "no query like this" if self.fleet.queries else "no query has been observed yet"


def sentence(query: Summary, now_ms: int) -> str:
    """The query's status and its whole reason."""
    status = printable(lag_text.status(query, now_ms), 2_000)
    return f"{printable(query.display_name)}: {status}"
