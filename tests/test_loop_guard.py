"""The guard of the event loop sees what blocks it, and only that."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from tests.loop_guard import blocking_steps, own_work

pytestmark = pytest.mark.blocks_loop("to show that it is detected")


def _burn(cpu_s: float) -> None:
    began_s = time.thread_time()
    while time.thread_time() - began_s < cpu_s:
        pass


async def test_a_long_step_is_detected_without_what_the_test_computes() -> None:
    own = own_work(_burn)

    async def both() -> None:
        await asyncio.sleep(0)
        own(1.0)
        gc.collect()
        _burn(0.3)

    with blocking_steps(0.01) as steps:
        await asyncio.create_task(both())
    (step,) = steps
    assert 0.3 <= step.cpu_s < 0.9
