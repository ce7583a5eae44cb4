"""Tasks end together, in order, even if one of them swallows a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from sparklag_schemas.runtime.tasks import cancel_and_wait, run_in_layers, run_together


async def test_the_others_end_when_one_does_the_last_layer_first() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def finish() -> None:
        await asyncio.sleep(0)

    await run_in_layers([wait("first"), finish()], [], [wait("last")], cancel_again_s=10)
    assert ended == ["last", "first"]


async def test_the_error_of_the_first_task_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        await run_together(asyncio.sleep(60), fail())


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    received = 0

    async def stubborn() -> None:
        nonlocal received
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                received += 1
                if received > 1:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await cancel_and_wait(task, cancel_again_s=0.01)
    assert received == 2
    assert task.cancelled()


async def test_a_task_that_has_failed_already_may_be_cancelled() -> None:
    async def fail() -> None:
        raise ValueError("why")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await cancel_and_wait(task, cancel_again_s=10)
    assert task.done()
