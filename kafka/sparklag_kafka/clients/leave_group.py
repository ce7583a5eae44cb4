"""Leaving a consumer group: orderly if it can be done in time, and in any case."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_schemas.runtime.tasks import CancelledByNobody, end, run_apart

_log = logging.getLogger(__name__)
_LEAST_S: Final = 0.2
_CANCEL_AGAIN_S: Final = 3.0


async def leave_group(
    consumer: ContractConsumer, timeout_s: float, *first: Callable[[], Awaitable[None]]
) -> None:
    """Take the steps in `first`, and leave the group of `consumer`: together in `timeout_s`, though
    each has a moment. What fails is logged."""
    until_s = time.monotonic() + timeout_s
    for step in (*first, consumer.stop):
        task = asyncio.ensure_future(run_apart(step()))
        try:
            await asyncio.wait({task}, timeout=max(_LEAST_S, until_s - time.monotonic()))
            if not task.done():
                raise asyncio.TimeoutError
            task.result()
        except (*KAFKA_FAILURES, CancelledByNobody) as error:
            _log.warning("left the group uncleanly: %s", error_text(error))
        finally:
            await end(task, patience_s=_CANCEL_AGAIN_S)
