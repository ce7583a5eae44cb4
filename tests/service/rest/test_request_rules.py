"""The rules of every request: its host, its size, and the headers for browsers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest
from starlette.requests import Request

from sparklag_schemas import Settings
from sparklag_service.rest.request_rules import is_local
from tests.service.pipelines import complete_pipeline_of
from tests.service.rest_client import rest_client

PATHS = ["/", "/lag", "/lag/nothing", "/stream", "/health/live", "/metrics", "/docs", "/none"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8085", 200),
        ("127.0.0.1", 200),
        ("[::1]:8085", 200),
        ("10.1.2.3:8085", 200),
        ("sparklag", 200),
        ("sparklag.team.svc", 200),
        ("lag.example.com", 200),
        ("a.lag.example.com:443", 421),
        ("LAG.example.com.", 200),
        ("east.lag.example.org", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost.attacker.example", 421),
    ],
)
async def test_a_host_name_that_is_not_ours_reaches_nothing(host: str, status: int) -> None:
    names = ["lag.example.com", "*.lag.example.org"]
    async with rest_client(complete_pipeline_of(Settings(http_hosts=names))) as http:
        answer = await http.get("/health/live", headers={"host": host})
    assert answer.status_code == status
    if status == 421:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"].endswith("/unknown-host")
        assert "example" not in answer.text


@pytest.mark.parametrize("path", PATHS)
async def test_headers_forbid_guessing_framing_and_loading(
    http: httpx.AsyncClient, path: str
) -> None:
    answer = await http.head(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    # What fastapi-offline has for /docs is inline.
    assert ("unsafe-inline" in policy) == (path == "/docs")


@pytest.mark.parametrize("path", PATHS)
async def test_head_is_get_without_its_body(http: httpx.AsyncClient, path: str) -> None:
    head = await http.head(path)
    assert head.content == b""
    if path != "/stream":
        get = await http.get(path)
        assert head.status_code == get.status_code
        assert head.headers["content-type"] == get.headers["content-type"]


async def test_a_path_with_a_slash_is_not_redirected(http: httpx.AsyncClient) -> None:
    for path in ("/lag/orders/stream/", "/metrics/", "//attacker.example/lag"):
        assert "location" not in (await http.get(path)).headers


def test_the_client_of_a_connection_that_was_reset_is_not_on_this_machine() -> None:
    assert not is_local(Request({"type": "http", "headers": [], "client": None}))


async def test_a_body_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.request("GET", "/lag", content=b"x" * 100_000)
    assert answer.status_code == 413
    wrong = await http.get("/lag", headers={"content-length": "-1"})
    assert wrong.status_code == 413
    chunked = await http.request("GET", "/lag", content=chunks())
    assert chunked.status_code == 413


async def chunks() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.mark.parametrize(
    "path", ["/lag/a%00b", "/offsets/%00", "/lag/a%00b/stream", "/lag?topic=a%00", "/%00"]
)
async def test_a_nul_in_a_name_is_an_invalid_parameter(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["type"]) == (
        422,
        "tag:sparklag,2026:problem/invalid-parameter",
    )


@pytest.mark.parametrize("name", ["\x1b[2J", "\u202ex", "a/b", "%", "x" * 5_000, "\ud7ff"])
async def test_a_hostile_name_is_an_unknown_one(http: httpx.AsyncClient, name: str) -> None:
    answer = await http.get(f"/lag/{quote(name, safe='')}")
    assert answer.status_code == 404
