"""Publishes lag events to `consumer-lag`, keyed by query id."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordTooLargeError

from sparklag_schemas import LagEvent, Settings, SparklagError, encode
from sparklag_schemas.connection import client_options, explain_failure
from sparklag_schemas.headers import lag_event_headers
from sparklag_schemas.topics import key_of
from sparklag_service.counters import Counters

_log = logging.getLogger(__name__)
_MAX_REQUEST_BYTES = 8 * 1024 * 1024
_STOP_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class _Published:
    event: LagEvent
    at_s: float


class Cadence:
    """When an event of a query is due. Pure: `now_s` is any clock that only rises."""

    def __init__(self, publish_interval_s: float, heartbeat_s: float) -> None:
        self._publish_interval_s = publish_interval_s
        self._heartbeat_s = heartbeat_s
        self._last: dict[str, _Published] = {}
        self._last_observed_s: dict[str, float] = {}

    def due(self, event: LagEvent, now_s: float) -> bool:
        """Whether to publish `event` now.

        A start and an end always are. A progress is, once in `publish_interval_s`, however short
        ago a refresh was published; a refresh, when something changed, the same interval after
        whatever was published last; and anything, changed or not, at the heartbeat.
        """
        last = self._last.get(event.query_id)
        if last is None or event.cause in ("started", "terminated"):
            return True
        since_s = now_s - last.at_s
        if since_s >= self._heartbeat_s:
            return True
        if event.cause != "refresh":
            since_s = now_s - self._last_observed_s.get(event.query_id, float("-inf"))
        return since_s >= self._publish_interval_s and _changed(last.event, event)

    def published(self, event: LagEvent, now_s: float) -> None:
        """`event` is on its way."""
        self._last[event.query_id] = _Published(event, now_s)
        if event.cause != "refresh":
            self._last_observed_s[event.query_id] = now_s

    def forget(self, query_id: str) -> None:
        """Whatever comes next of this query is due."""
        self._last.pop(query_id, None)
        self._last_observed_s.pop(query_id, None)


def _changed(last: LagEvent, event: LagEvent) -> bool:
    return (
        last.observed_at != event.observed_at
        or last.status != event.status
        or last.reason != event.reason
        or last.topics != event.topics
    )


class LagPublisher:
    """An idempotent producer that is made anew when it fails."""

    def __init__(self, settings: Settings, bootstrap_servers: str, counters: Counters) -> None:
        self._settings = settings
        self._bootstrap_servers = bootstrap_servers
        self._options: dict[str, Any] = client_options(bootstrap_servers, settings.kafka)
        self._counters = counters
        self._starting = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None
        self._complained = False

    async def publish(self, event: LagEvent) -> bool:
        """Whether Kafka acknowledged `event`. A failure is counted and logged here."""
        return await self._send(event.query_id, encode(event), lag_event_headers(event))

    async def forget(self, query_id: str) -> bool:
        """Write the tombstone of a query; whether Kafka acknowledged it."""
        return await self._send(query_id, None, [])

    async def aclose(self) -> None:
        """Flush what is on its way, and disconnect."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            await asyncio.wait_for(producer.stop(), _STOP_TIMEOUT_S)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            _log.warning("lag events may be missing: %s", str(error) or type(error).__name__)

    async def _send(
        self, query_id: str, value: bytes | None, headers: list[tuple[str, bytes]]
    ) -> bool:
        try:
            producer = await self._started()
            await producer.send_and_wait(
                self._settings.lag_topic, value=value, key=key_of(query_id), headers=headers
            )
        except (MessageSizeTooLargeError, RecordTooLargeError) as error:
            # The producer is as good as before: only this query cannot be said.
            self._counters.publish_failures += 1
            _log.error(
                "lag of query %s, %d bytes, is more than topic %s takes: %s",
                query_id,
                len(value or b""),
                self._settings.lag_topic,
                error,
            )
            return False
        except (KafkaError, SparklagError, OSError, asyncio.TimeoutError) as error:
            self._counters.publish_failures += 1
            await self._complain(error)
            return False
        if self._complained:
            self._complained = False
            _log.warning("publishing to topic %s again", self._settings.lag_topic)
        return True

    async def _started(self) -> AIOKafkaProducer:
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
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    async def _complain(self, error: BaseException) -> None:
        """Log the first failure of a series with its cause, and start over with a new producer."""
        await self.aclose()
        if self._complained:
            return
        self._complained = True
        cause = await explain_failure(self._bootstrap_servers, self._settings.kafka)
        _log.warning(
            "cannot publish to topic %s, trying on: %s",
            self._settings.lag_topic,
            cause or str(error) or type(error).__name__,
        )
