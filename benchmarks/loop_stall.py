"""How long a loop was held from everybody else, in CPU time: other processes' turns on a busy
machine are not a stall of ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_TICK_S: Final = 0.001


@dataclass
class Stall:
    """The longest so far."""

    longest_s: float = 0.0

    async def _tick(self, tick_s: float) -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(tick_s)
            now_s = time.thread_time()
            self.longest_s = max(self.longest_s, now_s - last_s)
            last_s = now_s


@asynccontextmanager
async def longest_stall(tick_s: float = _TICK_S) -> AsyncIterator[Stall]:
    """The most CPU between two turns of another task on this loop, inside of it. That task comes up
    to `tick_s` later than it could: a longer one costs less."""
    stall = Stall()
    ticking = asyncio.create_task(stall._tick(tick_s))
    # It looks at its clock before what is watched begins.
    await asyncio.sleep(0)
    try:
        yield stall
        # What was held at the end counts too.
        await asyncio.sleep(tick_s)
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
