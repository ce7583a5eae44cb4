"""Publishes observations to `processed-offsets`, for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
import time

from aiokafka.errors import KafkaError

from sparklag_listener.counters import Stats
from sparklag_schemas import Observation, Settings, SparklagError, encode
from sparklag_schemas.connection import client_options, explain_failure
from sparklag_schemas.headers import observation_headers
from sparklag_schemas.producer import AcknowledgedProducer, MessageTooLarge
from sparklag_schemas.queue import NewestQueue
from sparklag_schemas.topic_setup import create_missing
from sparklag_schemas.topics import key_of, offsets_topic

_log = logging.getLogger("sparklag")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


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
        self._producer: AcknowledgedProducer | None = None
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
            if self._producer is not None:
                await self._producer.aclose()

    async def _deliver(self, observation: Observation) -> None:
        value = encode(observation)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._send(observation, value)
            except MessageTooLarge as error:
                self._stats.dropped += 1
                self._stats.fail(f"dropped an observation: {error}")
                _log.error(
                    "sparklag: dropped an observation of %s: %s",
                    observation.query or observation.query_id,
                    error,
                )
                return
            except (KafkaError, SparklagError, OSError, asyncio.TimeoutError) as error:
                await self._complain(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._stats.published += 1
                self._stats.last_published_at_ms = time.time_ns() // 1_000_000
                self._recovered()
                return

    async def _send(self, observation: Observation, value: bytes) -> None:
        producer = self._producer or self._make_producer()
        if not producer.started and self._settings.create_topics:
            await self._create_topic()
        await producer.send(
            self._settings.offsets_topic,
            value=value,
            key=key_of(observation.query_id),
            headers=observation_headers(observation),
        )

    def _make_producer(self) -> AcknowledgedProducer:
        kafka = self._settings.kafka
        self._producer = AcknowledgedProducer(
            client_options(self._bootstrap_servers, kafka), kafka.request_timeout_s
        )
        return self._producer

    async def _create_topic(self) -> None:
        settings = self._settings
        spec = offsets_topic(
            settings.offsets_topic, settings.topic_partitions, settings.topic_replication_factor
        )
        await create_missing(client_options(self._bootstrap_servers, settings.kafka), [spec])

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
