"""What is asked of one leader: in rounds, one at a time, and no longer waited for than it deserves.

What is asked while a round is under way goes together in the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.list_offsets import Moment, OffsetsRequest, TopicPart, slices
from sparklag_kafka.protocol.metadata import MetadataRequest, MetadataResponse
from sparklag_schemas import IsolationLevel

_log = logging.getLogger(__name__)

_SLICE: Final = 1_000
"""Partitions in one request: reading its answer holds the loop for about a millisecond."""
_LEAST_PATIENCE_S: Final = 1.0
_TIMES_USUAL: Final = 3.0
_NEWEST_SHARE: Final = 0.25


class Patience:
    """How long a leader is waited for: some multiple of what its rounds usually take."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._usual_s: float | None = None

    @property
    def seconds(self) -> float:
        usual_s = self._usual_s or 0.0
        return min(self._most_s, max(_LEAST_PATIENCE_S, _TIMES_USUAL * usual_s))

    def learn(self, took_s: float) -> bool:
        """Take a round into account; whether it kept within the patience there was."""
        in_time = took_s <= self.seconds
        if self._usual_s is None:
            self._usual_s = took_s
        else:
            self._usual_s += _NEWEST_SHARE * (took_s - self._usual_s)
        return in_time


class Hold:
    """Calls `done` once everybody who took it has released it; who makes it has taken it once."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._taken = 1

    def take(self) -> None:
        self._taken += 1

    def release(self) -> None:
        self._taken -= 1
        if self._taken == 0:
            self._done()


class AnswerTaker(Protocol):
    """Who keeps what the leader says. A round's parts come back in several answers."""

    def answered(
        self, level: IsolationLevel, parts: list[TopicPart], answer: bytes, asked_s: float
    ) -> set[str]:
        """The topics that may have been created anew since they were last asked for."""

    def confirmed(
        self,
        level: IsolationLevel,
        parts: list[TopicPart],
        answer: bytes,
        asked_s: float,
        metadata: MetadataResponse,
    ) -> None:
        """What the leader says of those, after it has said their offsets."""

    def failed(self, parts: list[TopicPart], reason: str, asked_s: float) -> None: ...

    def late(self, parts: Iterable[TopicPart]) -> None:
        """The leader is not waited for any more, and may yet answer."""


class _Round:
    """What is asked together, and who waits for it."""

    def __init__(self) -> None:
        self.parts: dict[IsolationLevel, dict[str, TopicPart]] = {}
        self.waiting: list[Hold] = []

    def every_part(self) -> Iterable[TopicPart]:
        return (part for by_topic in self.parts.values() for part in by_topic.values())


class LeaderChannel:
    """Asks the leader with id `node` for its latest, or its earliest, offsets.

    Who shares a `turn` reads one answer at a time.
    """

    def __init__(
        self,
        node: int,
        connection: BrokerConnection,
        moment: Moment,
        timeout_s: float,
        taker: AnswerTaker,
        turn: asyncio.Lock,
    ) -> None:
        self.connection = connection
        self.slow = False
        """It has missed the patience; nobody waits for it until it answers in time again."""
        self._node = node
        self._moment = moment
        self._timeout_s = timeout_s
        self._taker = taker
        self._turn = turn
        self._patience = Patience(timeout_s)
        self._next = _Round()
        self._under_way = _Round()
        self._task: asyncio.Task[None] | None = None

    def want(self, level: IsolationLevel, part: TopicPart, merge: Callable[..., TopicPart]) -> None:
        """Ask for these in the next round, together with what others want of the topic."""
        by_topic = self._next.parts.setdefault(level, {})
        also = by_topic.get(part.topic)
        if also is not None and also.numbers != part.numbers:
            part = merge(part.topic, tuple(sorted({*also.numbers, *part.numbers})))
        by_topic[part.topic] = part
        if self._task is None:
            self._task = asyncio.create_task(self._run_rounds())

    def wait(self, hold: Hold) -> None:
        """Take `hold` until the round that is next is over, or is not waited for any more."""
        if not self.slow:
            hold.take()
            self._next.waiting.append(hold)

    async def aclose(self) -> None:
        """End the round under way. The connection is closed by who made it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_rounds(self) -> None:
        try:
            while self._next.parts:
                self._under_way, self._next = self._next, _Round()
                losing = asyncio.get_running_loop().call_later(
                    self._patience.seconds, self._lose_patience
                )
                try:
                    await self._run_round(self._under_way)
                except Exception:
                    _log.exception("a round of broker %s was given up", self._node)
                finally:
                    losing.cancel()
                    _release(self._under_way)
        finally:
            self._task = None
            _release(self._next)

    async def _run_round(self, asked: _Round) -> None:
        began_s = time.monotonic()
        try:
            connection = await self.connection.connect()
        except KAFKA_FAILURES as error:
            self._fail(list(asked.every_part()), error, began_s)
            return
        asked_s = time.monotonic()
        requests = [
            (level, parts)
            for level, by_topic in asked.parts.items()
            for parts in slices(by_topic.values(), _SLICE)
        ]
        # All are sent before the first is answered.
        errors = await asyncio.gather(
            *(self._ask(connection, level, parts, asked_s) for level, parts in requests)
        )
        if any(isinstance(error, asyncio.TimeoutError) for error in errors):
            self.slow = True
            self.connection.drop(connection)
        elif all(error is None for error in errors):
            self.slow = not self._patience.learn(time.monotonic() - asked_s)

    async def _ask(
        self, connection: Any, level: IsolationLevel, parts: list[TopicPart], asked_s: float
    ) -> BaseException | None:
        request = OffsetsRequest(level, parts, self._moment)
        try:
            answer = await connection.send(request)
        except KAFKA_FAILURES as error:
            self._fail(parts, error, asked_s)
            return error
        # Answers that came together are not read together: the loop goes round in between.
        async with self._turn:
            doubtful = self._taker.answered(level, parts, answer, asked_s)
            await asyncio.sleep(0)
        if not doubtful:
            return None
        doubted = [part for part in parts if part.topic in doubtful]
        try:
            # A broker answers in the order it was asked on one connection: not before its log is
            # the new one does it say the old id.
            metadata = await connection.send(MetadataRequest(sorted(doubtful)))
        except KAFKA_FAILURES as error:
            self._fail(doubted, error, asked_s)
            return error
        async with self._turn:
            self._taker.confirmed(level, doubted, answer, asked_s, metadata)
        return None

    def _fail(self, parts: list[TopicPart], error: BaseException, asked_s: float) -> None:
        reason = broker_error_text(self._node, error, self._timeout_s)
        self._taker.failed(parts, reason, asked_s)

    def _lose_patience(self) -> None:
        self.slow = True
        _release(self._under_way)
        _release(self._next)
        self._taker.late(self._under_way.every_part())


def _release(asked: _Round) -> None:
    waiting, asked.waiting = asked.waiting, []
    for hold in waiting:
        hold.release()
