"""How both halves write to Kafka: acknowledged within a deadline, or said to have failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)

from sparklag_schemas.connection import KafkaUnavailable
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.headers import Headers

ChoosePartition = Callable[[int], int]
"""The partition of a record, from how many the topic has."""

_log = logging.getLogger("sparklag")
_MAX_REQUEST_BYTES = 8 * 1024 * 1024
_ABANDON_TIMEOUT_S = 2.0


class MessageTooLarge(SparklagError):
    """The topic refuses a message of this size, and always will."""


class AcknowledgedProducer:
    """An idempotent producer that is made anew whenever it fails.

    aiokafka's tries for ever and never says that it cannot; after a message that is refused by
    size the next one is out of order for ever. So each message has a deadline, and a producer
    that failed is abandoned, with all that it has not sent.
    """

    def __init__(self, options: Mapping[str, Any], timeout_s: float) -> None:
        """`options` as from `client_options`."""
        self._options = options
        self._timeout_s = timeout_s
        self._starting = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None

    @property
    def started(self) -> bool:
        """Whether the next message goes out without connecting first."""
        return self._producer is not None

    async def send(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        headers: Headers,
        place: ChoosePartition | None = None,
    ) -> None:
        """Return once the message is acknowledged by all replicas in sync. Without `place` its
        partition is that of its key, as Java's clients choose it (murmur2).

        Raises MessageTooLarge; KafkaUnavailable after the deadline; and what aiokafka raises.
        """
        producer = await self._start()
        try:
            await asyncio.wait_for(
                _send(producer, topic, key, value, headers, place), self._timeout_s
            )
        except (MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError) as error:
            await self._give_up(producer)
            size = len(value or b"")
            raise MessageTooLarge(f"{size} bytes are more than topic {topic} takes") from error
        except asyncio.TimeoutError:
            await self._give_up(producer)
            raise KafkaUnavailable(f"not acknowledged within {self._timeout_s:g} s") from None
        except (KafkaError, OSError):
            await self._give_up(producer)
            raise

    async def aclose(self) -> None:
        """Disconnect. Who wants a message to arrive has waited for it: nothing is flushed."""
        if self._producer is not None:
            await self._give_up(self._producer)

    async def _start(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._options,
                    enable_idempotence=True,
                    compression_type="lz4",
                    max_request_size=_MAX_REQUEST_BYTES,
                )
                try:
                    await producer.start()
                except BaseException:
                    await _abandon(producer)
                    raise
                self._producer = producer
            return self._producer

    async def _give_up(self, producer: AIOKafkaProducer) -> None:
        # Of several messages that fail with one producer, the first ends it, and only that one.
        if self._producer is producer:
            self._producer = None
            await _abandon(producer)


async def _send(
    producer: AIOKafkaProducer,
    topic: str,
    key: bytes,
    value: bytes | None,
    headers: Headers,
    place: ChoosePartition | None,
) -> None:
    partition = None if place is None else place(len(await producer.partitions_for(topic)))
    await producer.send_and_wait(topic, value=value, key=key, headers=headers, partition=partition)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Disconnect, in a bounded time. Never raises.

    `stop` waits until all is sent, which may be never; cancelled, it leaves a producer behind that
    goes on, and one day sends what is long out of date.
    """
    # There is no public way. First the connections, so that what waits for an answer ends, and once
    # more for those that were made anew. What does not end in time is cancelled.
    for step in (_disconnect, _end_sender, _disconnect):
        try:
            await asyncio.wait_for(step(producer), _ABANDON_TIMEOUT_S / 3)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            _log.debug("sparklag: a producer did not end cleanly: %r", error)
    producer._closed = True


async def _disconnect(producer: AIOKafkaProducer) -> None:
    await producer.client.close()


async def _end_sender(producer: AIOKafkaProducer) -> None:
    if producer._sender is not None:
        await producer._sender.close()
