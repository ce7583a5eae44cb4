"""Which steps of an event loop held it, by the CPU time of its own thread: what other processes do
on a busy machine does not count."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

LIMIT_S = 0.1 if sys.gettrace() is None else 0.2
"""Tracing, for coverage, makes every step slower."""
_Handle: Any = asyncio.Handle


class BlockingStep(NamedTuple):
    """A callback, or a step of a task, that did not yield in time."""

    cpu_s: float
    what: str


@contextmanager
def blocking_steps(limit_s: float = LIMIT_S) -> Iterator[list[BlockingStep]]:
    """The steps, on any loop, that take more than `limit_s`, as they are found.

    What a process of tests does more than a service is not counted: a step that imports a module,
    and the time of garbage collections over all that the tests have made. fsspec's own loop, in a
    thread of its own, serves no one else.
    """
    steps: list[BlockingStep] = []
    run = _Handle._run
    collected = threading.local()

    def on_collection(phase: str, _: object) -> None:
        sign = -1 if phase == "start" else 1
        collected.s = getattr(collected, "s", 0.0) + sign * time.thread_time()

    def timed_run(handle: asyncio.Handle) -> None:
        modules, began_s = len(sys.modules), time.thread_time()
        collected.s = 0.0
        run(handle)
        cpu_s = time.thread_time() - began_s - collected.s
        is_ours = threading.current_thread().name != "fsspecIO"
        if cpu_s > limit_s and len(sys.modules) == modules and is_ours:
            steps.append(BlockingStep(cpu_s, repr(handle)[:300]))

    _Handle._run = timed_run
    gc.callbacks.append(on_collection)
    try:
        yield steps
    finally:
        _Handle._run = run
        gc.callbacks.remove(on_collection)
