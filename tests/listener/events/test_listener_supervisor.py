"""The watch over a listener that Spark's client may forget."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from sparklag_listener.errors import NoListener
from sparklag_listener.events.listener_supervisor import ListenerSupervisor
from sparklag_listener.stats import Stats
from tests.logged import logged
from tests.waiting import eventually


class FakeListener:
    """Dropped and refused at will."""

    def __init__(self) -> None:
        self.registered = True
        self.refused = False
        self.refusals = 0
        """So many first attempts are refused."""
        self.attempts = 0
        self.answering = threading.Event()
        self.answering.set()

    def is_registered(self) -> bool:
        return self.registered

    def register(self) -> None:
        self.attempts += 1
        self.answering.wait(60)
        if self.refused or self.attempts <= self.refusals:
            raise NoListener("it does not want to")
        self.registered = True


@asynccontextmanager
async def watching(listener: FakeListener, stats: Stats) -> AsyncIterator[None]:
    task = asyncio.create_task(ListenerSupervisor(listener, stats, 0.01).run())
    try:
        yield
    finally:
        listener.answering.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_one_that_is_dropped_is_registered_again_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener, stats = FakeListener(), Stats()

    async def twice() -> bool:
        return stats.reregistered == 2

    async def once() -> bool:
        return stats.reregistered == 1

    async with watching(listener, stats):
        await asyncio.sleep(0.05)
        assert listener.attempts == 0
        listener.registered = False
        await eventually(once, "it is registered again")
        listener.registered = False
        await eventually(twice, "and again")
    assert (stats.failed, listener.attempts) == (0, 2)
    assert sum("registered again" in line for line in logged(caplog)) == 2


async def test_a_refusal_is_told_once_and_tried_again_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener, stats = FakeListener(), Stats()
    listener.registered, listener.refused = False, True

    async def tried() -> bool:
        return listener.attempts >= 4

    async with watching(listener, stats):
        await eventually(tried, "it tries on")
        assert stats.failed == 1
        assert "it does not want to" in str(stats.last_error)
        listener.refused = False

        async def registered() -> bool:
            return stats.reregistered == 1

        await eventually(registered, "it is registered")
    told = logged(caplog, logging.WARNING)
    assert len(told) == 2


async def test_one_refusal_alone_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """As of a session that is being stopped."""
    listener, stats = FakeListener(), Stats()
    listener.registered = False
    listener.refusals = 1

    async def registered() -> bool:
        return stats.reregistered == 1

    async with watching(listener, stats):
        await eventually(registered, "it is registered")
    assert (listener.attempts, stats.failed) == (2, 0)
    assert "does not take ours" not in caplog.text


async def test_a_client_that_hangs_is_asked_once_and_does_not_hold_up_the_end() -> None:
    listener, stats = FakeListener(), Stats()
    listener.registered = False
    listener.answering.clear()

    async def asked() -> bool:
        return listener.attempts == 1

    async with watching(listener, stats):
        await eventually(asked, "it is asked")
        await asyncio.sleep(0.1)
        assert listener.attempts == 1
