"""Publishes observations to `processed-offsets`, and records them in the offset store."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field

from sparklag_kafka.access import explain_error, quiet_client_logs
from sparklag_kafka.clients.producer import AcknowledgedProducer
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES, MessageTooLarge
from sparklag_listener.stats import Stats
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, ResolvedSettings, Settings, SparklagError
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.headers import observation_headers
from sparklag_schemas.messages.topics import key_of, offsets_topic
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag")
_MAX_CHUNK = 200
_MAX_ROUND = 100
_FIRST_PAUSE_S = 0.2
_MAX_PAUSE_S = 3.0
_FAILURES = (*KAFKA_FAILURES, SparklagError)


async def record_offsets(
    store: OffsetStore, settings: Settings, queue: NewestQueue[Observation], stats: Stats
) -> None:
    """Record all queued observations at once, until cancelled. While the store fails, the queue
    retains the newest of each query; dropped batches are recorded in one record with the next."""
    quiet_client_logs()
    writer = StoreWriter(store, settings, stats.fail)
    pruning = asyncio.create_task(writer.prune_regularly())
    try:
        while True:
            chunk = [await queue.get()]
            while len(chunk) < _MAX_CHUNK and not queue.empty():
                chunk.append(queue.get_nowait())
            await writer.write(chunk)
            stats.recorded = writer.counts.batches
            for _ in chunk:
                queue.task_done()
    finally:
        pruning.cancel()
        await asyncio.gather(pruning, return_exceptions=True)
        await writer.aclose()


async def publish_offsets(
    queue: NewestQueue[Observation], settings: ResolvedSettings, stats: Stats
) -> None:
    """Publish until cancelled. See OffsetsPublisher."""
    quiet_client_logs()
    await OffsetsPublisher(queue, settings, stats).run()


@dataclass(eq=False, repr=False)
class OffsetsPublisher:
    """Takes observations off the queue in rounds, one for each query. A query's next observation is
    sent after its previous observation is acknowledged.

    Each is retried until Kafka acknowledges it: at least once. While Kafka fails, the queue retains
    the newest of each query, so that no query later waits for another's backlog.
    """

    _queue: NewestQueue[Observation]
    _settings: ResolvedSettings
    _stats: Stats
    _producer: AcknowledgedProducer | None = None
    _causes: dict[type[BaseException], str] = field(default_factory=dict)
    """The cause of each kind of failure since the last success."""
    _next: Observation | None = None
    """An observation for the next round, already taken off the queue."""

    def __post_init__(self) -> None:
        name = self._settings.offsets_topic
        self._writer = MessageFormats(self._settings).writer(Observation, name)

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            while True:
                await self._deliver(await self._next_round())
        finally:
            if self._producer is not None:
                await self._producer.aclose()

    async def _next_round(self) -> list[Observation]:
        """The oldest queued observation of each query, in order."""
        observation = self._next or await self._queue.get()
        self._next = None
        by_query = {observation.query_id: observation}
        while len(by_query) < _MAX_ROUND and not self._queue.empty():
            observation = self._queue.get_nowait()
            if observation.query_id in by_query:
                self._next = observation
                break
            by_query[observation.query_id] = observation
        return list(by_query.values())

    async def _deliver(self, observations: list[Observation]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            errors = await self._send(observations)
            failed = []
            for observation, error in zip(observations, errors, strict=True):
                if error is None:
                    self._mark_published()
                elif isinstance(error, MessageTooLarge) and len(observations) == 1:
                    self._drop(observation, error)
                else:
                    failed.append(observation)
            if not failed:
                return
            if any(isinstance(error, MessageTooLarge) for error in errors):
                # Kafka refuses a whole batch: send each observation alone.
                for observation in failed:
                    await self._deliver([observation])
                return
            for error in {type(error): error for error in errors if error is not None}.values():
                await self._report(error)
            # Jitter: not all drivers retry at the same time.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            observations = failed

    async def _send(self, observations: list[Observation]) -> list[BaseException | None]:
        """Returns the error of each, or None. Raises unexpected errors."""
        settings = self._settings
        try:
            if self._producer is None:
                self._producer = AcknowledgedProducer(settings)
            producer = self._producer
            if not producer.started and settings.create_topics:
                partitions, factor = settings.topic_partitions, settings.topic_replication_factor
                topic = offsets_topic(settings.offsets_topic, partitions, factor)
                await create_missing(settings.access, [topic])
        except _FAILURES as error:
            return [error] * len(observations)
        sends = (self._send_one(producer, observation) for observation in observations)
        errors = await asyncio.gather(*sends, return_exceptions=True)
        # CancelledError: the producer of the message was abandoned.
        for result in errors:
            if result and not isinstance(result, (*_FAILURES, asyncio.CancelledError)):
                raise result
        return errors

    async def _send_one(self, producer: AcknowledgedProducer, observation: Observation) -> None:
        traced = self._settings.traces.endpoint is not None
        await producer.send(
            self._settings.offsets_topic,
            value=await self._writer.encode(observation),
            key=key_of(observation.query_id),
            headers=observation_headers(observation, self._writer.content_type, traced=traced),
        )

    def _mark_published(self) -> None:
        self._stats.published += 1
        self._stats.last_published_at_ms = epoch_ms()
        self._queue.task_done()
        if self._causes:
            self._causes.clear()
            _log.warning("sparklag: publishing to topic %s again", self._settings.offsets_topic)

    def _drop(self, observation: Observation, error: BaseException) -> None:
        self._stats.dropped += 1
        self._stats.fail(f"dropped an observation: {error}")
        _log.error("sparklag: dropped an observation of %s: %s", observation.display_name, error)
        self._queue.task_done()

    async def _report(self, error: BaseException) -> None:
        is_first, cause = not self._causes, self._causes.get(type(error))
        if cause is None:
            try:
                cause = await explain_error(error, self._settings.access)
            except SparklagError as unexplained:
                cause = str(unexplained)
            self._causes[type(error)] = cause
        self._stats.fail(cause)
        if is_first:
            _log.warning(
                "sparklag: cannot publish to topic %s (%s); the query is not affected, retrying",
                self._settings.offsets_topic,
                cause,
            )
