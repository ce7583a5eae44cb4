"""Waiting for a condition: with a deadline that a slow machine keeps, and never longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 90.0


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Return once `condition` holds; fail, saying what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.05)


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = DEADLINE_S
) -> None:
    """The same on a loop, whose tasks go on, for a condition that is awaited."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        await asyncio.sleep(0.05)


async def holds(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    """The same for a condition that is not awaited."""

    async def held() -> bool:
        return bool(condition())

    await eventually(held, what, timeout_s)
