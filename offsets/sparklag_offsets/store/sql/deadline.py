"""A deadline that holds also where the server no longer answers."""

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

_ABORT_S: Final = 1.0
"""The time a driver gets to notice that its connection was shut down."""


class DriverConnections:
    """The open connections of an engine, for drivers that must be aborted by their sockets.

    psycopg, when it is cancelled, asks the server to cancel too and waits for the response: for
    ten seconds, and before 3.3 for ever.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._connections: WeakSet[Any] = WeakSet()
        if engine.dialect.driver == "psycopg":
            event.listen(engine.sync_engine, "connect", self._add)

    def _add(self, connection: Any, _: object) -> None:
        self._connections.add(connection.driver_connection)

    def abort(self) -> bool:
        """Shut the sockets down; whether there were any."""
        connections = [each for each in self._connections if not each.closed]
        for connection in connections:
            # A duplicate: the driver's own descriptor stays open, and it sees the end.
            with socket.socket(fileno=os.dup(connection.fileno())) as duplicate, suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)
        return bool(connections)


@asynccontextmanager
async def deadline(timeout_s: float, abort: Callable[[], bool]) -> AsyncIterator[None]:
    """Raises asyncio.TimeoutError. `asyncio.timeout` came with Python 3.11, and only cancels."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    expired = cancelled = False
    timer: asyncio.TimerHandle

    def expire() -> None:
        nonlocal expired, timer
        expired = True
        timer = loop.call_later(_ABORT_S if abort() else 0.0, cancel)

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
