"""Publishes lag events to `consumer-lag`, keyed by query id."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import KafkaError

from sparklag_schemas import LagEvent, PartitionLag, Settings, SparklagError, encode
from sparklag_schemas.connection import client_options, explain_failure
from sparklag_schemas.headers import Headers, lag_event_headers
from sparklag_schemas.producer import AcknowledgedProducer, MessageTooLarge
from sparklag_schemas.topics import key_of
from sparklag_service.counters import Counters

_log = logging.getLogger(__name__)


_EARLY: Final = 0.1
"""Of a refresh interval."""


@dataclass(frozen=True)
class _Published:
    event: LagEvent
    at_s: float


class Cadence:
    """When an event of a query is due. Pure: `now_s` is any clock that only rises."""

    def __init__(
        self, publish_interval_s: float, heartbeat_s: float, refresh_interval_s: float
    ) -> None:
        self._publish_interval_s = publish_interval_s
        self._heartbeat_s = heartbeat_s
        # No refresh takes exactly as long as the one before: one that comes a moment early does
        # not leave it to the next.
        self._early_s = _EARLY * refresh_interval_s
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
        since_s = now_s - last.at_s + self._early_s
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
    """Whether there is more to say than that time has passed: a record that waits grows older, and
    everybody can reckon that from `measured_at`."""
    return (
        last.observed_at != event.observed_at
        or last.status != event.status
        or last.reason != event.reason
        or len(last.topics) != len(event.topics)
        or any(
            len(was.partitions) != len(now.partitions)
            or was.total_lag != now.total_lag
            or was.topic_id != now.topic_id
            or any(map(_partition_changed, was.partitions, now.partitions))
            for was, now in zip(last.topics, event.topics, strict=True)
        )
    )


def _partition_changed(was: PartitionLag, now: PartitionLag) -> bool:
    return was is not now and (
        was.latest_offset != now.latest_offset
        or was.processed_offset != now.processed_offset
        or was.partition != now.partition
        or was.planned_offset != now.planned_offset
        or was.earliest_offset != now.earliest_offset
        or was.time_lag_method != now.time_lag_method
        or was.status != now.status
        or was.reason != now.reason
    )


class LagPublisher:
    """Writes to `consumer-lag`. A failure is counted and logged, the first of a series with its
    cause; what failed is measured and published anew."""

    def __init__(self, settings: Settings, bootstrap_servers: str, counters: Counters) -> None:
        self._settings = settings
        self._bootstrap_servers = bootstrap_servers
        self._counters = counters
        self._producer = AcknowledgedProducer(
            client_options(bootstrap_servers, settings.kafka), settings.kafka.request_timeout_s
        )
        self._complained = False
        self._too_large: set[str] = set()
        self.failed = asyncio.Event()
        """Set by each failure: something may be mended."""

    async def publish(self, event: LagEvent) -> bool:
        """Whether there is nothing more to do: acknowledged, or refused for good by its size."""
        return await self._send(event.query_id, encode(event), lag_event_headers(event))

    async def forget(self, query_id: str) -> bool:
        """Write the tombstone of a query; whether Kafka acknowledged it."""
        return await self._send(query_id, None, [])

    async def aclose(self) -> None:
        """Disconnect."""
        await self._producer.aclose()

    async def _send(self, query_id: str, value: bytes | None, headers: Headers) -> bool:
        try:
            await self._producer.send(
                self._settings.lag_topic, key=key_of(query_id), value=value, headers=headers
            )
        except MessageTooLarge as error:
            self._counters.too_large += 1
            if query_id not in self._too_large:
                self._too_large.add(query_id)
                _log.error("lag of query %s cannot be published: %s", query_id, error)
            return True
        except (KafkaError, SparklagError, OSError, asyncio.TimeoutError) as error:
            self._counters.publish_failures += 1
            self.failed.set()
            if not self._complained:
                self._complained = True
                cause = await explain_failure(self._bootstrap_servers, self._settings.kafka)
                _log.warning(
                    "cannot publish to topic %s, trying on: %s",
                    self._settings.lag_topic,
                    cause or str(error) or type(error).__name__,
                )
            return False
        if self._complained:
            self._complained = False
            _log.warning("publishing to topic %s again", self._settings.lag_topic)
        self._counters.published += 1
        self._too_large.discard(query_id)
        return True
