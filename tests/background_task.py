"""A task that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def background(coroutine: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Runs until the end of the block, where it is cancelled. Raises what it raised."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
