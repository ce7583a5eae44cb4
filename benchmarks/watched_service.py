"""`sparklag serve` that also writes how long its loop was held: `python -m`, with a file's path.

Each line of the file has the end of a second (epoch), the longest stall in it, and the longest of
Python's garbage collections, both in milliseconds of CPU; and how many tasks there are.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.loop_stall import longest_stall
from sparklag_schemas import load_settings
from sparklag_service.server import serve

_TICK_S: Final = 0.005


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    asyncio.run(_serve(Path(sys.argv[1])))


async def _serve(path: Path) -> None:
    watching = asyncio.create_task(_watch(path))
    try:
        await serve(load_settings(overrides={"http_port": 0}))
    finally:
        watching.cancel()


async def _watch(path: Path) -> None:
    collections = _Collections()
    gc.callbacks.append(collections)
    with path.open("a") as file:
        while True:
            async with longest_stall(_TICK_S) as stall:
                await asyncio.sleep(1)
            longest_ms = (stall.longest_s * 1e3, collections.take_longest_s() * 1e3)
            tasks = len(asyncio.all_tasks())
            file.write(f"{time.time():.3f} {longest_ms[0]:.1f} {longest_ms[1]:.1f} {tasks}\n")
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
