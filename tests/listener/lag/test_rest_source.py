"""Requests to a service that is away, slow or something else: one line, in bounded time."""

from __future__ import annotations

import socket
from itertools import repeat

import msgspec
import pytest
from werkzeug import Request, Response

from sparklag_listener.errors import AmbiguousQueryName, LagUnavailable, QueryNotFound
from sparklag_listener.lag.rest_source import RestSource
from sparklag_schemas import encode
from sparklag_schemas.service_access import ServiceAccess
from tests.http_server import HttpServer, raw_path
from tests.messages import QUERY_ID, lag_event
from tests.waiting import DEADLINE_S


def problem(kind: str, detail: str, **fields: object) -> bytes:
    document = {"type": f"tag:sparklag,2026:problem/{kind}", "detail": detail, **fields}
    return msgspec.json.encode(document)


def test_a_service_under_a_path_gets_names_of_any_characters() -> None:
    with HttpServer(lambda _: Response(encode(lag_event()))) as server:
        source = RestSource(ServiceAccess(f"{server.url}/team/lag/"))
        assert source.find("a/b ?\n", DEADLINE_S) == lag_event()
    ((request, _),) = server.log
    assert raw_path(request) == "/team/lag/lag/a%2Fb%20%3F%0A"


def test_queries_without_a_lag_yet_are_left_out_of_many() -> None:
    def respond(request: Request) -> Response:
        if request.path == f"/lag/{QUERY_ID}":
            return Response(encode(lag_event()))
        return Response(problem("unknown-query", "none", alike=["knew"]), 404)

    with HttpServer(respond) as server:
        source = RestSource(ServiceAccess(server.url))
        assert source.newest(["new", QUERY_ID], DEADLINE_S) == [lag_event()]
        with pytest.raises(QueryNotFound, match=r"no query has the name or id 'new'.*alike: knew$"):
            source.find("new", DEADLINE_S)


def test_an_ambiguous_name_lists_the_ids() -> None:
    detail = "2 live queries have the name 'orders'"
    body = problem("ambiguous-query-name", detail, query_ids=["a", "b"])
    with HttpServer(lambda _: Response(body, 409)) as server:
        with pytest.raises(AmbiguousQueryName, match=r"have the name 'orders': a, b$"):
            RestSource(ServiceAccess(server.url)).find("orders", DEADLINE_S)


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
def test_an_invalid_response_names_the_service(status: int, body: bytes, message: str) -> None:
    with HttpServer(lambda _: Response(body, status)) as server:
        with pytest.raises(LagUnavailable, match=message) as refused:
            RestSource(ServiceAccess(server.url)).find("orders", DEADLINE_S)
    assert server.url in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_service_that_reports_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(LagUnavailable, match=r"does not answer|did not answer within 0\.5 s"):
            RestSource(ServiceAccess(url)).find("orders", 0.5)


def test_a_service_that_sends_without_end_is_not_read_without_end() -> None:
    with HttpServer(lambda _: Response(repeat(b"x" * 0x10000))) as server:
        with pytest.raises(LagUnavailable, match="sends too much, or too slowly"):
            RestSource(ServiceAccess(server.url)).find("orders", DEADLINE_S)
