"""What the demo has read of a query's lag. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from sparklag_schemas.formatting import records
from sparklag_schemas.lag_event import LagEvent


@dataclass
class QueryLag:
    """The lag of `query`. `started_at` is on the monotonic clock.

    In a directory of an earlier run, the service republishes that run's position: what was
    observed before `since_ms` (epoch) does not count.
    """

    query: str
    started_at: float
    since_ms: int = 0
    event: LagEvent | None = None
    events: int = 0
    first_lag_s: float | None = None
    highest_lag: int | None = None
    failures: int = 0

    def add(self, event: LagEvent, now: float) -> None:
        """Take the lag event that the service answered with; the same one again does not count."""
        if event.observed_at < self.since_ms:
            return
        last = self.event
        if last is not None and event.event_id == last.event_id:
            return
        if event.status == "FAILED" and (last is None or last.status != "FAILED"):
            self.failures += 1
        self.event = event
        self.events += 1
        if event.total_lag is None:
            return
        if self.first_lag_s is None:
            self.first_lag_s = now - self.started_at
        self.highest_lag = max(event.total_lag, self.highest_lag or 0)

    @property
    def has_lag(self) -> bool:
        """Whether a lag of this run was known already."""
        return self.first_lag_s is not None

    def summary(self) -> str:
        """The query's run in a line."""
        if self.event is None or self.first_lag_s is None:
            return f"{self.query}: the service answered with no lag"
        failures = f", failures {self.failures}" if self.failures else ""
        return (
            f"{self.query}: first lag after {self.first_lag_s:.1f} s, {self.events:,} lag events,"
            f" highest lag {records(self.highest_lag)} records,"
            f" last {records(self.event.total_lag)}{failures}"
        )
