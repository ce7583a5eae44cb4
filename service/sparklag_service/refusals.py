"""Messages that were not taken: counted by kind, logged once in a while, known by query."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from typing import Final

from sparklag_schemas.printable import printable

_log = logging.getLogger(__name__)
KINDS: Final = (
    "batch",
    "bounds",
    "future",
    "limit",
    "malformed",
    "place",
    "signature",
    "version",
)
"""What messages are refused for: `ContractError.kind`; a `batch` is refused as a whole."""
_LOG_INTERVAL_S: Final = 60.0
_QUERIES: Final = 10_000
"""More are not remembered: their keys are anybody's."""
_RECENT_S: Final = 300.0


class Refusals:
    """What one instance did not take, of all its topics."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """By topic and kind."""
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._of_query: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._newest: tuple[float, str] | None = None

    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        """Count it. `what`: which message, and why."""
        now_s = time.monotonic()
        what = printable(what)
        self.counts[topic, kind] += 1
        self._newest = (now_s, what)
        if query_id is not None:
            self._of_query[query_id] = (now_s, what)
            self._of_query.move_to_end(query_id)
            if len(self._of_query) > _QUERIES:
                self._of_query.popitem(last=False)
        logged_s, logged = self._logged.get((topic, kind), (-_LOG_INTERVAL_S, 0))
        if now_s >= logged_s + _LOG_INTERVAL_S:
            count = self.counts[topic, kind]
            before = count - logged - 1
            more = f" ({before} more of this kind before it)" if before else ""
            _log.warning("refused a %s%s", what, more)
            self._logged[topic, kind] = (now_s, count)

    def of_query(self, query_id: str, since_s: float) -> str | None:
        """Why the newest message of a query was refused, if one was after `since_s`
        (`time.monotonic()`)."""
        at_s, what = self._of_query.get(query_id, (since_s, ""))
        return what if at_s > since_s else None

    @property
    def recent(self) -> str | None:
        """The newest of the last minutes, and how many there were. None: there was none."""
        if self._newest is None or self._newest[0] < time.monotonic() - _RECENT_S:
            return None
        count = sum(self.counts.values())
        return f"{count:,} messages refused since the start, the last one a {self._newest[1]}"
