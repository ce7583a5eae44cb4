"""The messages of one producer that are not acknowledged yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from sparklag_kafka.errors import KafkaUnavailable
from sparklag_schemas.messages.headers import Headers

_Acknowledgement = asyncio.Future[None]


class _Message(NamedTuple):
    key: bytes
    value: bytes | None
    headers: Headers
    acknowledged: _Acknowledgement


class Outbox:
    """Passes them to `producer` in batches, those of a partition in order. Given single messages,
    aiokafka wakes all that wait for a full batch whenever it was sent, and each tries again.

    A message that is not acknowledged after `timeout_s` ends the outbox, and fails all of them.
    """

    def __init__(self, producer: AIOKafkaProducer, timeout_s: float) -> None:
        self.producer = producer
        self._timeout_s = timeout_s
        self._overdue = f"not acknowledged within {timeout_s:g} s"
        self._loop = asyncio.get_running_loop()
        self._partition_counts: dict[str, int] = {}
        # aiokafka builds a new set of a topic's partitions in each call.
        producer.client.cluster.add_listener(lambda _: self._partition_counts.clear())
        self._lanes: dict[tuple[str, int], deque[_Message]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._pending: set[_Acknowledgement] = set()
        self._failure: str | None = None

    async def partitions_of(self, topic: str) -> int:
        """How many a topic has. Raises one of KAFKA_FAILURES."""
        count = self._partition_counts.get(topic)
        if count is None:
            partitions = self.producer.partitions_for(topic)
            count = len(await asyncio.wait_for(partitions, self._timeout_s))
            self._partition_counts[topic] = count
        return count

    async def send(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers
    ) -> None:
        """Return once it is acknowledged. Cancelled before it is in a batch, it is not sent.

        Raises KafkaUnavailable when the outbox ends, and what aiokafka raises.
        """
        if self._failure is not None:
            raise KafkaUnavailable(self._failure)
        acknowledged: _Acknowledgement = self._loop.create_future()
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = deque()
            sending = asyncio.ensure_future(self._send_lane(topic, partition, lane))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        lane.append(_Message(key, value, headers, acknowledged))
        self._pending.add(acknowledged)
        deadline = self._loop.call_later(self._timeout_s, self.end, self._overdue)
        try:
            await acknowledged
        finally:
            deadline.cancel()
            self._pending.discard(acknowledged)

    def end(self, reason: str) -> None:
        """Fail all pending messages for that reason; nothing more is sent."""
        if self._failure is not None:
            return
        self._failure = reason
        for sending in self._sending:
            sending.cancel()
        _fail(self._pending, KafkaUnavailable(reason))

    async def _send_lane(self, topic: str, partition: int, lane: deque[_Message]) -> None:
        while lane:
            batch, pending = self._next_batch(lane)
            try:
                sent = await self.producer.send_batch(batch, topic, partition=partition)
            # Whatever it is, those who wait for the messages must get it.
            except Exception as error:
                _fail(pending, error)
            else:
                sent.add_done_callback(partial(_acknowledge, pending))
        del self._lanes[topic, partition]

    def _next_batch(self, lane: deque[_Message]) -> tuple[BatchBuilder, list[_Acknowledgement]]:
        """As many messages as fit, and what waits for each."""
        batch = self.producer.create_batch()
        pending = []
        while lane:
            key, value, headers, acknowledged = lane[0]
            if not acknowledged.done():
                if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                    break
                pending.append(acknowledged)
            lane.popleft()
        batch.close()
        return batch, pending


def _acknowledge(pending: list[_Acknowledgement], sent: asyncio.Future[object]) -> None:
    # aiokafka cancels what a closed producer leaves behind.
    closed = KafkaUnavailable("its producer was closed")
    error = closed if sent.cancelled() else sent.exception()
    if error is not None:
        _fail(pending, error)
        return
    for acknowledged in pending:
        if not acknowledged.done():
            acknowledged.set_result(None)


def _fail(pending: Iterable[_Acknowledgement], error: BaseException) -> None:
    for acknowledged in pending:
        if not acknowledged.done():
            # A traceback grows with each raise of the same exception.
            acknowledged.set_exception(copy(error))
