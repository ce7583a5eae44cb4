"""Requests to a service that is away, slow or something else: one line, in bounded time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import msgspec
import pytest

from sparklag_listener.errors import AmbiguousQueryName, LagUnavailable, QueryNotFound
from sparklag_listener.lag.rest_source import RestSource
from sparklag_pipeline.broker.child_process import free_port
from sparklag_schemas import encode
from tests.http_server import HttpServer, QuietHandler
from tests.messages import QUERY_ID, lag_event
from tests.waiting import DEADLINE_S

Respond = Callable[[QuietHandler], None]


def serving(respond: Respond) -> HttpServer:
    """It answers each GET by `respond`."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802 - the server's name
            respond(self)

    return HttpServer(Handler)


def problem(kind: str, detail: str, **fields: object) -> bytes:
    document = {"type": f"tag:sparklag,2026:problem/{kind}", "detail": detail, **fields}
    return msgspec.json.encode(document)


def test_a_service_under_a_path_is_requested_there_by_names_of_any_characters() -> None:
    paths = []

    def respond(request: QuietHandler) -> None:
        paths.append(request.path)
        request.answer(200, "application/json", encode(lag_event()))

    with serving(respond) as server:
        source = RestSource(f"{server.url}/team/lag/")
        assert source.find("a/b ?\n", DEADLINE_S) == lag_event()
    assert paths == ["/team/lag/lag/a%2Fb%20%3F%0A"]


def test_queries_without_a_lag_yet_are_left_out_of_many() -> None:
    def respond(request: QuietHandler) -> None:
        if request.path == f"/lag/{QUERY_ID}":
            request.answer(200, "application/json", encode(lag_event()))
        else:
            request.answer(404, "application/problem+json", problem("unknown-query", "none"))

    with serving(respond) as server:
        source = RestSource(server.url)
        assert source.newest(["new", QUERY_ID], DEADLINE_S) == [lag_event()]
        with pytest.raises(QueryNotFound, match="no query has the name or id 'new'"):
            source.find("new", DEADLINE_S)


def test_an_ambiguous_name_lists_the_ids() -> None:
    detail = "2 live queries have the name 'orders'"
    body = problem("ambiguous-query-name", detail, query_ids=["a", "b"])
    with serving(lambda request: request.answer(409, "", body)) as server:
        with pytest.raises(AmbiguousQueryName, match=r"have the name 'orders': a, b$"):
            RestSource(server.url).find("orders", DEADLINE_S)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>", "sends no lag event"),
        (404, b"<html>", "answers with status 404: is this a sparklag service"),
        (404, problem("not-found", "/lag/orders"), "/lag/orders"),
        (302, b"", "answers with status 302"),
        (503, problem("kafka-away", "a\x1b[31m\nb"), r"a\\x1b\[31m\\nb"),
    ],
)
def test_what_is_no_lag_is_one_line_that_names_the_service(
    status: int, body: bytes, message: str
) -> None:
    with serving(lambda request: request.answer(status, "text/html", body)) as server:
        with pytest.raises(LagUnavailable, match=message) as refused:
            RestSource(server.url).find("orders", DEADLINE_S)
    assert server.url in str(refused.value)
    assert str(refused.value).isprintable()


def test_no_service_there_is_said_with_its_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(LagUnavailable, match=f"{url} does not answer: .*refused"):
        RestSource(url).find("orders", DEADLINE_S)


def test_a_service_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(LagUnavailable, match=r"does not answer|did not answer within 0\.5 s"):
            RestSource(url).find("orders", 0.5)


def test_a_service_that_sends_without_end_is_not_read_without_end() -> None:
    ended = threading.Event()

    def respond(request: QuietHandler) -> None:
        request.send_response(200)
        request.send_header("transfer-encoding", "chunked")
        request.end_headers()
        try:
            while not ended.wait(0):
                request.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except OSError:
            request.close_connection = True

    with serving(respond) as server:
        with pytest.raises(LagUnavailable, match="sends too much, or too slowly"):
            RestSource(server.url).find("orders", DEADLINE_S)
        ended.set()
