"""The producer of driver and service: a message is acknowledged within a deadline, or fails."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    BrokerResponseError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from aiokafka.producer.message_accumulator import BatchBuilder

from sparklag_kafka.access import TrustedBrokers, client_options
from sparklag_kafka.errors import (
    COMPRESSION_REFUSED,
    KAFKA_FAILURES,
    KafkaUnavailable,
    MessageTooLarge,
    RequestNotTaken,
    error_text,
)
from sparklag_schemas.errors import SettingsError
from sparklag_schemas.messages.headers import Headers, Signatures
from sparklag_schemas.messages.topics import partition_of_key
from sparklag_schemas.settings import ResolvedSettings

Partitioner = Callable[[int], int]
"""The partition of a record, from the topic's number of partitions."""

_log = logging.getLogger("sparklag.kafka")
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""`max.message.bytes` of the topics that sparklag creates."""
_BATCH_BYTES = 256 * 1024
"""Holds several events, and no topic refuses it. A larger event is sent by itself."""
_ABANDON_TIMEOUT_S = 2.0
_NO_PRODUCER_ID = (BrokerResponseError, RequestNotTaken)
"""The errors of aiokafka's start where a broker does not take InitProducerId, or refuses it."""
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError)


class AcknowledgedProducer:
    """A producer that is replaced whenever it fails. It is idempotent and compresses, until the
    broker refuses either.

    aiokafka's producer retries for ever without an error; after a message is refused for its size,
    the next one stays out of sequence. So each message has a deadline, and a failed producer is
    abandoned with its unsent messages.
    """

    def __init__(self, settings: ResolvedSettings) -> None:
        """Raises SettingsError as `client_options` does, and for a codec that is not installed."""
        codec = settings.kafka.compression
        self._compression = None if codec == "none" else codec
        if self._compression and not AIOKafkaProducer._COMPRESSORS[codec][0]():
            raise SettingsError(
                f"kafka.compression = {codec!r}: needs the package cramjam; or set gzip or none"
            )
        self._is_idempotent = True
        self.uncompressed: str | None = None
        """Why nothing is compressed any more, although `kafka.compression` is set."""
        self._options = client_options(settings.access)
        self._trusted = TrustedBrokers(settings.access)
        self._signatures = Signatures(settings)
        self._timeout_s = settings.kafka.request_timeout_s
        self._starting = asyncio.Lock()
        self._outbox: Outbox | None = None

    @property
    def started(self) -> bool:
        """Return whether the next message is sent without connecting first."""
        return self._outbox is not None

    async def send(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        headers: Headers,
        partitioner: Partitioner | None = None,
        query: str | None = None,
    ) -> None:
        """Return once the message is acknowledged by all replicas in sync. The default partitioner
        is that of Java's clients (murmur2 of the key). `query`: see `Signatures.headers`.

        Raises MessageTooLarge, or another of KAFKA_FAILURES; KafkaUnavailable after the deadline.
        """
        size = len(value or b"")
        if size > _MAX_MESSAGE_BYTES:
            raise MessageTooLarge(
                f"{size} bytes are more than the {_MAX_MESSAGE_BYTES} of a message"
            )
        choose = partitioner or partial(partition_of_key, key)
        signed = [*headers, *self._signatures.headers(topic, key, value, query)]
        while True:
            outbox = self._outbox or await self._start(topic)
            try:
                partitions = await outbox.partitions_of(topic)
                await outbox.send(topic, choose(partitions), key, value, signed)
                return
            except _TOO_LARGE as error:
                await self._replace(outbox, "an earlier message was refused because of its size")
                raise MessageTooLarge(f"{size} bytes are more than topic {topic} takes") from error
            except KAFKA_FAILURES as error:
                compressed = outbox.producer._compression_type
                if isinstance(error, COMPRESSION_REFUSED):
                    self._stop_compressing(error_text(error))
                await self._replace(outbox, f"its producer failed: {error_text(error)}")
                # All messages of a producer whose compression is refused are sent again.
                if compressed == self._compression:
                    raise

    async def aclose(self) -> None:
        """Disconnect. Nothing is flushed: callers of `send` wait for their messages."""
        if self._outbox is not None:
            await self._replace(self._outbox, "the producer was closed")

    async def _start(self, topic: str) -> Outbox:
        async with self._starting:
            if self._outbox is None:
                self._outbox = Outbox(await self._connect(topic), self._timeout_s)
            return self._outbox

    async def _connect(self, topic: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            **self._options,
            acks="all",
            enable_idempotence=self._is_idempotent,
            compression_type=self._compression,
            max_batch_size=_BATCH_BYTES,
        )
        self._trusted.guard(producer.client)
        # Without a topic it first reads the metadata of every topic of the cluster.
        producer.client.add_topic(topic)
        try:
            await producer.client.bootstrap()
            # aiokafka waits for a producer id without end.
            await asyncio.wait_for(producer._sender.start(), self._timeout_s)
        except BaseException as error:
            await _abandon(producer)
            is_refused = isinstance(error, _NO_PRODUCER_ID)
            if not (self._is_idempotent and is_refused) or getattr(error, "retriable", False):
                raise
            self._is_idempotent = False
            reason = error_text(error)
            _log.warning("publishing without idempotence, as there is no producer id: %s", reason)
            return await self._connect(topic)
        return producer

    def _stop_compressing(self, answer: str) -> None:
        if self._compression is not None:
            self.uncompressed = (
                f"the broker answers {answer} to batches with kafka.compression ="
                f" {self._compression}: set none, or a codec that it takes"
            )
            self._compression = None
            _log.warning("publishing uncompressed: %s", self.uncompressed)

    async def _replace(self, outbox: Outbox, reason: str) -> None:
        # Several messages may fail with one producer: only the first failure ends it.
        if self._outbox is outbox:
            self._outbox = None
            outbox.end(reason)
            await _abandon(outbox.producer)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Disconnect, in a bounded time. Never raises.

    `stop` waits until everything is sent, perhaps for ever. Cancelled, it leaves a running
    producer, which may send outdated messages later.
    """
    # There is no public API. Connections are closed first, to end requests that wait, and again at
    # the end, as some may be reopened. A step that takes too long is cancelled.
    end_sender = [producer._sender.close] if producer._sender is not None else []
    for step in (producer.client.close, *end_sender, producer.client.close):
        # Gathered: a cancellation of aiokafka's own tasks must not look like one of this task.
        ended = asyncio.gather(step(), return_exceptions=True)
        try:
            (error,) = await asyncio.wait_for(ended, _ABANDON_TIMEOUT_S / 3)
        except asyncio.TimeoutError as timeout:
            error = timeout
        if error is not None:
            _log.debug("sparklag: a producer did not end cleanly: %r", error)
    producer._closed = True


_Acknowledgement = asyncio.Future[None]


_Message = tuple[bytes, bytes | None, Headers, _Acknowledgement]
"""Key, value and headers."""


class Outbox:
    """The messages of one producer that are not acknowledged yet.

    It passes the messages to `producer` in batches, in order for each partition. With single
    messages, aiokafka would wake all tasks that wait for a full batch whenever it is sent.

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
        """The number of partitions of a topic. Raises one of KAFKA_FAILURES."""
        count = self._partition_counts.get(topic)
        if count is None:
            partitions = self.producer.partitions_for(topic)
            count = len(await asyncio.wait_for(partitions, self._timeout_s))
            self._partition_counts[topic] = count
        return count

    async def send(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers
    ) -> None:
        """Return once the message is acknowledged. Cancelled before its batch is built, it is not
        sent. Raises KafkaUnavailable when the outbox ends, and what aiokafka raises."""
        if self._failure is not None:
            raise KafkaUnavailable(self._failure)
        acknowledged: _Acknowledgement = self._loop.create_future()
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = deque()
            sending = asyncio.ensure_future(self._send_lane(topic, partition, lane))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        lane.append((key, value, headers, acknowledged))
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
        _complete(self._pending, KafkaUnavailable(reason))

    async def _send_lane(self, topic: str, partition: int, lane: deque[_Message]) -> None:
        while lane:
            batch, pending = self._next_batch(lane)
            try:
                sent = await self.producer.send_batch(batch, topic, partition=partition)
            # Any error must reach the tasks that wait for the messages.
            except Exception as error:
                _complete(pending, error)
            else:
                sent.add_done_callback(partial(_acknowledge, pending))
        del self._lanes[topic, partition]

    def _next_batch(self, lane: deque[_Message]) -> tuple[BatchBuilder, list[_Acknowledgement]]:
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
    # aiokafka cancels the pending messages of a closed producer.
    error = KafkaUnavailable("its producer was closed") if sent.cancelled() else sent.exception()
    _complete(pending, error)


def _complete(pending: Iterable[_Acknowledgement], error: BaseException | None) -> None:
    for acknowledged in pending:
        if acknowledged.done():
            continue
        if error is None:
            acknowledged.set_result(None)
        else:
            # A traceback grows with each raise of the same exception.
            acknowledged.set_exception(copy(error))
