"""Streaming queries and their drivers: what they have truly processed, and what they tell."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final, Literal

from aiokafka.structs import TopicPartition

from sparklag_schemas import Batch, Cause, IsolationLevel, Observation, RunningBatch, SourcePosition
from sparklag_schemas.codec import encode
from sparklag_schemas.messages.topics import key_of, partition_of
from tests.simulation.clock import epoch_ms
from tests.simulation.kafka import SimulatedKafka

Life = Literal["running", "dead", "finished", "failed"]
_BATCH_S: Final = 20.0
_CLOCKS_MS: Final = (0, 0, 0, 0, 40, -40, -250_000, 250_000)
_PROVEN_S: Final = 900.0
"""A driver goes on for a minute to differ from repeated messages; Kafka may be away before."""


class SimulatedQuery:
    def __init__(
        self,
        kafka: SimulatedKafka,
        randomness: random.Random,
        number: int,
        topics: list[str],
        name: str | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> None:
        self.query_id = f"{number:08d}-0000-4000-8000-000000000000"
        self.name = name or f"query-{number}"
        self.topics = topics
        self.life: Life = "dead"
        self.positions: dict[str, dict[int, int]] = {}
        self.written: list[tuple[int, Observation]] = []
        """Its observations in the order of the log, with their offsets."""
        self.arrived: list[tuple[int, float]] = []
        """Offset and time of each of its records."""
        self.written_again: set[int] = set()
        """Offsets of those that are there already."""
        self.runs: list[tuple[float, float]] = []
        """When each run began and ended, seconds."""
        self.completed_s = -inf
        """When its last batch completed."""
        self.fell: dict[tuple[str, int] | None, list[int]] = {}
        """The batches after which a partition's lag, or (None) the query's, was lower than it had
        been since the batch before."""
        self.interval_s: float | None = None
        """From run to run, where they end by themselves."""
        self.batch_began_s: float | None = None
        """When its batch began that takes long."""
        self._isolation_level = isolation_level
        self._driver_end: str | None = None
        self._kafka = kafka
        self._random = randomness
        self._batch_id: int | None = None
        self._processed_at_ms: int | None = None
        self._clock_ahead_ms = 0
        self._latest_clock_ms = 0
        self.is_unproven = False
        """Its last driver ended before it had gone on for long enough to count, by a clock behind
        that of the driver before, from a message that is repeated."""
        self._count = 0
        self._arrives_s = 0.0
        self._unsent: deque[Observation] = deque()

    @property
    def run_id(self) -> str:
        return f"{len(self.runs):08d}-1111-4000-8000-{self.query_id[:8]:0>12}"

    @property
    def is_recurring(self) -> bool:
        """Its last three runs ended by themselves."""
        last = self.runs[-3:]
        return self.interval_s is not None and len(last) == 3 and all(a == b for a, b in last)

    def start(self, clocks_ms: Sequence[int] = _CLOCKS_MS) -> None:
        """A driver starts it, on its checkpoint. Its clock is ahead by one of `clocks_ms`."""
        self.life = "running"
        self.runs.append((self._kafka.loop.now_s, inf))
        self.batch_began_s = self._driver_end = None
        self._latest_clock_ms = max(self._latest_clock_ms, self._clock_ahead_ms)
        self.is_unproven = False
        self._clock_ahead_ms = self._random.choice(clocks_ms)
        self._write("started")

    def heartbeat(self) -> None:
        if self.life == "running":
            self._write("refresh")

    def run_once(self) -> None:
        """Read all there is, and end."""
        if self.life != "running":
            self.start()
        self.complete_batch(1.0)
        self.end("finished")

    def complete_batch(self, share: float, stuck: tuple[str, int] | None = None) -> None:
        """Read this share of what is there, but nothing of the partition that is stuck."""
        if self.life != "running":
            return
        lags: dict[tuple[str, int], tuple[int, int]] = {}
        now_s = self._kafka.loop.now_s
        for name in self.topics:
            topic = self._kafka.topics.get(name)
            if topic is None:
                continue
            done = self.positions.setdefault(name, {})
            for number, log in enumerate(topic.logs):
                at = max(done.get(number, log.start), log.start)
                end = log.end
                if self._isolation_level == "read_committed":
                    end = log.stable_end(now_s)
                if (name, number) != stuck:
                    done[number] = min(at, end) + int(share * max(0, end - at))
                lags[name, number] = log.end_at(now_s) - at, log.end - done.get(number, at)
        total = [sum(lag) for lag in zip(*lags.values(), strict=True)] or (0, 0)
        self._batch_id = 0 if self._batch_id is None else self._batch_id + 1
        for key, (before, after) in (*lags.items(), (None, total)):
            if after < before:
                self.fell.setdefault(key, []).append(self._batch_id)
        self.completed_s, self.batch_began_s = now_s, None
        self._processed_at_ms = epoch_ms(self.completed_s) + self._clock_ahead_ms
        self._write("progress")

    def end(self, life: Life, driver_end: str | None = None) -> None:
        if self.life != "running":
            return
        self.life, self._driver_end = life, driver_end
        began_s, now_s = self.runs[-1][0], self._kafka.loop.now_s
        self.runs[-1] = began_s, now_s
        is_behind = self._clock_ahead_ms < self._latest_clock_ms
        self.is_unproven = is_behind and now_s - began_s < _PROVEN_S
        if life != "dead":
            self._write("terminated", exception="boom" if life == "failed" else None)

    def _write(self, cause: Cause, exception: str | None = None) -> None:
        self._count += 1
        now_ms = epoch_ms(self._kafka.loop.now_s)
        processed = {name: dict(at) for name, at in self.positions.items()} or None
        if cause == "started" and self._random.random() < 0.5:
            # A run that has not completed a batch yet knows no position.
            processed = None
        observation = Observation(
            observation_id=f"{self.query_id[:8]}-{self._count}",
            query_id=self.query_id,
            run_id=self.run_id,
            query=self.name,
            cause=cause,
            observed_at=now_ms + self._clock_ahead_ms,
            batch_id=self._batch_id,
            processed_at=self._processed_at_ms,
            batch=Batch(
                started_at=now_ms + self._clock_ahead_ms - int(_BATCH_S * 1000),
                rows=1,
                duration_ms=int(_BATCH_S * 1000),
            )
            if cause == "progress"
            else None,
            running_batch=self._running_batch(now_ms + self._clock_ahead_ms),
            exception=exception,
            driver_end=self._driver_end,
            sources=[
                SourcePosition(
                    source=0,
                    processed=processed,
                    topics=self.topics,
                    isolation_level=self._isolation_level,
                )
            ],
        )
        # A producer keeps the order; one that got no acknowledgement writes again, perhaps later.
        now_s = self._kafka.loop.now_s
        self._arrives_s = max(self._arrives_s + 1e-6, now_s + self._kafka.network.delay_s())
        self._kafka.loop.call_world(self._arrives_s - now_s, self.send, observation)
        if self._random.random() < 0.05:
            again_s = self._random.choice((0.01, 1.0, 30.0))
            self._kafka.loop.call_world(self._arrives_s + again_s - now_s, self.send, observation)

    def _running_batch(self, now_ms: int) -> RunningBatch | None:
        if self.batch_began_s is None or self.life != "running":
            return None
        lasted_ms = int((self._kafka.loop.now_s - self.batch_began_s) * 1000)
        return RunningBatch(
            started_at=now_ms - lasted_ms, observed_at=now_ms, progressed_at=now_ms, jobs=1
        )

    def send(self, observation: Observation) -> None:
        """Write it to Kafka, once Kafka is there."""
        self._unsent.append(observation)
        self._flush()

    def _flush(self) -> None:
        """A driver keeps what it cannot send, and finds out some time after Kafka is back."""
        if self._unsent and self._kafka.network.is_away:
            self._kafka.loop.call_world(self._random.choice((1.0, 60.0)), self._flush)
            return
        while self._unsent:
            self._append(self._unsent.popleft())

    def _append(self, observation: Observation) -> None:
        topic = self._kafka.topics["processed-offsets"]
        number = partition_of(self.query_id, len(topic.logs))
        offset = self._kafka.append(
            TopicPartition("processed-offsets", number),
            key_of(self.query_id),
            encode(observation),
            [],
        )
        self.arrived.append((offset, self._kafka.loop.now_s))
        if any(each is observation for _, each in self.written):
            self.written_again.add(offset)
        else:
            self.written.append((offset, observation))
