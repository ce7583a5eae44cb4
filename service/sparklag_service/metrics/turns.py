"""Long work on the loop, in turns: others come in between."""

from __future__ import annotations

import asyncio
import time

_TURN_S = 0.001


class Turns:
    """Of one piece of work. Begun when it is created."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether it has had the loop long enough."""
        return time.perf_counter() - self._began_s > _TURN_S

    async def rest(self) -> None:
        """Let others have the loop, if this has had it long enough."""
        if self.over:
            await asyncio.sleep(0)
            self._began_s = time.perf_counter()
