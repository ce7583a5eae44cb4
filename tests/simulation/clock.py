"""A virtual clock, an event loop on it, and the processes whose tasks run there.

The loop never waits: where nothing is ready, the clock jumps to the next timer. A process is what
can die or stand still; its tasks, and all that these start, are known by a context variable.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, Final
from unittest import mock

_START_S: Final = 1_790_000_000
"""When a simulation begins, epoch seconds."""
_current: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class OutOfEvents(Exception):
    """Nothing is ready and no timer is set: the simulation would wait for ever."""


class Process:
    """One that can stand still while the world goes on, or die."""

    def __init__(self, name: str, monotonic_offset_s: float = 0.0) -> None:
        """`monotonic_offset_s`: `time.monotonic()` of one process means nothing to another."""
        self.name = name
        self.monotonic_offset_s = monotonic_offset_s
        self.is_alive = True
        self.remains_still = False
        self.stood_still_s = (-1.0, -1.0)
        self.assignments = 0
        """How often it was assigned partitions."""
        self.put_off: list[asyncio.Handle] = []
        """What has become due while it is suspended."""

    def __repr__(self) -> str:
        return self.name

    def stand_still(self) -> None:
        self.remains_still = True
        self.stood_still_s = (asyncio.get_running_loop().time(), float("inf"))

    def go_on(self) -> None:
        """Run what has become due while it stood still, in order, if nothing cancels it first."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.remains_still = False
        self.stood_still_s = (self.stood_still_s[0], loop.time())
        put_off, self.put_off = self.put_off, []
        loop._ready.extend(put_off)


def current_process() -> Process | None:
    """Whose task runs now. None: the world's."""
    return _current.get()


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time passes only while it has nothing to do."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        """Since the start of the simulation."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]  # how types see it changes with Python's version
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as call_soon
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _run_once(self) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(_current)  # type: ignore[attr-defined]  # asyncio's
            if process is not None and process.remains_still:
                process.put_off.append(handle)
            else:
                handle._run()
        if not ready and not self._stopping:
            self._jump()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not timers:
            raise OutOfEvents
        when, _, handle = heappop(timers)
        self.now_s = max(self.now_s, when)
        self._ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def start(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(_current.set, process)
        task: asyncio.Task[Any] = context.run(self.create_task, coroutine)
        return task

    def call_world(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call it after that time, whatever becomes of the process that runs now."""
        self.call_at(self.now_s + delay_s, callback, *args, context=contextvars.Context())


@contextmanager
def virtual_time(seed: int) -> Iterator[VirtualLoop]:
    """A loop, and every clock and every source of randomness of this process set by it."""
    loop = VirtualLoop()
    randomness = random.Random(f"ids {seed}")

    def monotonic() -> float:
        process = _current.get()
        return loop.now_s + (0.0 if process is None else process.monotonic_offset_s)

    def wall() -> float:
        return _START_S + loop.now_s

    def wall_ns() -> int:
        return int(wall() * 1e9)

    with (
        mock.patch.object(time, "monotonic", monotonic),
        mock.patch.object(time, "perf_counter", monotonic),
        mock.patch.object(time, "time", wall),
        mock.patch.object(time, "time_ns", wall_ns),
        mock.patch("os.urandom", randomness.randbytes),
    ):
        try:
            yield loop
        finally:
            loop.close()


def epoch_ms(at_s: float) -> int:
    return int((_START_S + at_s) * 1000)
