"""Records every batch's offsets in the store, from the driver itself."""

from __future__ import annotations

import asyncio

from sparklag_kafka.clients.client_options import quiet_client_logs
from sparklag_listener.stats import Stats
from sparklag_offsets.store.offset_store import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, Settings
from sparklag_schemas.runtime.queue import NewestQueue

_MAX_CHUNK = 200


async def record_offsets(
    store: OffsetStore, settings: Settings, queue: NewestQueue[Observation], stats: Stats
) -> None:
    """Record until cancelled: all waiting observations at once. While the store is away the queue
    retains the newest of each query; the dropped batches are recorded as one with the next."""
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
