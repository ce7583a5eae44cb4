"""The messages that one producer has not got acknowledged yet."""

from __future__ import annotations

import asyncio
from collections import deque
from copy import copy
from functools import partial
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from sparklag_kafka.errors import KafkaUnavailable
from sparklag_schemas.headers import Headers


class _Message(NamedTuple):
    key: bytes
    value: bytes | None
    headers: Headers
    settled: asyncio.Future[None]


class Outbox:
    """Hands them to `producer` in batches, those of a partition one after the other: of messages by
    themselves aiokafka wakes all that wait for a full batch whenever it has gone, and each tries
    anew.

    What is not acknowledged after `timeout_s` ends the outbox, and all that is in it fails.
    """

    def __init__(self, producer: AIOKafkaProducer, timeout_s: float) -> None:
        self.producer = producer
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[str, int] = {}
        # aiokafka makes a new set of a topic's partitions for each who asks.
        producer.client.cluster.add_listener(lambda _: self._partitions.clear())
        self._lanes: dict[tuple[str, int], deque[_Message]] = {}
        self._handing_over: set[asyncio.Task[None]] = set()
        self._unsettled: deque[tuple[float, asyncio.Future[None]]] = deque()
        """In the order of their deadlines."""
        self._alarm: asyncio.TimerHandle | None = None
        self._failure: str | None = None

    async def partitions_of(self, topic: str) -> int:
        """How many a topic has. Raises asyncio.TimeoutError, and what aiokafka raises."""
        known = self._partitions.get(topic)
        if known is None:
            asked = self.producer.partitions_for(topic)
            known = len(await asyncio.wait_for(asked, self._timeout_s))
            self._partitions[topic] = known
        return known

    async def send(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers
    ) -> None:
        """Return once it is acknowledged. Cancelled before it is in a batch, it is not sent.

        Raises KafkaUnavailable when the outbox ends, and what aiokafka raises.
        """
        if self._failure is not None:
            raise KafkaUnavailable(self._failure)
        self._drop_settled()
        settled: asyncio.Future[None] = self._loop.create_future()
        self._unsettled.append((self._loop.time() + self._timeout_s, settled))
        if self._alarm is None:
            self._alarm = self._loop.call_later(self._timeout_s, self._look)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = deque()
            handing_over = asyncio.ensure_future(self._hand_over(topic, partition, lane))
            self._handing_over.add(handing_over)
            handing_over.add_done_callback(self._handing_over.discard)
        lane.append(_Message(key, value, headers, settled))
        await settled

    def end(self, reason: str) -> None:
        """Whatever is not acknowledged fails, for that reason; nothing more is sent."""
        if self._failure is not None:
            return
        self._failure = reason
        if self._alarm is not None:
            self._alarm.cancel()
        for handing_over in self._handing_over:
            handing_over.cancel()
        for _, settled in self._unsettled:
            if not settled.done():
                settled.set_exception(KafkaUnavailable(reason))
        self._unsettled.clear()

    async def _hand_over(self, topic: str, partition: int, lane: deque[_Message]) -> None:
        while lane:
            batch, settled = self._next_batch(lane)
            try:
                acknowledged = await self.producer.send_batch(batch, topic, partition=partition)
            # Whatever it is, who waits for the messages must hear of it.
            except Exception as error:
                _fail(settled, error)
            else:
                acknowledged.add_done_callback(partial(_settle, settled))
        del self._lanes[topic, partition]

    def _next_batch(self, lane: deque[_Message]) -> tuple[BatchBuilder, list[asyncio.Future[None]]]:
        """As many of them as there is room for, and what waits for each."""
        batch = self.producer.create_batch()
        settled = []
        while lane:
            key, value, headers, waiting = lane.popleft()
            if waiting.done():
                continue
            if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                lane.appendleft(_Message(key, value, headers, waiting))
                break
            settled.append(waiting)
        batch.close()
        return batch, settled

    def _drop_settled(self) -> None:
        while self._unsettled and self._unsettled[0][1].done():
            self._unsettled.popleft()

    def _look(self) -> None:
        """Whether the oldest is past its deadline."""
        self._alarm = None
        self._drop_settled()
        if not self._unsettled:
            return
        left_s = self._unsettled[0][0] - self._loop.time()
        if left_s <= 0:
            self.end(f"not acknowledged within {self._timeout_s:g} s")
        else:
            self._alarm = self._loop.call_later(left_s, self._look)


def _settle(settled: list[asyncio.Future[None]], acknowledged: asyncio.Future[object]) -> None:
    if acknowledged.cancelled():
        # aiokafka cancels what a producer leaves behind that is closed.
        _fail(settled, KafkaUnavailable("its producer was closed"))
        return
    error = acknowledged.exception()
    if error is not None:
        _fail(settled, error)
        return
    for future in settled:
        if not future.done():
            future.set_result(None)


def _fail(settled: list[asyncio.Future[None]], error: BaseException) -> None:
    for future in settled:
        if not future.done():
            # A traceback grows with each who raises it.
            future.set_exception(copy(error))
