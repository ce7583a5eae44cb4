"""Publishes observations to `processed-offsets`, for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)

from sparklag_listener.counters import Stats
from sparklag_schemas import Observation, Settings, SparklagError, encode
from sparklag_schemas.connection import KafkaUnavailable, client_options, explain_failure
from sparklag_schemas.headers import observation_headers
from sparklag_schemas.producer import abandon
from sparklag_schemas.queue import NewestQueue
from sparklag_schemas.topic_setup import create_missing
from sparklag_schemas.topics import key_of, offsets_topic

_log = logging.getLogger("sparklag")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_ABANDON_TIMEOUT_S = 2.0
_MAX_REQUEST_BYTES = 8 * 1024 * 1024
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError)


class OffsetsPublisher:
    """Takes observations off the queue, in order, one at a time.

    Each is repeated until Kafka acknowledges it: at least once. While Kafka is away the queue
    keeps the newest of each query.
    """

    def __init__(
        self,
        queue: NewestQueue[Observation],
        settings: Settings,
        bootstrap_servers: str,
        stats: Stats,
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._bootstrap_servers = bootstrap_servers
        self._stats = stats
        self._producer: AIOKafkaProducer | None = None
        self._causes: dict[type[BaseException], str] = {}
        """Since it last worked: the cause of each kind of failure."""

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            while True:
                observation = await self._queue.get()
                await self._deliver(observation)
                self._queue.task_done()
        finally:
            await self._abandon_producer()

    async def _deliver(self, observation: Observation) -> None:
        value = encode(observation)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._send(observation, value)
            except _TOO_LARGE as error:
                # The refused one took a sequence number: the next would be out of order.
                await self._abandon_producer()
                self._stats.dropped += 1
                self._stats.fail(f"observation of {len(value)} bytes: {error}")
                _log.error(
                    "sparklag: dropped an observation of %s, %d bytes are more than topic %s takes",
                    observation.query or observation.query_id,
                    len(value),
                    self._settings.offsets_topic,
                )
                return
            except (KafkaError, SparklagError, OSError, asyncio.TimeoutError) as error:
                await self._abandon_producer()
                await self._complain(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._stats.published += 1
                self._stats.last_published_at_ms = time.time_ns() // 1_000_000
                self._recovered()
                return

    async def _send(self, observation: Observation, value: bytes) -> None:
        producer = self._producer or await self._start_producer()
        sent = producer.send_and_wait(
            self._settings.offsets_topic,
            value=value,
            key=key_of(observation.query_id),
            headers=observation_headers(observation),
        )
        # An idempotent producer would try for ever, and never say that it cannot.
        timeout_s = self._settings.kafka.request_timeout_s
        try:
            await asyncio.wait_for(sent, timeout_s)
        except asyncio.TimeoutError:
            raise KafkaUnavailable(f"not acknowledged within {timeout_s:g} s") from None

    async def _start_producer(self) -> AIOKafkaProducer:
        settings = self._settings
        options: dict[str, Any] = client_options(self._bootstrap_servers, settings.kafka)
        if settings.create_topics:
            spec = offsets_topic(
                settings.offsets_topic, settings.topic_partitions, settings.topic_replication_factor
            )
            await create_missing(options, [spec])
        producer = AIOKafkaProducer(
            **options,
            enable_idempotence=True,
            compression_type="lz4",
            max_request_size=_MAX_REQUEST_BYTES,
        )
        try:
            await producer.start()
        except BaseException:
            await abandon(producer, _ABANDON_TIMEOUT_S)
            raise
        self._producer = producer
        return producer

    async def _abandon_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer, _ABANDON_TIMEOUT_S)

    async def _complain(self, error: BaseException) -> None:
        """Count every failure, log the first of a series with its cause."""
        first = not self._causes
        if type(error) not in self._causes:
            self._causes[type(error)] = await self._cause(error)
        cause = self._causes[type(error)]
        self._stats.fail(cause)
        if first:
            _log.warning(
                "sparklag: cannot publish to topic %s (%s); the query is not affected, trying on",
                self._settings.offsets_topic,
                cause,
            )

    async def _cause(self, error: BaseException) -> str:
        try:
            found = await explain_failure(self._bootstrap_servers, self._settings.kafka)
        except SparklagError as unusable:
            found = str(unusable)
        return found or str(error) or type(error).__name__

    def _recovered(self) -> None:
        if self._causes:
            self._causes.clear()
            _log.warning("sparklag: publishing to topic %s again", self._settings.offsets_topic)
