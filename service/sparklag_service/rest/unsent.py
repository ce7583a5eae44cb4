"""What clients have not received yet of their responses is bounded in time and in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklag_schemas.settings import LimitSettings
from sparklag_service.counters import Counters
from sparklag_service.live.reader import WIRE_STATE, Wire

_SLICE_BYTES: Final = 64 * 1024
_MB: Final = 1024 * 1024


class UnsentResponses:
    """Of all connections of a server."""

    def __init__(self, limits: LimitSettings, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._deadlines: dict[Wire, asyncio.TimerHandle] = {}
        """Of clients that do not receive as fast as is written; the slowest first. One that is cut
        off counts until its text is freed."""

    def begin_wait(self, wire: Wire) -> None:
        """It has a lot to receive, or the kernel takes no more for it."""
        if wire not in self._deadlines:
            loop = asyncio.get_running_loop()
            self._deadlines[wire] = loop.call_later(self._limits.response_s, self.cut_off, wire)
        self.make_room()

    def end_wait(self, wire: Wire) -> None:
        """Unless more is to be written: a text has one deadline."""
        if wire in self._deadlines and not wire.text and wire.is_clear:
            self._deadlines.pop(wire).cancel()

    def is_full(self) -> bool:
        """Also with those that are cut off: in the next turns of the loop they are freed."""
        return self._is_too_much(self._deadlines)

    def make_room(self) -> None:
        """Cut off the slowest, of the address that has most of them: one hostile client is not to
        harm others."""
        while self._is_too_much(open_wires := [w for w in self._deadlines if not w.is_cut]):
            of_address = Counter(wire.address for wire in open_wires)
            self.cut_off(max(open_wires, key=lambda wire: of_address[wire.address]))

    def _is_too_much(self, wires: Collection[Wire]) -> bool:
        """A text that several wait for counts once. The largest does not: each can be sent."""
        texts = {id(wire.text): len(wire.text) for wire in wires}
        sizes = [*texts.values(), *(wire.unsent_bytes for wire in wires)]
        return sum(sizes) - max(sizes, default=0) > self._limits.unsent_mb * _MB

    def cut_off(self, wire: Wire) -> None:
        """Count it, and end it now."""
        self._counters.connections_cut_off += not wire.is_cut
        wire.cut()


class SlicedResponses:
    """An ASGI application in front of `app`. It writes a slice as soon as the client took the one
    before, and ends a response when the client took it all."""

    def __init__(self, app: ASGIApp, unsent: UnsentResponses) -> None:
        self._app = app
        self._unsent = unsent
        self._admission = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire: Wire = scope["state"][WIRE_STATE]

        async def send_slices(message: Message) -> None:
            wire.text = message.get("body", b"")
            if len(wire.text) > _SLICE_BYTES:
                self._unsent.begin_wait(wire)
            try:
                for start in range(0, len(wire.text), _SLICE_BYTES):
                    if start:
                        # The loop learns that the client has left, and others have their turn.
                        await asyncio.sleep(0)
                    part = wire.text[start : start + _SLICE_BYTES]
                    await send({**message, "body": part, "more_body": True})
                if not message.get("more_body", False):
                    await send({**message, "body": b""})
            finally:
                wire.text = b""
                self._unsent.end_wait(wire)

        # One after another: each may add a large text.
        async with self._admission:
            while self._unsent.is_full():
                self._unsent.make_room()
                await asyncio.sleep(0)
        await self._app(scope, receive, send_slices)
