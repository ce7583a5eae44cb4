"""Publishes lag events to `consumer-lag`, keyed by query id; and what they say of each partition,
where that is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.headers import Headers, lag_event_headers
from sparklag_schemas.runtime.tasks import run_together
from sparklag_schemas.topics import LagPartitions, key_of
from sparklag_service.counters import Counters
from sparklag_service.publishing.partition_publisher import PartitionPublisher
from sparklag_service.publishing.topic_writer import TopicWriter


class LagPublisher:
    """What fails is measured and published anew."""

    def __init__(
        self,
        settings: ResolvedSettings,
        owns: Callable[[str], bool],
        counters: Counters,
        formats: MessageFormats,
    ) -> None:
        """`owns`: whether this instance answers for a query id."""
        topic = settings.lag_topic
        self._writer = TopicWriter(settings, topic, formats.writer(LagEvent, topic))
        self._partitions = LagPartitions(settings.own_partitions)
        self._counters = counters
        self._by_partition: PartitionPublisher | None = None
        if settings.partition_records:
            self._by_partition = PartitionPublisher(settings, owns, counters, formats)

    @property
    def failed(self) -> asyncio.Event:
        """Set by each failure: something may be mended."""
        return self._writer.failed

    @property
    def waiting(self) -> str | None:
        """Why nothing can be published yet."""
        return self._writer.waiting

    async def run(self) -> None:
        """Get ready to publish, and stay so until cancelled."""
        by_partition = [] if self._by_partition is None else [self._by_partition.run]
        await run_together(self._writer.stay_ready(), *(run() for run in by_partition))

    async def publish(self, event: LagEvent) -> bool:
        """Whether there is nothing more to do: acknowledged, or refused for good by its size."""
        headers = lag_event_headers(event, self._writer.content_type)
        done = await self._write(event.query_id, event.query, event, headers)
        if done and self._by_partition is not None:
            self._by_partition.published(event)
        return done

    async def forget(self, query_id: str, query: str | None) -> bool:
        """Write the tombstone of a query, by its id and name; whether Kafka acknowledged it."""
        done = await self._write(query_id, query, None, [])
        if done and self._by_partition is not None:
            self._by_partition.forget(query_id)
        return done

    def adopt(self, event: LagEvent) -> None:
        """This instance answers for a query from here on; its newest event is another's."""
        if self._by_partition is not None:
            self._by_partition.adopt(event)

    def release(self, query_id: str) -> None:
        """Another instance answers for it from here on."""
        if self._by_partition is not None:
            self._by_partition.release(query_id)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._writer.aclose()

    async def _write(
        self, query_id: str, query: str | None, event: LagEvent | None, headers: Headers
    ) -> bool:
        outcome = await self._writer.write(
            key_of(query_id), event, headers, self._partitions.choice_of(query_id, query)
        )
        match outcome:
            case "acknowledged":
                self._counters.published += 1
            case "too large":
                self._counters.too_large += 1
            case "failed":
                self._counters.publish_failures += 1
        return outcome != "failed"
