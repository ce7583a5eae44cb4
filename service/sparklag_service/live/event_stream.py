"""The live stream as an HTTP response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sparklag_schemas.runtime.tasks import end
from sparklag_service.live import frames
from sparklag_service.live.connections import Wire
from sparklag_service.live.hub import LiveHub
from sparklag_service.live.reader import Reader, in_pieces

_CANCEL_AGAIN_S: Final = 3.0


class EventStream(Response):
    """Server-Sent Events of one query, or of all, until the reader goes or is cut off.

    Plain ASGI: Starlette's StreamingResponse is as quick, and does not see that a reader has gone
    before there is something to write.
    """

    media_type = "text/event-stream"

    def __init__(self, hub: LiveHub, query_id: str | None, last_id: str | None) -> None:
        # A proxy must neither keep it nor hold it back.
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._query_id = query_id
        self._last_id = last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server. Raises TooManyReaders before anything is sent."""
        wire = Wire(scope)
        with self._hub.reader(wire, self._query_id, self._last_id) as (reader, opening):
            going = asyncio.create_task(_until_gone(receive, reader))
            try:
                wire.show_slowness()
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                await _write_opening(reader, opening, send)
                async for chunk in reader.chunks():
                    await _send(reader, chunk, send)
                if not wire.is_cut:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                else:
                    # The server takes it for our failure where we end before it knows.
                    await asyncio.wait({going})
            finally:
                await end(going, patience_s=_CANCEL_AGAIN_S)


async def _write_opening(reader: Reader, opening: Iterable[bytes], send: Send) -> None:
    # By itself, so that nobody holds its last chunk for as long as the stream lasts.
    for chunk in in_pieces(chain([frames.OPENING], opening)):
        if reader.ended:
            return
        await _send(reader, chunk, send)
        # uvicorn waits for nobody as long as there is room: others have their turn.
        await asyncio.sleep(0)


async def _send(reader: Reader, chunk: bytes, send: Send) -> None:
    reader.writes()
    await send({"type": "http.response.body", "body": chunk, "more_body": True})
    reader.written()


async def _until_gone(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end(at_once=False)
