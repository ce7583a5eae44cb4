"""A client of the live stream: Server-Sent Events, over any number of connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

import httpx
from httpx_sse import EventSource

from sparklag_schemas import SparklagError
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.service_access import ServiceAccess
from sparklag_service.cli.requests import TIMEOUT_S, not_sparklag, options, read, unreachable
from sparklag_service.errors import ServiceError

_MEDIA_TYPE: Final = "text/event-stream"
_MAX_EVENT_BYTES: Final = MAX_MESSAGE_BYTES + 128 * 1024
"""The limit of a lag event with an id."""
_TIMEOUT: Final = httpx.Timeout(TIMEOUT_S, read=60.0)
"""The service writes a comment after 15 s without an event."""
_RETRY_MS: Final = 2_000
_MAX_RETRY_MS: Final = 30_000


class EventTooLarge(SparklagError):
    """An event is larger than the limit."""


class _BoundedStream(httpx.SyncByteStream):
    """A body that ends with EventTooLarge if an event exceeds the limit."""

    def __init__(self, body: httpx.SyncByteStream) -> None:
        self._body = body
        self.unfinished_bytes = 0
        """Bytes since the last whole event; the reader resets the count."""

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._body:
            self.unfinished_bytes += len(chunk)
            if self.unfinished_bytes > _MAX_EVENT_BYTES:
                raise EventTooLarge(
                    f"an event of the stream has more than {_MAX_EVENT_BYTES:,} bytes"
                )
            yield chunk

    def close(self) -> None:
        self._body.close()


def follow(
    service: ServiceAccess, path: str, report: Callable[[str], None]
) -> Generator[tuple[str, bytes], None, None]:
    """Yields kind and data of each event of a live stream, endlessly. After a disconnect the stream
    resumes after the last event. `report` receives one line for each change of the connection.

    Raises ServiceError if the first connection fails, and EventTooLarge.
    """
    shown = service.shown
    last_id, retry_ms, was_connected, failure = "", _RETRY_MS, False, ""
    while True:
        try:
            with _connect(service, path, last_id) as (response, body):
                if failure:
                    report(f"reconnected to {shown}")
                elif not was_connected:
                    report(f"waiting for lag events from {shown}")
                was_connected, failure = True, ""
                for event in EventSource(response).iter_sse():
                    body.unfinished_bytes = 0
                    if event.id.isascii() and event.id.isprintable():  # as a header takes it
                        last_id = event.id.strip() or last_id
                    if event.retry is not None:
                        retry_ms = min(max(event.retry, 0), _MAX_RETRY_MS)
                    if event.data:
                        yield event.event, event.data.encode()
            reason = f"the service at {shown} ended the stream"
        except httpx.HTTPError as error:
            if not was_connected:
                raise unreachable(service, error) from error
            reason = f"no connection to {shown} ({error})"
        except ServiceError as error:
            if not was_connected:
                raise
            reason = str(error)
        if reason != failure:
            report(f"{reason}: connecting again")
            failure = reason
        time.sleep(retry_ms / 1000)


@contextmanager
def _connect(
    service: ServiceAccess, path: str, last_id: str
) -> Iterator[tuple[httpx.Response, _BoundedStream]]:
    request_options = options(service) | {"timeout": _TIMEOUT}
    headers = request_options["headers"]
    headers["accept"] = _MEDIA_TYPE
    if last_id:
        headers["last-event-id"] = last_id
    with httpx.stream("GET", service.url + path, **request_options) as response:
        if not response.is_success:
            read(response, service)
        media_type = response.headers.get("content-type", "").partition(";")[0]
        if media_type != _MEDIA_TYPE or "content-encoding" in response.headers:
            raise not_sparklag(service.url)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = body = _BoundedStream(response.stream)
        response.encoding = "utf-8"
        yield response, body
