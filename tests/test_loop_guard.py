"""The guard of the event loop sees what blocks it, and only that."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from tests.loop_guard import blocking_steps, own_work

pytestmark = pytest.mark.blocks_loop("to show that it is seen")


def _burn(cpu_s: float) -> None:
    began_s = time.thread_time()
    while time.thread_time() - began_s < cpu_s:
        pass


async def test_a_step_that_computes_for_long_is_seen() -> None:
    async def compute() -> None:
        await asyncio.sleep(0)
        _burn(0.2)

    with blocking_steps(0.03) as steps:
        await asyncio.create_task(compute())
    assert len(steps) == 1
    assert steps[0].cpu_s >= 0.2


async def test_steps_that_wait_or_yield_are_not() -> None:
    async def yielding() -> None:
        for _ in range(10):
            _burn(0.01)
            await asyncio.sleep(0)

    with blocking_steps(0.05) as steps:
        await asyncio.create_task(yielding())
        await asyncio.to_thread(_burn, 0.1)
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        await asyncio.sleep(0.01)
    assert steps == []


async def test_what_a_test_computes_by_itself_is_not_counted() -> None:
    own = own_work(_burn)

    async def both() -> None:
        own(0.4)
        gc.collect()
        _burn(0.1)

    with blocking_steps(0.01) as steps:
        await asyncio.create_task(both())
    (step,) = steps
    assert 0.1 <= step.cpu_s < 0.4
