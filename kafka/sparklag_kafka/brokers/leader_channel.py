"""Requests the offsets of one leader's partitions in rounds: partitions requested during a round go
together into the next round. Callers wait for a round little longer than the leader usually takes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sparklag_kafka.brokers.pool import BrokerConnection
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.list_offsets import OffsetSpec, OffsetsRequest, TopicPart, slices
from sparklag_kafka.protocol.metadata import MetadataRequest, MetadataResponse
from sparklag_schemas import IsolationLevel

_log = logging.getLogger("sparklag.kafka")

_SLICE: Final = 1_000
"""Partitions in one request: reading its response holds the loop for about a millisecond."""
_SHORTEST_TIMEOUT_S: Final = 1.0
_TIMES_USUAL: Final = 3.0
_NEWEST_SHARE: Final = 0.25


@dataclass
class AdaptiveTimeout:
    """The timeout of a leader: a multiple of the usual duration of its rounds."""

    _longest_s: float
    _usual_s: float | None = None

    @property
    def seconds(self) -> float:
        return min(self._longest_s, max(_SHORTEST_TIMEOUT_S, _TIMES_USUAL * (self._usual_s or 0)))

    def record(self, elapsed_s: float) -> bool:
        """Add the duration of a round; returns whether it was within the previous timeout."""
        in_time = elapsed_s <= self.seconds
        usual_s = elapsed_s if self._usual_s is None else self._usual_s
        self._usual_s = usual_s + _NEWEST_SHARE * (elapsed_s - usual_s)
        return in_time


@dataclass(eq=False)
class WaitGroup:
    """Calls `on_done` once `done` was called as often as `add`, and once more by its creator."""

    _on_done: Callable[[], None]
    _pending: int = 1

    def add(self) -> None:
        self._pending += 1

    def done(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._on_done()


class OffsetsReceiver:
    """Receives a leader's responses. The parts of one round may come in several responses."""

    def part(self, topic: str, numbers: tuple[int, ...]) -> TopicPart:
        """Merge the parts of a topic that are requested together."""
        return TopicPart(topic, numbers)

    def received(self, level: IsolationLevel, response: bytes, requested_s: float) -> set[str]:
        """Take a response. Returns the topics that may have been recreated since the last response:
        the channel requests their metadata from the leader."""
        raise NotImplementedError

    def confirmed(
        self,
        level: IsolationLevel,
        parts: list[TopicPart],
        response: bytes,
        requested_s: float,
        metadata: MetadataResponse,
    ) -> None:
        """Take the leader's metadata of these topics, read after the offsets in `response`."""

    def failed(self, parts: list[TopicPart], reason: str, requested_s: float) -> None:
        """Report that the leader did not respond."""

    def late(self, parts: Iterable[TopicPart]) -> None:
        """Report that callers no longer wait for the leader, which may still respond."""


@dataclass(eq=False)
class _Round:
    parts: dict[IsolationLevel, dict[str, TopicPart]] = field(default_factory=dict)
    waiting: list[WaitGroup] = field(default_factory=list)

    def every_part(self) -> list[TopicPart]:
        return [part for by_topic in self.parts.values() for part in by_topic.values()]

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for wait_group in waiting:
            wait_group.done()


@dataclass(eq=False, repr=False)
class LeaderChannel:
    """Requests the latest, or the earliest, offsets of broker `node_id`.

    Channels that share the lock `reading` decode one response at a time.
    """

    _node_id: int
    connection: BrokerConnection
    _spec: OffsetSpec
    _receiver: OffsetsReceiver
    _reading: asyncio.Lock
    slow: bool = False
    """The last round took too long: callers do not wait until a round is in time again."""
    _next: _Round = field(default_factory=_Round)
    _in_flight: _Round = field(default_factory=_Round)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._timeout = AdaptiveTimeout(self.connection.timeout_s)

    def request(self, level: IsolationLevel, part: TopicPart) -> None:
        """Put `part` into the next round, merged with the round's part of the same topic."""
        by_topic = self._next.parts.setdefault(level, {})
        other = by_topic.get(part.topic)
        if other is not None and other.numbers != part.numbers:
            numbers = tuple(sorted({*other.numbers, *part.numbers}))
            part = self._receiver.part(part.topic, numbers)
        by_topic[part.topic] = part
        if self._task is None:
            self._task = asyncio.create_task(self._run_rounds())

    def join(self, wait_group: WaitGroup) -> None:
        """Hold `wait_group` until the next round is over or late."""
        if not self.slow:
            wait_group.add()
            self._next.waiting.append(wait_group)

    async def aclose(self) -> None:
        """Cancel the round in flight. The caller closes the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_rounds(self) -> None:
        try:
            while self._next.parts:
                self._in_flight, self._next = self._next, _Round()
                timer = asyncio.get_running_loop().call_later(
                    self._timeout.seconds, self._stop_waiting
                )
                try:
                    await self._run_round(self._in_flight)
                except Exception:
                    _log.exception("reading offsets from broker %s failed", self._node_id)
                finally:
                    timer.cancel()
                    self._in_flight.release()
        finally:
            self._task = None
            self._next.release()

    async def _run_round(self, in_flight: _Round) -> None:
        began_s = time.monotonic()
        try:
            connection = await self.connection.connect()
        except KAFKA_FAILURES as error:
            self._fail(in_flight.every_part(), error, began_s)
            return
        requested_s = time.monotonic()
        # All requests are sent before the first response.
        errors = await asyncio.gather(
            *(
                self._send(connection, level, parts, requested_s)
                for level, by_topic in in_flight.parts.items()
                for parts in slices(by_topic.values(), _SLICE)
            )
        )
        if any(isinstance(error, asyncio.TimeoutError) for error in errors):
            self.slow = True
            self.connection.drop(connection)
        elif all(error is None for error in errors):
            self.slow = not self._timeout.record(time.monotonic() - requested_s)

    async def _send(
        self, connection: Any, level: IsolationLevel, parts: list[TopicPart], requested_s: float
    ) -> BaseException | None:
        awaited = parts
        try:
            response = await connection.send(OffsetsRequest(level, parts, self._spec))
            # Responses that arrive together are read one by one: other tasks run in between.
            async with self._reading:
                doubtful = self._receiver.received(level, response, requested_s)
                await asyncio.sleep(0)
            if not doubtful:
                return None
            awaited = [part for part in parts if part.topic in doubtful]
            # A broker handles the requests of a connection in order: once it has the new topic's
            # log, it no longer returns the old topic's id.
            metadata = await connection.send(MetadataRequest(sorted(doubtful)))
        except KAFKA_FAILURES as error:
            self._fail(awaited, error, requested_s)
            return error
        async with self._reading:
            self._receiver.confirmed(level, awaited, response, requested_s, metadata)
        return None

    def _fail(self, parts: list[TopicPart], error: BaseException, requested_s: float) -> None:
        reason = broker_error_text(self._node_id, error, self.connection.timeout_s)
        self._receiver.failed(parts, reason, requested_s)

    def _stop_waiting(self) -> None:
        self.slow = True
        self._in_flight.release()
        self._next.release()
        self._receiver.late(self._in_flight.every_part())
