"""A client of Server-Sent Events that reconnects.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import httpx

from sparklag_schemas import SparklagError
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.redaction import shown_url
from sparklag_service.cli.requests import (
    TIMEOUT_S,
    base_url,
    not_sparklag,
    require_success,
    unreachable,
)
from sparklag_service.errors import ServiceError

_MEDIA_TYPE: Final = "text/event-stream"
_MAX_EVENT_BYTES: Final = MAX_MESSAGE_BYTES + 128 * 1024
"""A lag event, and an id."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_TIMEOUT: Final = httpx.Timeout(TIMEOUT_S, read=60.0)
"""The service writes a comment every 15 s where there is no event."""
_RETRY_S: Final = 2.0
_MAX_RETRY_S: Final = 30.0


class ServerSentEvent(NamedTuple):
    """An event; `data` is not decoded."""

    kind: str
    data: bytes


class EventTooLarge(SparklagError):
    """An event has more bytes than are read."""


class EventDecoder:
    """Bytes of a stream to its events. Bounded in memory; no I/O."""

    def __init__(self, max_bytes: int = _MAX_EVENT_BYTES) -> None:
        self.last_id: str | None = None
        """Of the last whole event."""
        self.retry_s = _RETRY_S
        """How long to wait before a new connection."""
        self._max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Begin a new connection: an event that is not whole is dropped."""
        self._line = bytearray()
        self._after_cr = False
        self._kind = ""
        self._data = bytearray()
        self._id = self.last_id

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that end in `chunk`. Raises EventTooLarge."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        *ends, begin = _LINE_END.split(chunk)
        for end in ends:
            self._extend(end)
            line = bytes(self._line)
            self._line.clear()
            if line:
                self._take(line)
                continue
            self.last_id = self._id
            kind, data = self._kind or "message", bytes(self._data[:-1])
            has_data = bool(self._data)
            self._kind = ""
            self._data.clear()
            if has_data:
                yield ServerSentEvent(kind, data)
        self._extend(begin)

    def _extend(self, part: bytes) -> None:
        self._line += part
        if len(self._line) + len(self._data) > self._max_bytes:
            raise EventTooLarge(f"an event of the stream has more than {self._max_bytes:,} bytes")

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value + b"\n"
        elif name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"id" and value.isascii() and b"\0" not in value:
            self._id = value.decode()
        elif name == b"retry" and value.isdigit():
            self.retry_s = min(int(value[:9]) / 1000, _MAX_RETRY_S)


def follow(
    url: str, path: str, report: Callable[[str], None]
) -> Generator[ServerSentEvent, None, None]:
    """The events of a live stream, without an end. After a cut it goes on after the last event that
    was read. `report` takes a line on what happens to the connection.

    Raises ServiceError where the first connection fails, EventTooLarge.
    """
    address, shown = base_url(url) + path, shown_url(url)
    decoder = EventDecoder()
    was_connected, failure = False, ""
    while True:
        try:
            with _connect(address, url, decoder.last_id) as response:
                if failure:
                    report(f"reconnected to {shown}")
                    failure = ""
                decoder.reset()
                for chunk in response.iter_raw():
                    events = list(decoder.feed(chunk))
                    if not was_connected and not events:
                        report(f"waiting for lag events from {shown}")
                    was_connected = True
                    yield from events
            reason = f"the service at {shown} ended the stream"
        except httpx.HTTPError as error:
            if not was_connected:
                raise unreachable(url, error) from error
            reason = f"no connection to {shown} ({error})"
        except ServiceError as error:
            if not was_connected:
                raise
            reason = str(error)
        if reason != failure:
            report(f"{reason}: connecting again")
            failure = reason
        time.sleep(decoder.retry_s)


@contextmanager
def _connect(address: str, url: str, last_id: str | None) -> Iterator[httpx.Response]:
    # What is compressed has no bound before it is decompressed.
    headers = {"accept": _MEDIA_TYPE, "accept-encoding": "identity"}
    if last_id is not None:
        headers["last-event-id"] = last_id
    with httpx.stream("GET", address, headers=headers, timeout=_TIMEOUT) as response:
        if not response.is_success:
            response.read()
        require_success(response, url)
        if response.headers.get("content-type", "").partition(";")[0] != _MEDIA_TYPE:
            raise not_sparklag(url)
        yield response
