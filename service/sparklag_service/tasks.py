"""Tasks that live and end together. (`asyncio.TaskGroup` came with Python 3.11.)"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_together(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run until one ends; cancel the others, wait for them, raise what the first one raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
