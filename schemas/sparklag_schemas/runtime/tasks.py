"""Tasks that live and end together. (`asyncio.TaskGroup` came with Python 3.11.)"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

_log = logging.getLogger(__name__)


_Item = TypeVar("_Item")


async def run_in_layers(*layers: Iterable[Coroutine[Any, Any, None]], patience_s: float) -> None:
    """Run until one ends; then end the others, and raise what the first one raised.

    The tasks of a layer are ended together, once those of the layers after it have ended.
    `patience_s`: see `end`.
    """
    started = [[asyncio.ensure_future(coroutine) for coroutine in layer] for layer in layers]
    tasks = [task for layer in started for task in layer]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for layer in reversed(started):
            await end(*layer, patience_s=patience_s)
    for task in done:
        task.result()


async def run_together(*coroutines: Coroutine[Any, Any, None], patience_s: float) -> None:
    """The same, with one layer; returns at once where there are none."""
    if coroutines:
        await run_in_layers(coroutines, patience_s=patience_s)


class CancelledByNobody(Exception):
    """What was awaited was cancelled, and not by whoever awaited it."""


async def run_apart(awaitable: Awaitable[None]) -> None:
    """Run it in a task of its own, so that CancelledError means only that this was cancelled.

    aiokafka's `stop` raises the CancelledError of a task that it has cancelled itself: taken for a
    cancellation from outside it would end whoever awaits it. Raises CancelledByNobody for that.
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
        await end(task, patience_s=0)
        raise asyncio.CancelledError
    if task.cancelled():
        raise CancelledByNobody("it was cancelled, and nobody has asked for that")
    task.result()


async def end(*tasks: asyncio.Task[Any], patience_s: float) -> None:
    """Cancel and wait. What has not ended after `patience_s` is cancelled again.

    Before Python 3.12 `asyncio.wait_for`, which aiokafka is full of, swallows a cancellation that
    comes when what it waits for is just done. `patience_s` is longer than cleaning up takes.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=patience_s)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def keep_on(step: Callable[[], Awaitable[None]], what: str, pause_s: float) -> None:
    """Take the step again and again until cancelled. Where it fails that is logged as `what`'s, and
    the next one comes after `pause_s`."""
    while True:
        try:
            await step()
        except Exception:
            _log.exception("%s: going on in a moment", what)
            await asyncio.sleep(pause_s)


async def with_pauses(items: Iterable[_Item], every: int) -> AsyncIterator[_Item]:
    """The same, letting others have the loop after each `every` of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % every == 0:
            await asyncio.sleep(0)


async def until_set(event: asyncio.Event, timeout_s: float) -> None:
    """Return when `event` is set, or at the latest after that time, with `event` set."""
    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_s), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
