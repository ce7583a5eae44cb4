"""uvicorn, as this service needs it."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

from sparklag_service.live.connections import Connection
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.app import create_app

_SHARE_OF_OPEN_REQUESTS: Final = 0.2
"""Of the time there is to shut down."""


class HttpServer(uvicorn.Server):
    """Answers from `pipeline`. At the end it ends the live streams, which have no end of their own:
    uvicorn would wait for them as long as it may."""

    def __init__(self, pipeline: Pipeline) -> None:
        timeout_s = pipeline.settings.shutdown_timeout_s
        super().__init__(
            uvicorn.Config(
                create_app(pipeline),
                http=Connection,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=max(1, round(_SHARE_OF_OPEN_REQUESTS * timeout_s)),
                lifespan="off",
            )
        )
        self._live = pipeline.live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        self._live.close()
        await super().shutdown(sockets)

    def let_go(self) -> None:
        """End streams and listen no more. Where serving is cancelled uvicorn does not."""
        self._live.close()
        for server in getattr(self, "servers", ()):
            server.close()
