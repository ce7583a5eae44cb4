"""The wall clock of one process, stepped while it runs; its monotonic clock goes on as it does."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path


class SteppedClock:
    """The clock of whatever runs with `environment`: the system's, until it is stepped.

    `library` is the built stepped_clock.c. (Not libfaketime: under version 0.9.10 `time.sleep` of
    Python 3.11 hangs or fails, because it fakes sleeps on the monotonic clock too.)
    """

    def __init__(self, library: Path, folder: Path) -> None:
        path = folder / "clock"
        path.write_bytes(struct.pack("=d", 0.0))
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 8)
        self.offset_s = 0
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK_FILE": str(path)}

    def step(self, seconds: int) -> None:
        """Set it forward, or back where `seconds` are negative."""
        self.offset_s += seconds
        self._mapped[:] = struct.pack("=d", float(self.offset_s))

    def close(self) -> None:
        """Let go of the file; the processes keep what was set last."""
        self._mapped.close()
