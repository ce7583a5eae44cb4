"""The live stream as an HTTP response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sparklag_schemas.runtime.tasks import TimeSlice, cancel_and_wait
from sparklag_service.live import sse
from sparklag_service.live.hub import LiveHub
from sparklag_service.live.reader import WIRE_STATE, Reader, Selection, Wire, opening_chunks


class EventStream(Response):
    """Server-Sent Events of one query, or of all, until the reader leaves or is cut off.

    Plain ASGI: Starlette's StreamingResponse is as quick, but does not see that a reader has left
    before there is something to write.
    """

    media_type = "text/event-stream"

    def __init__(self, hub: LiveHub, selection: Selection, last_id: str | None) -> None:
        # A proxy must neither cache it nor buffer it.
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._selection = selection
        self._last_id = last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server. Raises TooManyReaders before anything is sent."""
        wire = scope.get("state", {}).get(WIRE_STATE) or Wire()
        with self._hub.reader(wire, self._selection, self._last_id) as (reader, opening):
            disconnected = asyncio.create_task(_until_disconnected(receive, reader))
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                await _write_opening(self._hub, reader, opening, send)
                async for chunk in reader.chunks():
                    await _send(reader, chunk, send)
                if not wire.is_cut:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                else:
                    # The server takes an end before it has seen the disconnect for a failure.
                    await asyncio.wait({disconnected})
            finally:
                await cancel_and_wait(disconnected)


async def _write_opening(
    hub: LiveHub, reader: Reader, opening: Iterable[bytes], send: Send
) -> None:
    # A function of its own, so that its last chunk is not held for as long as the stream lasts.
    with hub.opening_written():
        time_slice = TimeSlice()
        for chunk in opening_chunks(chain([sse.OPENING], opening)):
            if reader.ended:
                return
            await _send(reader, chunk, send)
            # uvicorn waits for no reader as long as there is room: let others have the loop. Not
            # after each chunk: thousands of queries would wait for thousands of turns of it.
            await time_slice.rest(hub.openings)


async def _send(reader: Reader, chunk: bytes, send: Send) -> None:
    with reader.writing():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _until_disconnected(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end(at_once=False)
