"""What a step costs, round by round."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.loop_stall import longest_stall

Step = Callable[[], Awaitable[None]]


@dataclass
class Costs:
    """Milliseconds of each round. The stall is the most CPU between two turns of another task."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    stall_ms: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self, *, keep: bool = True) -> Iterator[None]:
        """Take the CPU and the time of what is done inside; `keep` is False in a warm-up."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        yield
        if keep:
            self.cpu_ms.append((time.process_time() - cpu_s) * 1e3)
            self.wall_ms.append((time.perf_counter() - wall_s) * 1e3)

    async def take(self, step: Step, *, keep: bool, before: Step | None = None) -> None:
        """The step once alone for its cost, and once beside a ticking task for its stalls; each
        time after `before`."""
        if before is not None:
            await before()
        with self.timed(keep=keep):
            await step()
        if before is not None:
            await before()
        async with longest_stall() as stall:
            await step()
        if keep:
            self.stall_ms.append(stall.longest_s * 1e3)
