"""A query and its topic under a clock of the test's own: arrivals, reads, and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparklag_schemas import Batch, LagEvent, PartitionLag, SourcePosition, Thresholds
from sparklag_service.enrichment.cluster_offsets import (
    Advances,
    MeasureTime,
    RecordTime,
    Topic,
    TopicOffsets,
)
from sparklag_service.enrichment.log_end_history import LatestOffset
from tests.messages import RUN_ID, observation, position
from tests.service.states import USUAL, Follower, moment


class Trace:
    """Query `orders` on all partitions of `orders`, from 100 s on, measured each `refresh_s`."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        ends: list[int] | None = None,
        run_id: str | None = RUN_ID,
        refresh_s: float = 1.0,
        thresholds: Thresholds = USUAL,
        burrow: bool = False,
        produce: Callable[[float], list[int]] | None = None,
        **fields: Any,
    ) -> None:
        """`produce`: log ends by time. `burrow`: Burrow's rules. `fields`: of all observations."""
        self.now_s = 100.0
        self._refresh_s = refresh_s
        self.ends = ends or [0] * partitions
        self.starts = [0] * partitions
        self.at = [0] * partitions
        self.batch_id = -1
        self.run_id = run_id
        self.produce = produce or (lambda _: [0] * partitions)
        self.events: list[LagEvent] = []
        self.processed_at: int | None = None
        self._fields = fields
        burrow_clusters = ("default",) if burrow else ()
        self._follower = Follower(thresholds=thresholds, burrow_clusters=burrow_clusters)
        self._offsets = TopicOffsets(Topic("id-a", tuple(range(partitions))), 0.0)
        self.unread: set[int] = set()
        """Partitions whose leader does not answer."""
        self.clock_off_s = 0.0
        """How far off the machine's clock is; seconds are counted without it."""
        self.say("started", sources=[SourcePosition(source=0, topics=["orders"])])

    @property
    def now_ms(self) -> int:
        return self._moment.now_ms

    @property
    def _moment(self) -> MeasureTime:
        at = moment(self.now_s)
        return at._replace(now_ms=at.now_ms + round(self.clock_off_s * 1000))

    @property
    def event(self) -> LagEvent:
        return self.events[-1]

    @property
    def status(self) -> str:
        return self.event.status

    def one(self, number: int = 0) -> PartitionLag:
        return self.event.topics[0].partitions[number]

    def pass_time(self, seconds: float, *, silent: bool = False) -> None:
        """Records come, and all is measured each second."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - 1e-9:
            step_s = min(self._refresh_s, end_s - self.now_s)
            self.now_s += step_s
            for number, count in enumerate(self.produce(self.now_s)):
                self.ends[number] += count
            self.measure(silent=silent)

    def measure(self, *, silent: bool = False) -> LagEvent:
        latest, earliest = self._offsets.latest["read_uncommitted"], self._offsets.earliest
        for number, end in enumerate(self.ends):
            if number not in self.unread:
                latest[number] = LatestOffset(end, self.now_s)
            start = self.starts[number]
            if start > earliest.get(number, start):
                known = self._offsets.advances.get(number, Advances(()))
                self._offsets.advances[number] = known.with_step(self.now_s, start)
            earliest[number] = start
        rows = [latest.get(number) for number in range(len(self.ends))]
        history = self._offsets.log_ends["read_uncommitted"]
        history.append(self.now_s, rows, self._refresh_s)
        offsets = {"default": {"orders": self._offsets}}
        event = self._follower.measure(offsets, self._moment, silent=silent)
        self.events.append(event)
        return event

    def sampled(self, number: int, timestamp_ms: int) -> None:
        self._offsets.record_times[number] = RecordTime(self.at[number], timestamp_ms)

    def batch(self, duration_s: float = 1.0, *, most: int | None = None, **fields: Any) -> None:
        """A batch that reads what is there (`most` of each partition), and takes so long."""
        ends = list(self.ends)
        self.pass_time(duration_s)
        for number, end in enumerate(ends):
            more = end - self.at[number]
            self.at[number] += more if most is None else min(most, more)
        self.batch_id += 1
        self.processed_at = self.now_ms
        limited = any(at < end for at, end in zip(self.at, ends, strict=True))
        self.say(
            "progress",
            batch=Batch(
                started_at=self.now_ms - round(duration_s * 1000),
                rows=0,
                duration_ms=round(duration_s * 1000),
                rate_limited=limited,
            ),
            **fields,
        )

    def idle(self) -> None:
        self.say("idle")

    def say(self, cause: str, **fields: Any) -> None:
        """An observation where the query is now, and a measurement of it."""
        self._follower.hear(
            observation(
                **{
                    "cause": cause,
                    "run_id": self.run_id,
                    "observed_at": self.now_ms,
                    "batch_id": self.batch_id if self.batch_id >= 0 else None,
                    "processed_at": self.processed_at,
                    "batch": None,
                    "sources": [position({"orders": dict(enumerate(self.at))})],
                    **self._fields,
                    **fields,
                }
            )
        )
        self.measure()

    def steady(
        self,
        batches: int,
        every_s: float = 10.0,
        duration_s: float = 2.0,
        *,
        most: int | None = None,
    ) -> None:
        """Batches that read all there is (`most` of each partition), one each `every_s`."""
        for _ in range(batches):
            self.pass_time(every_s - duration_s)
            self.batch(duration_s, most=most)

    def change_hands(self) -> None:
        """Another instance goes on from the last event."""
        self._follower.restart()
        self._offsets = TopicOffsets(self._offsets.description, 0.0)
        times = self._offsets.log_ends["read_uncommitted"]
        ends = {p.partition: p.latest_offset for p in self.event.topics[0].partitions}
        times.insert(self.now_s, {number: end for number, end in ends.items() if end is not None})
        oldest_s = self.event.max_time_lag_s
        if oldest_s:
            times.insert(
                self.now_s - oldest_s,
                {
                    one.partition: one.processed_offset or 0
                    for one in self.event.topics[0].partitions
                    if one.time_lag_s == oldest_s
                },
            )
