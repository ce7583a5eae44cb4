"""uvicorn, as this service needs it."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

import uvicorn

from sparklag_service.live.connections import Connection, ConnectionLimits
from sparklag_service.rest.app import create_app
from sparklag_service.rest.backend import Backend

_BACKLOG: Final = 128
"""Connections that wait to be taken: asyncio tries as many at a time, whether there are files for
them or not."""
_LOG_INTERVAL_S: Final = 60.0
_NO_FILES: Final = "socket.accept() out of system resource"
_SHARE_OF_OPEN_REQUESTS: Final = 0.2
"""Of the time there is to shut down."""


class _OnceInAWhile(logging.Filter):
    """Of what any stranger can cause, one of each a minute: warnings, and asyncio's error for each
    connection that finds no file left."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging."""
        said = str(record.msg).partition("\n")[0]
        if record.levelno != logging.WARNING and said != _NO_FILES:
            return True
        now_s = time.monotonic()
        if now_s - self._logged_s.get(said, -_LOG_INTERVAL_S) < _LOG_INTERVAL_S:
            return False
        self._logged_s[said] = now_s
        return True


_once_in_a_while = _OnceInAWhile()


class HttpServer(uvicorn.Server):
    """Answers from `backend`. At the end it ends the live streams, which have no end of their own:
    uvicorn would wait for them as long as it may."""

    def __init__(self, backend: Backend) -> None:
        timeout_s = backend.settings.shutdown_timeout_s
        limits = ConnectionLimits(backend.settings.limits, backend.counters)
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(_once_in_a_while)
        super().__init__(
            uvicorn.Config(
                create_app(backend),
                http=type("LimitedConnection", (Connection,), {"limits": limits}),
                backlog=_BACKLOG,
                server_header=False,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=max(1, round(_SHARE_OF_OPEN_REQUESTS * timeout_s)),
                lifespan="off",
            )
        )
        self._live = backend.live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        self._live.close()
        await super().shutdown(sockets)

    def let_go(self) -> None:
        """End streams and listen no more. Where serving is cancelled uvicorn does not."""
        self._live.close()
        for server in getattr(self, "servers", ()):
            server.close()
