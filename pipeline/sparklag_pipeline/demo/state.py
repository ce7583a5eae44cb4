"""What the demo has read of its query's lag. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from sparklag_schemas.lag_event import LagEvent


@dataclass
class DemoState:
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
    last_lag: int | None = None

    def add(self, event: LagEvent, now: float) -> None:
        """Take the lag event that the service answered with; the same one again does not count."""
        if event.observed_at < self.since_ms:
            return
        if self.event is not None and event.event_id == self.event.event_id:
            return
        self.event = event
        self.events += 1
        if event.total_lag is None:
            return
        if self.first_lag_s is None:
            self.first_lag_s = now - self.started_at
        self.last_lag = event.total_lag
        self.highest_lag = max(event.total_lag, self.highest_lag or 0)

    def summary(self) -> str:
        """The whole run in a sentence."""
        if self.first_lag_s is None or self.highest_lag is None:
            return f"the service answered with no lag of {self.query!r}"
        return (
            f"{self.events:,} lag events of {self.query!r} read over REST, the first lag after"
            f" {self.first_lag_s:.1f} s.\n"
            f"Highest lag {self.highest_lag:,} records, last {self.last_lag:,}."
        )
