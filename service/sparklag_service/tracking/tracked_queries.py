"""What this instance holds of each query that it measures, apart from its measurements."""

from __future__ import annotations

import time

from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery
from sparklag_service.intakes.sources import longest_interval_s
from sparklag_service.supervision import QueryFailures
from sparklag_service.tracking.pending_observations import PendingObservations
from sparklag_service.tracking.query_limits import QueryLimits
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracker import Tracker

_MISSED_S = 5.0
"""Messages may have been missed where `caught_up` comes so much later than after a refresh."""


class Liveness:
    """A living driver sends a message at each heartbeat.

    A query is silent once no message of it came for `limit_s` during which every message was
    received: while Kafka is away, and for `limit_s` after that, no query becomes silent.
    """

    def __init__(self, limit_s: float, refresh_interval_s: float) -> None:
        """`caught_up` is called at each refresh."""
        self._limit_s = limit_s
        self._longest_gap_s = refresh_interval_s + _MISSED_S
        self._received_s: dict[str, float] = {}
        self._silent: set[str] = set()
        self._connected_since_s: float | None = None
        self._caught_up_s = 0.0

    def caught_up(self, at_s: float) -> None:
        """Every message written up to `at_s` was received."""
        if self._connected_since_s is None or at_s - self._caught_up_s > self._longest_gap_s:
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


_SILENT_INTERVALS = 3
"""A checkpoint or group that was not read for so many of its intervals has no known position."""


class TrackedQueries:
    """Positions, limits, failures and liveness, by query id; what is acquired here is released
    here."""

    def __init__(
        self, settings: ResolvedSettings, queue: NewestQueue[Delivery], counters: Counters
    ) -> None:
        self.tracker = Tracker(
            ClusterNames(settings).alias_of, int(settings.limits.clock_ahead_s * 1000)
        )
        self.pending = PendingObservations(queue, self.tracker.queries, counters)
        self.limits = QueryLimits(settings.limits)
        self.failures = QueryFailures()
        refresh_s = settings.refresh_interval_s
        self._drivers = Liveness(settings.silent_after_s, refresh_s)
        self._watched = Liveness(_SILENT_INTERVALS * longest_interval_s(settings), refresh_s)
        """Of queries without a driver: a checkpoint or group that cannot be read."""

    @property
    def queries(self) -> dict[str, QueryState]:
        """State by query id, as it changes."""
        return self.tracker.queries

    def __contains__(self, query_id: str) -> bool:
        return query_id in self.tracker.queries

    def liveness(self, run_id: str | None) -> Liveness:
        """That of queries with a driver (`run_id`), or without one."""
        return self._watched if run_id is None else self._drivers

    def caught_up(self, drivers_at_s: float | None) -> None:
        """Every message of the drivers written up to `drivers_at_s` was received (None: unknown),
        and every watcher has run."""
        if drivers_at_s is not None:
            self._drivers.caught_up(drivers_at_s)
        self._watched.caught_up(time.monotonic())

    def is_silent(self, state: QueryState) -> bool:
        """Whether its driver must be gone; without a driver, whether it can no longer be read."""
        return self.liveness(state.run_id).is_silent(state.query_id)

    def received(self, observation: Observation) -> None:
        """The query is alive."""
        liveness = self.liveness(observation.run_id)
        liveness.received(observation.query_id, time.monotonic())

    def release(self, query_id: str) -> Delivery | None:
        """Stop tracking; the delivery that was pending, if any."""
        self.tracker.forget(query_id)
        self.limits.release(query_id)
        self.failures.forget(query_id)
        self._drivers.forget(query_id)
        self._watched.forget(query_id)
        return self.pending.take(query_id)
