"""The producer of both halves: a message is acknowledged within a deadline, or fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)

from sparklag_kafka.access import TrustedBrokers, client_options
from sparklag_kafka.clients.outbox import Outbox
from sparklag_kafka.errors import KAFKA_FAILURES, MessageTooLarge, error_text
from sparklag_schemas.messages.headers import Headers, Signatures
from sparklag_schemas.messages.topics import partition_of_key
from sparklag_schemas.settings import ResolvedSettings

Partitioner = Callable[[int], int]
"""The partition of a record, from how many the topic has."""

_log = logging.getLogger("sparklag.kafka")
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""As our topics are created with."""
_BATCH_BYTES = 256 * 1024
"""Room for several events, and less than any topic refuses. A larger event is sent by itself."""
_ABANDON_TIMEOUT_S = 2.0


class AcknowledgedProducer:
    """An idempotent producer that is replaced whenever it fails.

    aiokafka's retries for ever without an error; after a message that is refused for its size the
    next one is out of order for ever. So each message has a deadline, and a producer that failed
    is abandoned, with all that it has not sent.
    """

    def __init__(self, settings: ResolvedSettings) -> None:
        """Raises SettingsError as `client_options` does."""
        self._options = client_options(settings.access)
        self._trusted = TrustedBrokers(settings.access)
        self._signatures = Signatures(settings)
        self._timeout_s = settings.kafka.request_timeout_s
        self._starting = asyncio.Lock()
        self._outbox: Outbox | None = None

    @property
    def started(self) -> bool:
        """Whether the next message goes out without connecting first."""
        return self._outbox is not None

    async def send(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        headers: Headers,
        partitioner: Partitioner | None = None,
    ) -> None:
        """Return once the message is acknowledged by all replicas in sync. The default partitioner
        is that of Java's clients (murmur2 of the key).

        Raises MessageTooLarge, or another of KAFKA_FAILURES; KafkaUnavailable after the deadline.
        """
        size = len(value or b"")
        if size > _MAX_MESSAGE_BYTES:
            raise MessageTooLarge(
                f"{size} bytes are more than the {_MAX_MESSAGE_BYTES} of a message"
            )
        outbox = self._outbox or await self._start(topic)
        try:
            partitions = await outbox.partitions_of(topic)
            choose = partitioner or partial(partition_of_key, key)
            signed = [*headers, *self._signatures.headers(topic, key, value)]
            await outbox.send(topic, choose(partitions), key, value, signed)
        except (MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError) as error:
            await self._replace(outbox, "an earlier message was refused because of its size")
            raise MessageTooLarge(f"{size} bytes are more than topic {topic} takes") from error
        except KAFKA_FAILURES as error:
            await self._replace(outbox, f"its producer failed: {error_text(error)}")
            raise

    async def aclose(self) -> None:
        """Disconnect. Nothing is flushed: callers of `send` wait for their messages."""
        if self._outbox is not None:
            await self._replace(self._outbox, "the producer was closed")

    async def _start(self, topic: str) -> Outbox:
        async with self._starting:
            if self._outbox is None:
                producer = AIOKafkaProducer(
                    **self._options,
                    enable_idempotence=True,
                    # aiokafka's lz4 takes eight times as long, and leaves twice as much.
                    compression_type="zstd",
                    max_batch_size=_BATCH_BYTES,
                )
                self._trusted.guard(producer.client)
                # Without one it begins with the metadata of every topic of the cluster.
                producer.client.add_topic(topic)
                try:
                    await producer.start()
                except BaseException:
                    await _abandon(producer)
                    raise
                self._outbox = Outbox(producer, self._timeout_s)
            return self._outbox

    async def _replace(self, outbox: Outbox, reason: str) -> None:
        # Several messages may fail with one producer: only the first of them ends it.
        if self._outbox is outbox:
            self._outbox = None
            outbox.end(reason)
            await _abandon(outbox.producer)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Disconnect, in a bounded time. Never raises.

    `stop` waits until all is sent, which may be never; cancelled, it leaves a running producer
    behind, which may send outdated messages later.
    """
    # There is no public way. Connections are closed first, which ends waiting for responses, and
    # again at the end, for those that were reopened. A step that takes too long is cancelled.
    for step in (_disconnect, _end_sender, _disconnect):
        # Gathered: aiokafka's own cancelled tasks must not look like a cancellation of this one.
        ended = asyncio.gather(step(producer), return_exceptions=True)
        try:
            (error,) = await asyncio.wait_for(ended, _ABANDON_TIMEOUT_S / 3)
        except asyncio.TimeoutError as timeout:
            error = timeout
        if error is not None:
            _log.debug("sparklag: a producer did not end cleanly: %r", error)
    producer._closed = True


async def _disconnect(producer: AIOKafkaProducer) -> None:
    await producer.client.close()


async def _end_sender(producer: AIOKafkaProducer) -> None:
    if producer._sender is not None:
        await producer._sender.close()
