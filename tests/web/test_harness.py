"""What the tests of the page would otherwise miss is an error."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.async_api import Page
from werkzeug import Request, Response

from sparklag_jobs.broker.child_process import free_port
from tests.http_server import HttpServer
from tests.waiting import holds
from tests.web.audits import axe_violations, lighthouse_failures
from tests.web.chromium import running_chromium
from tests.web.pages import Pages

pytestmark = [pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]

POLICY = "default-src 'none'; img-src data:; script-src 'unsafe-inline'"


def serving(body: str, policy: str) -> HttpServer:
    page = f"<!doctype html><link rel=icon href=data:,>{body}"
    headers = {"content-security-policy": policy, "content-type": "text/html; charset=utf-8"}

    def respond(request: Request) -> Response:
        return Response(page, 200 if request.path == "/" else 404, headers)

    return HttpServer(respond)


@pytest.mark.parametrize(
    ("body", "policy", "errors"),
    [
        (
            "<script>console.error('wrong'); console.warn('odd'); fetch('/');"
            "Promise.reject(new Error('late'))</script><script>eval('1')</script>"
            "<img src=/missing>",
            POLICY,
            [
                "^console: wrong",
                "^console: odd",
                "^exception: .*late",
                "^exception: .*eval",
                "policy violated: connect-src",
                "policy violated: script-src",
                "policy violated: img-src",
            ],
        ),
        (
            "<img src=/missing><img src=http://elsewhere.example/>",
            "",
            [
                "^console: .* 404 .*/missing",
                r"^request to another host: http://elsewhere\.example/",
                r"^request failed: http://elsewhere\.example/: net::ERR_NAME_NOT_RESOLVED",
            ],
        ),
    ],
    ids=["script", "requests"],
)
async def test_an_error_of_a_page_is_detected(
    pages: Pages, page: Page, body: str, policy: str, errors: list[str]
) -> None:
    def is_detected(pattern: str) -> bool:
        return any(re.search(pattern, each) for each in pages.errors.unexpected)

    with serving(body, policy) as site:
        await page.goto(site.url)
        for pattern in errors:
            await holds(partial(is_detected, pattern), f"{pattern} is among the errors")
    for pattern in errors[1:]:
        pages.errors.allow(pattern)
    assert is_detected(errors[0])
    pages.errors.allow("")


BAD = "<html><title></title><h1>Bad</h1><p style='color: #ccc'>pale<input>"
WRONG = {"html-has-lang", "document-title", "color-contrast", "label"}


async def test_axe_finds_what_is_wrong(page: Page) -> None:
    with serving(BAD, "default-src 'none'; img-src data:; style-src 'unsafe-inline'") as site:
        await page.goto(site.url)
        violated = {each.partition(":")[0] for each in await axe_violations(page)}
    assert violated >= WRONG


@pytest.mark.slow
async def test_lighthouse_finds_what_is_wrong() -> None:
    port = free_port()
    async with running_chromium(f"--remote-debugging-port={port}"):
        with serving(BAD, "style-src 'unsafe-inline'") as site:
            failures = await lighthouse_failures(port, site.url)
    assert {each.partition(":")[0] for each in failures} >= WRONG
