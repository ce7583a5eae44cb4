"""An end to a call, also where the server answers no more."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

_HUNG_UP_S: Final = 1.0
"""So long a driver may take to see that it was."""


class Lines:
    """The connections of an engine, where they have to be hung up on.

    psycopg, when it is cancelled, asks the server to cancel too and waits for its answer: for ten
    seconds, and before 3.3 as long as it takes.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._connections: WeakSet[Any] = WeakSet()
        if engine.dialect.driver == "psycopg":
            event.listen(engine.sync_engine, "connect", self._add)

    def _add(self, connection: Any, _: object) -> None:
        self._connections.add(connection.driver_connection)

    def hang_up(self) -> bool:
        """Whether there was any to hang up on."""
        is_any = False
        for connection in list(self._connections):
            if not connection.closed:
                is_any = True
                # The driver's own end stays open: it is to see for itself.
                with socket.socket(fileno=os.dup(connection.fileno())) as line, suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
        return is_any


@asynccontextmanager
async def deadline(timeout_s: float, hang_up: Callable[[], bool]) -> AsyncIterator[None]:
    """Raises asyncio.TimeoutError. `asyncio.timeout` came with Python 3.11, and only cancels."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    expired = cancelled = False
    timer: asyncio.TimerHandle

    def expire() -> None:
        nonlocal expired, timer
        expired = True
        timer = loop.call_later(_HUNG_UP_S if hang_up() else 0.0, cancel)

    def cancel() -> None:
        nonlocal cancelled
        cancelled = True
        task.cancel()

    timer = loop.call_later(timeout_s, expire)
    try:
        yield
    except (Exception, asyncio.CancelledError):
        if not expired:
            raise
        if cancelled and hasattr(task, "uncancel"):
            task.uncancel()
        raise asyncio.TimeoutError from None
    finally:
        timer.cancel()
