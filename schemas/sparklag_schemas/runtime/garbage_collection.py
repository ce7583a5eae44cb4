"""Python's garbage collector, for a process that holds much and makes little garbage of cycles.

A full collection examines every object and holds the loop meanwhile: for hundreds of milliseconds
with thousands of queries, every few seconds. Here objects that have survived a few young
collections are not examined again, so that each collection is short.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Final

_CHECK_S: Final = 600.0
_GROWTH: Final = 2.0
_YOUNG_PER_MIDDLE: Final = 2
"""Collections of the young generation for one of the middle. Python's 10 are for a process that
frees few old objects: each freed object delays a young collection by a new one."""


class SurvivorsFrozen:
    """A callback of `gc.callbacks`: survivors of a collection of the middle generation are frozen,
    until twice as many objects are held; cycles that became garbage since count too."""

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
