"""The time as messages carry it."""

from __future__ import annotations

import time


def epoch_ms() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000
