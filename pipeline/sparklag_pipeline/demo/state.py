"""What the demo shows at a time: how far the start-up is, and the lag it has read. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import mean
from typing import Final, Literal

from sparklag_schemas.lag_event import LagEvent

HISTORY_S: Final = 120
# Longer than a batch: within one the lag only ever rises, and then drops.
_DIRECTION_S: Final = 8.0
_STEADY_SHARE: Final = 0.05
_STEADY_LAG: Final = 50

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
class DemoState:
    """The start-up's steps, and the lag of `query`. `started_at` is on the monotonic clock.

    In a directory of an earlier run the topic has that run's events, and the service republishes
    that run's position: what was observed before `since_ms` (epoch) does not count.
    """

    query: str
    started_at: float
    since_ms: int = 0
    jars: Step = field(default_factory=lambda: Step("Jars", "Kafka, and Spark's connector for it"))
    broker: Step = field(default_factory=lambda: Step("Kafka", "one broker on this machine"))
    service: Step = field(default_factory=lambda: Step("Service", "sparklag serve"))
    spark: Step = field(default_factory=lambda: Step("Query", "PySpark, reads orders"))
    producer: Step = field(default_factory=lambda: Step("Producer", "when the query runs"))
    command: str = "sparklag"
    bootstrap_servers: str | None = None
    http_url: str | None = None
    event: LagEvent | None = None
    events: int = 0
    unreadable: int = 0
    first_lag_s: float | None = None
    highest_lag: int | None = None
    last_lag: int | None = None
    lags: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20 * HISTORY_S))
    """When each lag was read, on the monotonic clock, and the lag."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (self.jars, self.broker, self.service, self.spark, self.producer)

    def add(self, event: LagEvent, now: float) -> None:
        """Take a lag event from the topic. Events of other queries and old ones do not count."""
        if event.query != self.query or event.observed_at < self.since_ms:
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
        self.lags.append((now, event.total_lag))

    def direction(self) -> Literal["rising", "falling", "steady"]:
        """By the mean lag of the last seconds, compared with that of the seconds before."""
        newest_at = self.lags[-1][0] if self.lags else 0.0
        middle, start = newest_at - _DIRECTION_S, newest_at - 2 * _DIRECTION_S
        recent = [lag for at, lag in self.lags if at > middle]
        before = [lag for at, lag in self.lags if start < at <= middle]
        if not recent or not before:
            return "steady"
        change = mean(recent) - mean(before)
        if abs(change) <= max(_STEADY_LAG, _STEADY_SHARE * (self.highest_lag or 0)):
            return "steady"
        return "rising" if change > 0 else "falling"

    def columns(self, now: float, width: int, seconds: float) -> list[int | None]:
        """The lag at `width` evenly spaced times of the last `seconds`; None before the first."""
        columns: list[int | None] = []
        samples = deque(self.lags)
        lag: int | None = None
        for column in range(width):
            at = now - seconds * (width - 1 - column) / width
            while samples and samples[0][0] <= at:
                lag = samples.popleft()[1]
            columns.append(lag)
        return columns

    def summary(self) -> str:
        """The whole run in a sentence."""
        if self.first_lag_s is None or self.highest_lag is None:
            return f"no lag of {self.query!r} was read from consumer-lag"
        return (
            f"{self.events:,} lag events of {self.query!r} read from consumer-lag, the first lag"
            f" after {self.first_lag_s:.1f} s.\n"
            f"Highest lag {self.highest_lag:,} records, last {self.last_lag:,}."
        )
