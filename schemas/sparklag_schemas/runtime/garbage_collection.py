"""Python's garbage collector, for a process with many live objects and few garbage cycles.

A full collection examines every object and blocks the loop: with thousands of queries for hundreds
of milliseconds, every few seconds. Here objects that have survived a few young collections are not
examined again, so that each collection is short.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Final

_CHECK_S: Final = 600.0
_GROWTH: Final = 2.0
_YOUNG_PER_MIDDLE: Final = 2
"""Young collections for each collection of the middle generation. Python's default of 10 suits a
process that frees few old objects: each freed object delays the next young collection."""


class SurvivorsFrozen:
    """A callback for `gc.callbacks`: freezes the survivors of each middle collection. Once their
    number has doubled, one full collection follows, to free garbage cycles."""

    def __init__(self) -> None:
        self._full_due = False
        gc.set_threshold(gc.get_threshold()[0], _YOUNG_PER_MIDDLE)
        gc.freeze()
        self._held = gc.get_freeze_count()
        self._check_due_s = time.monotonic() + _CHECK_S

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] < (2 if self._full_due else 1):
            return
        self._full_due = False
        gc.freeze()
        # Counting takes some milliseconds.
        now_s = time.monotonic()
        if now_s < self._check_due_s:
            return
        self._check_due_s = now_s + _CHECK_S
        held = gc.get_freeze_count()
        if held > _GROWTH * self._held:
            self._held, self._full_due = held, True
            gc.unfreeze()
