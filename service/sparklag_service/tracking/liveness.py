"""Which queries are alive, by their messages: a killed driver sends no last one. Pure; times are
`time.monotonic()`."""

from __future__ import annotations

_MISSED_S = 5.0
"""Messages may have been missed in a gap of this length between two calls of `caught_up`."""


class Liveness:
    """A living driver sends a message at each heartbeat.

    A query is silent once no message of it came for `limit_s` during which every message was
    received: while Kafka is away, and for `limit_s` after that, no query becomes silent.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._received_s: dict[str, float] = {}
        self._silent: set[str] = set()
        self._connected_since_s: float | None = None
        self._caught_up_s = 0.0

    def caught_up(self, at_s: float) -> None:
        """Every message written up to `at_s` was received."""
        if self._connected_since_s is None or at_s - self._caught_up_s > _MISSED_S:
            self._connected_since_s = at_s
        self._caught_up_s = at_s

    def received(self, query_id: str, at_s: float) -> None:
        """A message of the query was received."""
        self._received_s[query_id] = at_s
        self._silent.discard(query_id)

    def adopt(self, query_id: str, at_s: float, *, silent: bool) -> None:
        """Start with a query; `silent`: no message of it came for long already."""
        self._received_s[query_id] = at_s
        if silent:
            self._silent.add(query_id)

    def forget(self, query_id: str) -> None:
        """Another instance owns it, or nobody does."""
        self._received_s.pop(query_id, None)
        self._silent.discard(query_id)

    def is_silent(self, query_id: str) -> bool:
        """Whether its driver must be gone."""
        if query_id in self._silent:
            return True
        if self._connected_since_s is None or query_id not in self._received_s:
            return False
        waited_from_s = max(self._received_s[query_id], self._connected_since_s)
        if self._caught_up_s - waited_from_s > self._limit_s:
            self._silent.add(query_id)
            return True
        return False
