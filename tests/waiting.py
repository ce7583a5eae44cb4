"""Waiting for a condition: with a deadline that a slow machine keeps, and never longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from sparklag_jobs.broker.child_process import ChildProcess

DEADLINE_S = 180.0


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Return once `condition` holds; fail, saying what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.05)


def wait_until_up(
    processes: Sequence[ChildProcess], answers: Callable[[], bool], timeout_s: float
) -> None:
    """Return once `answers` holds; fail with the log of a process that ended or is late."""
    deadline = time.monotonic() + timeout_s
    while True:
        is_up = answers()
        for process in processes:
            # What answers in its place may be another.
            assert process.is_alive(), process.describe_end()
            assert is_up or time.monotonic() < deadline, process.log_end()
        if is_up:
            return
        time.sleep(0.1)


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = DEADLINE_S
) -> None:
    """The same on a loop, whose tasks go on, for a condition that is awaited."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        await asyncio.sleep(0.05)


async def holds(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    async def held() -> bool:
        return bool(condition())

    await eventually(held, what, timeout_s)


async def nothing_is_left(
    reasons: Callable[[], Mapping[str, str]], what: str, timeout_s: float = DEADLINE_S
) -> None:
    """The same until `reasons`, by what they keep, is empty; fail with those that are left."""
    deadline = time.monotonic() + timeout_s
    while left := reasons():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}: {left}"
        await asyncio.sleep(0.05)
