"""`sparklag serve` that also writes how long its loop was held: `python -m`, with a file's path.

Each line of the file has the end of a second (epoch), the longest stall in it, and the longest of
Python's garbage collections, both in milliseconds of CPU; how many tasks there are, how many blocks
of memory Python has allocated, and how many objects its garbage collector held within the last
minute.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from unittest.mock import patch

from benchmarks.loop_stall import longest_stall
from sparklag_schemas import Settings
from sparklag_service import server
from sparklag_service.__main__ import main as run_command

_TICK_S: Final = 0.005
_OBJECTS_S: Final = 60
"""Between two counts of objects, which take a millisecond for each hundred thousand."""


def main() -> None:
    path, serve = Path(sys.argv[1]), server.serve

    async def watched_serve(settings: Settings) -> None:
        watching = asyncio.create_task(_watch(path))
        try:
            await serve(settings)
        finally:
            watching.cancel()

    sys.argv[1:] = ["serve"]
    with patch.object(server, "serve", watched_serve):
        run_command()


async def _watch(path: Path) -> None:
    collections = _Collections()
    gc.callbacks.append(collections)
    seconds = objects = 0
    with path.open("a") as file:
        while True:
            if seconds % _OBJECTS_S == 0:
                objects = gc.get_freeze_count() + len(gc.get_objects())
            seconds += 1
            async with longest_stall(_TICK_S) as stall:
                await asyncio.sleep(1)
            longest_ms = (stall.longest_s * 1e3, collections.take_longest_s() * 1e3)
            held = f"{len(asyncio.all_tasks())} {sys.getallocatedblocks()} {objects}"
            file.write(f"{time.time():.3f} {longest_ms[0]:.1f} {longest_ms[1]:.1f} {held}\n")
            file.flush()


class _Collections:
    def __init__(self) -> None:
        self._began_s = self._longest_s = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self._longest_s = max(self._longest_s, time.thread_time() - self._began_s)

    def take_longest_s(self) -> float:
        """The longest since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


if __name__ == "__main__":
    main()
