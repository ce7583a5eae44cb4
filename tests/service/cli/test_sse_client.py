"""Server-Sent Events as they are read: over several connections, and bounded."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from werkzeug import Response

from sparklag_schemas.service_access import ServiceAccess
from sparklag_service.cli.sse_client import EventTooLarge, follow
from sparklag_service.errors import ServiceError
from tests.http_server import HttpServer

EVENTS = "text/event-stream"
MB = 1024 * 1024


@contextmanager
def following(response: Response) -> Iterator[tuple[HttpServer, Iterator[tuple[str, bytes]]]]:
    with (
        HttpServer(lambda _: response) as service,
        closing(follow(ServiceAccess(service.url), "/stream", lambda _: None)) as events,
    ):
        yield service, events


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_an_event_that_a_cut_left_unfinished_is_dropped_and_resumed_from(line_end: str) -> None:
    stream = (
        "retry: 0\n\nid: -\n\n: a comment\nid: 3:7\nevent: lag\ndata: a\n\nid: 9:9\ndata: cut\n"
    )
    body = stream.replace("\n", line_end)
    with following(Response(body, content_type=EVENTS)) as (service, events):
        assert [next(events), next(events)] == [("lag", b"a")] * 2
        last_ids = [request.headers.get("last-event-id") for request, _ in service.log]
    assert last_ids == [None, "3:7"]


@pytest.mark.parametrize("line", [b"x" * MB, b"data: x\n" * (MB // 8), b": x\n" * (MB // 4)])
def test_an_event_without_an_end_is_refused_before_it_fills_memory(line: bytes) -> None:
    endless = Response((line for _ in range(100)), content_type=EVENTS)
    with following(endless) as (_, events), pytest.raises(EventTooLarge, match="more than "):
        next(events)


def test_a_compressed_stream_is_refused_before_it_is_decompressed() -> None:
    bomb = Response(gzip.compress(b"x" * MB), content_type=EVENTS)
    bomb.headers["content-encoding"] = "gzip"
    with (
        following(bomb) as (_, events),
        pytest.raises(ServiceError, match="does not answer like a sparklag service"),
    ):
        next(events)


@pytest.mark.parametrize("hostile", ["\x01", "\xe9", "3:7 ", "a\0b", " "])
@pytest.mark.parametrize("retry", ["-1", "0x", "\u0662", "0"])
def test_a_strange_id_or_delay_does_not_keep_it_from_coming_back(hostile: str, retry: str) -> None:
    first = f"retry: 0\nid: 3:7\n\nretry: {retry}\nid: {hostile}\ndata: a\n\nretry: 0\n\n"
    with following(Response(first.encode(), content_type=EVENTS)) as (service, events):
        assert [next(events), next(events)] == [("message", b"a")] * 2
        assert service.log[1][0].headers.get("last-event-id") == "3:7"
