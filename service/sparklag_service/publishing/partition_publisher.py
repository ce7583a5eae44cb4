"""Publishes partition records to `consumer-lag-partitions`, after the events that they are of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from sparklag_schemas import LagEvent, PartitionRecord, ResolvedSettings
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.headers import partition_headers
from sparklag_schemas.runtime.chunks import by_count
from sparklag_service.counters import Counters
from sparklag_service.publishing.partition_changes import Change, PartitionChanges
from sparklag_service.publishing.topic_writer import TopicWriter

_AT_ONCE: Final = 200
_RETRY_S: Final = 2.0


class PartitionPublisher:
    """Runs beside the events. A record that fails is written again with its query's next event, at
    the latest at the heartbeat."""

    def __init__(
        self,
        settings: ResolvedSettings,
        owns: Callable[[str], bool],
        counters: Counters,
        formats: MessageFormats,
    ) -> None:
        """`owns`: whether this instance answers for a query id."""
        topic = settings.partition_topic
        self._writer = TopicWriter(settings, topic, formats.writer(PartitionRecord, topic))
        self._owns = owns
        self._counters = counters
        self._changes = PartitionChanges(settings.partition_heartbeat_s)
        self._waiting: dict[str, LagEvent | None] = {}
        """The newest event of each query; None: it is forgotten."""
        self._woken = asyncio.Event()

    def published(self, event: LagEvent) -> None:
        """Write what it changes, soon."""
        self._wait(event.query_id, event)

    def forget(self, query_id: str) -> None:
        """Write a tombstone for each of its partitions, soon."""
        self._wait(query_id, None)

    def adopt(self, event: LagEvent) -> None:
        """See PartitionChanges."""
        self._changes.taken_over(event)

    def release(self, query_id: str) -> None:
        """Another instance publishes it now."""
        self._waiting.pop(query_id, None)
        self._changes.let_go(query_id)

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                while self._waiting:
                    query_id = next(iter(self._waiting))
                    event = self._waiting.pop(query_id)
                    if event is not None:
                        await self._publish(event)
                    elif not await self._write_all(query_id, self._changes.all_gone(query_id)):
                        # No further event of the query comes.
                        self._waiting.setdefault(query_id, None)
                        await asyncio.sleep(_RETRY_S)
        finally:
            await self._writer.aclose()

    def _wait(self, query_id: str, event: LagEvent | None) -> None:
        self._waiting[query_id] = event
        self._woken.set()

    async def _publish(self, event: LagEvent) -> None:
        if self._owns(event.query_id):
            changes = self._changes.due(event, time.monotonic())
            await self._write_all(event.query_id, changes, event.cluster)

    async def _write_all(self, query_id: str, changes: list[Change], cluster: str = "") -> bool:
        """Whether nothing of it is to be written again."""
        all_done = True
        for chunk in by_count(changes, _AT_ONCE):
            written = await asyncio.gather(*(self._write(change, cluster) for change in chunk))
            for change, done in zip(chunk, written, strict=True):
                if done:
                    self._changes.written(query_id, change)
                all_done = all_done and done
        return all_done

    async def _write(self, change: Change, cluster: str) -> bool:
        headers = []
        if change.record is not None:
            headers = partition_headers(
                change.record, change.key, cluster, self._writer.content_type
            )
        outcome = await self._writer.write(change.key.encode(), change.record, headers)
        if outcome == "acknowledged":
            self._counters.partition_records += 1
        else:
            self._counters.partition_failures += 1
        return outcome != "failed"
