"""What the demo knows at a moment: how far the start-up is, and the lag it has read. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from sparklag_schemas.lag_event import LagEvent

TREND_S: Final = 120
_RATE_S: Final = 10.0
# Longer than a batch: within one the lag only ever rises, and then drops.
_DIRECTION_S: Final = 8.0

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


class _Position(NamedTuple):
    """Where a query was: sums of all its partitions' offsets."""

    measured_at: int
    latest: int
    processed: int


@dataclass
class Story:
    """All of the demo that is worth showing. `started_at` is on the monotonic clock.

    Of a folder that was kept, the topic still has an earlier run's events, and the service goes on
    telling that run's position: what was not observed since `since_ms` (epoch) does not count.
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
    trend: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20 * TREND_S))

    _positions: deque[_Position] = field(default_factory=deque)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (self.jars, self.broker, self.service, self.spark, self.producer)

    def take(self, event: LagEvent, now: float) -> None:
        """Take a lag event from the topic. Other queries', and old ones, do not count."""
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
        self.trend.append((now, event.total_lag))
        self._note_position(event)

    def _note_position(self, event: LagEvent) -> None:
        partitions = [partition for topic in event.topics for partition in topic.partitions]
        latest = [partition.latest_offset for partition in partitions]
        processed = [partition.processed_offset for partition in partitions]
        # Of a part of the partitions the sums would jump.
        if None in latest or None in processed:
            return
        position = _Position(
            event.measured_at,
            latest=sum(offset for offset in latest if offset is not None),
            processed=sum(offset for offset in processed if offset is not None),
        )
        self._positions.append(position)
        oldest = position.measured_at - _RATE_S * 1000
        while self._positions[0].measured_at < oldest:
            self._positions.popleft()

    def direction(self) -> Literal["rising", "falling", "steady"]:
        """Where the lag is going: its mean of the last seconds against that of those before."""
        newest_at = self.trend[-1][0] if self.trend else 0.0
        recent = [lag for at, lag in self.trend if at > newest_at - _DIRECTION_S]
        before = [
            lag
            for at, lag in self.trend
            if newest_at - 2 * _DIRECTION_S < at <= newest_at - _DIRECTION_S
        ]
        if not recent or not before:
            return "steady"
        change = sum(recent) / len(recent) - sum(before) / len(before)
        if abs(change) <= max(50, 0.05 * (self.highest_lag or 0)):
            return "steady"
        return "rising" if change > 0 else "falling"

    def rates(self) -> tuple[float | None, float | None]:
        """Records arriving and processed per second: the event's own, or else by its offsets."""
        if self.event is None:
            return None, None
        arriving, processed = self.event.input_rate, self.event.processed_rate
        if len(self._positions) > 1:
            first, last = self._positions[0], self._positions[-1]
            seconds = (last.measured_at - first.measured_at) / 1000
            if seconds >= 1:
                by_latest = (last.latest - first.latest) / seconds
                by_processed = (last.processed - first.processed) / seconds
                arriving = by_latest if arriving is None else arriving
                processed = by_processed if processed is None else processed
        return arriving, processed

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
            f"{self.events:,} lag events of {self.query!r} read from consumer-lag, the first lag"
            f" after {self.first_lag_s:.1f} s.\n"
            f"Highest lag {self.highest_lag:,} records, last {self.last_lag:,}."
        )
