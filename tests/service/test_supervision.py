"""A task that fails is started again, and named for some time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sparklag_service import supervision
from sparklag_service.supervision import Supervisor
from tests.waiting import holds


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(supervision, "_LONGEST_PAUSE_S", 0.04)


@asynccontextmanager
async def kept(supervisor: Supervisor, run: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    task = asyncio.create_task(supervisor.keep("the task", run))
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_fails_is_started_again_and_named() -> None:
    supervisor = Supervisor()
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise ZeroDivisionError(f"run {runs}\x1b[2J")
        await asyncio.get_running_loop().create_future()

    async with kept(supervisor, run):
        await holds(lambda: runs == 4, "it runs again")
        assert +supervisor.restarts == {"the task": 3}
        assert supervisor.failing == {"the task": r"ZeroDivisionError: run 3\x1b[2J"}


async def test_a_task_that_somebody_else_cancels_is_started_again() -> None:
    supervisor = Supervisor()
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            stopped = asyncio.get_running_loop().create_future()
            stopped.cancel()
            await stopped
        await asyncio.get_running_loop().create_future()

    async with kept(supervisor, run):
        await holds(lambda: runs == 2, "it runs again")
        assert "cancelled unexpectedly" in supervisor.failing["the task"]


async def test_a_cancelled_task_ends_what_it_runs_however_long_that_cleans_up() -> None:
    steps = []

    async def run() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            steps.append("cleaning up")
            await asyncio.sleep(0.05)
            steps.append("clean")

    async with kept(Supervisor(), run):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert steps == ["cleaning up", "clean"]


async def test_a_task_that_is_well_for_long_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor()
    failures = [RuntimeError("once")]

    async def run() -> None:
        if failures:
            raise failures.pop()

    await supervisor.keep("the task", run)
    assert supervisor.failing
    monkeypatch.setattr(supervision, "_STEADY_S", -1.0)
    assert not supervisor.failing
