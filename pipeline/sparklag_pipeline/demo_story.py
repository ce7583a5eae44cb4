"""What the demo knows at a moment: how far the start-up is, and the lag it has read. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from sparklag_schemas.lag_event import LagEvent

TREND_S: Final = 120
_DIRECTION_S: Final = 4.0

StepState = Literal["waiting", "busy", "done", "failed"]


@dataclass
class Step:
    """One part of the start-up. Times are on the monotonic clock."""

    title: str
    note: str = ""
    state: StepState = "waiting"
    began_at: float | None = None
    ended_at: float | None = None

    def begin(self, now: float, note: str = "") -> None:
        self.state, self.began_at, self.note = "busy", now, note or self.note

    def end(self, now: float, note: str = "") -> None:
        self.state, self.ended_at, self.note = "done", now, note or self.note

    def fail(self, now: float) -> None:
        self.state, self.ended_at = "failed", now

    def seconds(self, now: float) -> float | None:
        """How long it took, or has taken so far."""
        if self.began_at is None:
            return None
        return (self.ended_at if self.ended_at is not None else now) - self.began_at


@dataclass
class Story:
    """All of the demo that is worth showing. `started_at` is on the monotonic clock."""

    query: str
    started_at: float
    jars: Step = field(default_factory=lambda: Step("Jars", "Kafka, and Spark's connector for it"))
    broker: Step = field(default_factory=lambda: Step("Kafka", "one broker on this machine"))
    producer: Step = field(
        default_factory=lambda: Step("Producer", "writes orders, once the query runs")
    )
    spark: Step = field(default_factory=lambda: Step("Query", "PySpark, reads orders"))
    service: Step = field(default_factory=lambda: Step("Service", "sparklag serve"))
    bootstrap_servers: str | None = None
    http_url: str | None = None
    event: LagEvent | None = None
    events: int = 0
    unreadable: int = 0
    first_lag_s: float | None = None
    highest_lag: int | None = None
    last_lag: int | None = None
    trend: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20 * TREND_S))

    @property
    def steps(self) -> tuple[Step, ...]:
        return (self.jars, self.broker, self.producer, self.spark, self.service)

    def take(self, event: LagEvent, now: float) -> None:
        """Take a lag event from the topic. Other queries', and late ones, do not count."""
        if event.query != self.query:
            return
        if self.event is not None and event.version < self.event.version:
            return
        self.event = event
        self.events += 1
        if event.total_lag is None:
            return
        if self.first_lag_s is None:
            self.first_lag_s = now - self.started_at
        self.last_lag = event.total_lag
        self.highest_lag = max(event.total_lag, self.highest_lag or 0)
        self.trend.append((now, event.total_lag))

    def direction(self) -> Literal["rising", "falling", "steady"]:
        """Where the lag is going, over the last seconds."""
        if not self.trend:
            return "steady"
        newest_at, newest = self.trend[-1]
        before = [lag for at, lag in self.trend if at <= newest_at - _DIRECTION_S]
        change = newest - (before[-1] if before else newest)
        if abs(change) <= max(50, 0.05 * (self.highest_lag or 0)):
            return "steady"
        return "rising" if change > 0 else "falling"

    def columns(self, now: float, width: int, seconds: float) -> list[int | None]:
        """The lag at `width` evenly spaced moments of the last `seconds`; None before the first."""
        samples = iter(self.trend)
        upcoming = next(samples, None)
        known: int | None = None
        found: list[int | None] = []
        for column in range(width):
            moment = now - seconds * (width - 1 - column) / width
            while upcoming is not None and upcoming[0] <= moment:
                known = upcoming[1]
                upcoming = next(samples, None)
            found.append(known)
        return found

    def summary(self) -> str:
        """The whole run in a sentence."""
        if self.first_lag_s is None or self.highest_lag is None:
            return f"no lag of {self.query!r} was read from consumer-lag"
        return (
            f"{self.events:,} lag events of {self.query!r} read from consumer-lag,"
            f" the first {self.first_lag_s:.1f} s after the start;"
            f" highest lag {self.highest_lag:,} records, last {self.last_lag:,}"
        )
