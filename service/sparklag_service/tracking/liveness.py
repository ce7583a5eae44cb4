"""Which queries have fallen silent: killed drivers send no last word. Pure: `now_s` only rises."""

from __future__ import annotations

_MISSED_S = 5.0
"""A listener that was last sure to hear so long ago may have missed something since."""


class Liveness:
    """A living driver says at each heartbeat that its query runs.

    A query is silent once nothing came from it for `limit_s` in which everything was heard that
    there was to hear: while Kafka is away, and until a driver has had its time after that, nobody
    is called dead.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard_s: dict[str, float] = {}
        self._silent: set[str] = set()
        self._hearing_since_s: float | None = None
        self._heard_all_s = 0.0

    def heard_all(self, at_s: float) -> None:
        """All that was said up to `at_s` was heard."""
        if self._hearing_since_s is None or at_s - self._heard_all_s > _MISSED_S:
            self._hearing_since_s = at_s
        self._heard_all_s = at_s

    def heard(self, query_id: str, at_s: float) -> None:
        """A query spoke."""
        self._heard_s[query_id] = at_s
        self._silent.discard(query_id)

    def adopted(self, query_id: str, at_s: float, *, silent: bool) -> None:
        """From now on it is listened to; `silent`: nobody heard it for long already."""
        self._heard_s[query_id] = at_s
        if silent:
            self._silent.add(query_id)

    def forget(self, query_id: str) -> None:
        """It is another's."""
        self._heard_s.pop(query_id, None)
        self._silent.discard(query_id)

    def is_silent(self, query_id: str) -> bool:
        """Whether its driver must be gone, or cannot be heard."""
        if query_id in self._silent:
            return True
        if self._hearing_since_s is None or query_id not in self._heard_s:
            return False
        waited_from_s = max(self._heard_s[query_id], self._hearing_since_s)
        if self._heard_all_s - waited_from_s > self._limit_s:
            self._silent.add(query_id)
            return True
        return False
