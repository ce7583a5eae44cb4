"""Python's garbage collector, for a process that holds much and makes little garbage of cycles.

A full collection looks through every object and holds the loop meanwhile: for hundreds of
milliseconds with thousands of queries, every few seconds. Here it looks through what was made since
the one before; collections are frequent, so that this is little.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Final

_CHECK_S: Final = 600.0
_GROWTH: Final = 2.0
_COLLECTIONS_PER_FULL: Final = 1
"""Of the middle generation, beyond which one is full. Python's 10 are for what is not frozen."""


class SurvivorsFrozen:
    """A callback of `gc.callbacks`: what has survived a full collection is not looked through
    again, until twice as many objects are held, cycles that became garbage since among them."""

    def __init__(self) -> None:
        gc.set_threshold(*gc.get_threshold()[:2], _COLLECTIONS_PER_FULL)
        gc.freeze()
        self._held = gc.get_freeze_count()
        self._check_due_s = time.monotonic() + _CHECK_S

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] < 2:
            return
        gc.freeze()
        # Counting takes some milliseconds.
        now_s = time.monotonic()
        if now_s < self._check_due_s:
            return
        self._check_due_s = now_s + _CHECK_S
        held = gc.get_freeze_count()
        if held > _GROWTH * self._held:
            # The next full collection looks through all of them.
            self._held = held
            gc.unfreeze()
