"""Keeps every batch's offsets in the store, from the driver itself."""

from __future__ import annotations

import asyncio

from sparklag_listener.publishing.counters import Stats
from sparklag_offsets.store.offset_store import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, Settings
from sparklag_schemas.runtime.queue import NewestQueue

_MOST_TOGETHER = 200


class OffsetRecorder:
    """Takes observations off the queue, as many as there are together. While the store is away the
    queue keeps the newest of each query; what gave way is recorded as one with what follows."""

    def __init__(self, store: OffsetStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    async def __call__(self, queue: NewestQueue[Observation], stats: Stats) -> None:
        """Record until cancelled."""
        writer = StoreWriter(self._store, self._settings, stats.fail)
        pruning = asyncio.create_task(writer.prune_regularly())
        try:
            while True:
                together = [await queue.get()]
                while len(together) < _MOST_TOGETHER and not queue.empty():
                    together.append(queue.get_nowait())
                await writer.write(together)
                stats.recorded = writer.counts.batches
                for _ in together:
                    queue.task_done()
        finally:
            pruning.cancel()
            await asyncio.gather(pruning, return_exceptions=True)
            await writer.aclose()
