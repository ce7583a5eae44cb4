"""Tasks that end together, and the signals that end a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar


def ending_signals(*from_terminal: signal.Signals) -> list[signal.Signals]:
    """SIGTERM, and the signals of `from_terminal` that this process did not inherit as ignored:
    `nohup` ignores SIGHUP, a shell without job control SIGINT in the background."""
    heeded = [each for each in from_terminal if signal.getsignal(each) is not signal.SIG_IGN]
    return [signal.SIGTERM, *heeded]


def call_on_signals(callback: Callable[[int], object]) -> None:
    """Call `callback` with the signal's number in the running loop, on SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for each in ending_signals(signal.SIGINT):
        try:
            loop.add_signal_handler(each, callback, each)
        except NotImplementedError:  # on Windows
            signal.signal(each, lambda number, _: loop.call_soon_threadsafe(callback, number))


_log = logging.getLogger("sparklag.schemas")
_SLICE_S: Final = 0.005
"""The time for which one task may block the loop."""
_CANCEL_AGAIN_S: Final = 3.0
"""Longer than the clean-up of a cancelled task takes."""
_Item = TypeVar("_Item")


async def run_in_layers(
    *layers: Iterable[Coroutine[Any, Any, None]], cancel_again_s: float = _CANCEL_AGAIN_S
) -> None:
    """Run until one coroutine ends; then cancel the others, and raise the error of that one.

    The tasks of a layer are cancelled together, once those of the layers after it have ended.
    `cancel_again_s`: see `cancel_and_wait`.
    """
    started = [[asyncio.ensure_future(coroutine) for coroutine in layer] for layer in layers]
    tasks = [task for layer in started for task in layer]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for layer in reversed(started):
            await cancel_and_wait(*layer, cancel_again_s=cancel_again_s)
    for task in done:
        task.result()


async def run_together(*coroutines: Coroutine[Any, Any, None]) -> None:
    """`run_in_layers` with one layer; returns at once where that is empty."""
    if coroutines:
        await run_in_layers(coroutines)


class UnexpectedCancellation(Exception):
    """An awaited task was cancelled, but not by the code that awaits it."""


async def run_in_task(awaitable: Awaitable[None]) -> None:
    """Await in a task of its own, so that CancelledError means only that the caller was cancelled.

    aiokafka's `stop` raises the CancelledError of a task that it has cancelled itself, which would
    end the caller like a real cancellation. Raises UnexpectedCancellation instead.
    """
    task = asyncio.ensure_future(awaitable)
    was_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
            task.cancel()
    if was_cancelled:
        await cancel_and_wait(task)
        raise asyncio.CancelledError
    if task.cancelled():
        raise UnexpectedCancellation("it was cancelled unexpectedly")
    task.result()


async def cancel_and_wait(
    *tasks: asyncio.Task[Any], cancel_again_s: float = _CANCEL_AGAIN_S
) -> None:
    """Cancel tasks and wait for their end. One that has not ended after `cancel_again_s` is
    cancelled again.

    Before Python 3.12 `asyncio.wait_for`, which aiokafka uses everywhere, swallows a cancellation
    that arrives just as its awaitable completes.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=cancel_again_s)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def repeat(step: Callable[[], Awaitable[None]], what: str, pause_s: float) -> None:
    """Await the step again and again until cancelled. A failure is logged with the name `what`, and
    the next step follows after `pause_s`."""
    while True:
        try:
            await step()
        except Exception:
            _log.exception("%s failed; it is tried again in %.1f s", what, pause_s)
            await asyncio.sleep(pause_s)


async def with_pauses(items: Iterable[_Item], every: int) -> AsyncIterator[_Item]:
    """The items, with a pause for the rest of the loop after each `every` of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % every == 0:
            await asyncio.sleep(0)


class TimeSlice:
    """The time for which a task has blocked the loop."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    async def rest(self, sharing: int = 1) -> None:
        """Yield to the loop, if this task has blocked it for its part of a slice that `sharing`
        tasks share."""
        if time.perf_counter() - self._began_s > _SLICE_S / sharing:
            await asyncio.sleep(0)
            self._began_s = time.perf_counter()

    async def over(self, items: Iterable[_Item]) -> AsyncIterator[_Item]:
        """The items, with rests between them."""
        for item in items:
            yield item
            await self.rest()


async def until_set(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until `event` is set; sets it after `timeout_s`."""
    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_s), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
