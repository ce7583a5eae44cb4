"""A task that fails is started again; a query that fails is told of, and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sparklag_service import supervision
from sparklag_service.supervision import QueryFailures, Supervisor
from tests.messages import lag_event
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


def test_a_failure_remains_until_its_stage_is_well(caplog: pytest.LogCaptureFixture) -> None:
    failures = QueryFailures()
    with caplog.at_level(logging.ERROR, logger=supervision.__name__):
        for _ in range(3):
            failures.add(lag_event(query_id="q\n1"), "evaluation", ValueError("empty"))
        failures.add(lag_event(query_id="q\n1"), "publishing", ValueError("empty"))
    assert +failures.counts == {"evaluation": 3, "publishing": 1}
    traced = [record for record in caplog.records if record.name == supervision.__name__]
    assert [record.getMessage() for record in traced] == [
        r"evaluation of query q\n1 failed: ValueError: empty",
        r"publishing of query q\n1 failed: ValueError: empty",
    ]
    assert all(record.exc_info for record in traced)
    reason = failures.reason("q\n1")
    assert "evaluation (ValueError: empty)" in str(reason)
    failures.recovered("q\n1", "evaluation")
    failures.recovered("another", "evaluation")
    assert "publishing" in (failures.reason("q\n1") or "")
    failures.recovered("q\n1", "publishing")
    assert failures.reason("q\n1") is None


def test_what_is_remembered_of_queries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_QUERIES", 10)
    failures = QueryFailures()
    for number in range(30):
        failures.add(lag_event(query_id=f"q{number}"), "tracking", ValueError("bad"))
    assert failures.reason("q0") is None
    assert failures.reason("q29") is not None
