"""The steps of an event loop that held it, by the CPU time of its own thread."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

LIMIT_S = 0.1 if sys.gettrace() is None else 0.2
"""Tracing, for coverage, makes every step slower."""
_REFERENCE_S = 0.0025
"""CPU time of `_reference` on the machine that the limit was chosen on."""
_Handle: Any = asyncio.Handle
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _reference() -> float:
    """CPU time of a fixed computation now: how slow the machine is."""
    began_s, total = time.thread_time(), 0
    for number in range(100_000):
        total += number
    return time.thread_time() - began_s


class _Excused(threading.local):
    s = 0.0
    """CPU time of the step that runs in this thread which does not count."""


_excused = _Excused()


def own_work(function: _Function) -> _Function:
    @wraps(function)
    def excused(*arguments: Any, **named: Any) -> Any:
        began_s, before_s = time.thread_time(), _excused.s
        try:
            return function(*arguments, **named)
        finally:
            _excused.s = before_s + time.thread_time() - began_s

    return cast(_Function, excused)


class BlockingStep(NamedTuple):
    """A callback, or a step of a task, that did not yield in time."""

    cpu_s: float
    what: str


@contextmanager
def blocking_steps(limit_s: float = LIMIT_S) -> Iterator[list[BlockingStep]]:
    """The steps, on any loop, that take more than `limit_s`, as they happen.

    What a process of tests does more than a service is not counted: a step that imports a module,
    the time of garbage collections over all that the tests have made, and `own_work`. fsspec's
    own loop, in a thread of its own, serves no one else.
    """
    steps: list[BlockingStep] = []
    run = _Handle._run

    def on_collection(phase: str, _: object) -> None:
        _excused.s += -time.thread_time() if phase == "start" else time.thread_time()

    def timed_run(handle: asyncio.Handle) -> None:
        modules, began_s = len(sys.modules), time.thread_time()
        _excused.s = 0.0
        run(handle)
        cpu_s = time.thread_time() - began_s - _excused.s
        is_ours = threading.current_thread().name != "fsspecIO"
        if cpu_s <= limit_s or len(sys.modules) != modules or not is_ours:
            return
        # A machine that is slow, or shared, takes as much longer for the same step.
        if cpu_s / max(1.0, _reference() / _REFERENCE_S) > limit_s:
            steps.append(BlockingStep(cpu_s, repr(handle)[:300]))

    _Handle._run = timed_run
    gc.callbacks.append(on_collection)
    try:
        yield steps
    finally:
        _Handle._run = run
        gc.callbacks.remove(on_collection)
