"""What the tests of the page stand on: the browser, what it holds against a page, the proxy."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page

from sparklag_pipeline.broker.child_process import free_port
from tests.http_server import HttpServer, QuietHandler
from tests.processes import descendants, processes_naming
from tests.waiting import holds
from tests.web.audits import axe_violations, lighthouse_accessibility
from tests.web.chromium import running_chromium
from tests.web.pages import PHONE, Pages
from tests.web.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]

POLICY = "default-src 'none'; img-src data:; script-src 'unsafe-inline'"


def serving(body: str, policy: str = POLICY) -> HttpServer:
    """A site of one page."""
    page = f"<!doctype html><link rel=icon href=data:,>{body}".encode()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name that http.server calls
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("content-security-policy", policy)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    return HttpServer(Handler)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("<script>console.error('wrong')</script>", r"^console: wrong"),
        ("<script>console.warn('odd')</script>", r"^console: odd"),
        ("<script>throw new Error('broken')</script>", r"^exception: .*broken"),
        ("<script>Promise.reject(new Error('late'))</script>", r"^exception: .*late"),
        ("<img src=/missing>", r"policy violated: img-src"),
        ("<script>eval('1')</script>", r"policy violated: script-src"),
        ("<script>fetch('/')</script>", r"policy violated: connect-src"),
    ],
)
async def test_an_error_of_a_page_is_found(pages: Pages, page: Page, body: str, error: str) -> None:
    with serving(body) as site:
        await page.goto(site.url)
        await found(pages, error)
    pages.errors.allow("")


@pytest.mark.parametrize(
    "error",
    [
        r"^console: .* 404 .*/missing",
        r"^request to another host: http://elsewhere\.example/",
        r"^request failed: http://elsewhere\.example/: net::ERR_NAME_NOT_RESOLVED",
    ],
)
async def test_a_request_that_leads_nowhere_is_found(pages: Pages, page: Page, error: str) -> None:
    with serving("<img src=/missing><img src=http://elsewhere.example/>", "") as site:
        await page.goto(site.url)
        await found(pages, error)
    pages.errors.allow("")


async def test_only_what_is_allowed_is_no_error(pages: Pages, page: Page) -> None:
    with serving("<script>console.error('first'); console.error('second')</script>") as site:
        await page.goto(site.url)
        await found(pages, "second")
    pages.errors.allow("first")
    (error,) = pages.errors.unexpected
    assert error.startswith("console: second")
    pages.errors.allow("second")


async def found(pages: Pages, error: str) -> None:
    await holds(
        lambda: any(re.search(error, each) for each in pages.errors.unexpected),
        f"{error} is among the errors",
    )


async def test_a_context_has_the_size_and_the_colours_that_are_wanted(pages: Pages) -> None:
    page = await pages.open(viewport=PHONE, color_scheme="dark")
    assert await page.evaluate("[innerWidth, innerHeight]") == [390, 844]
    assert await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


async def test_letters_from_right_to_left_have_a_font(page: Page) -> None:
    await page.set_content("<p>\N{HEBREW LETTER ALEF}\N{ARABIC LETTER BEH}</p>")
    session = await page.context.new_cdp_session(page)
    await session.send("DOM.enable")
    await session.send("CSS.enable")
    root = (await session.send("DOM.getDocument"))["root"]["nodeId"]
    wanted = {"nodeId": root, "selector": "p"}
    node = (await session.send("DOM.querySelector", wanted))["nodeId"]
    fonts = (await session.send("CSS.getPlatformFontsForNode", {"nodeId": node}))["fonts"]
    assert sum(font["glyphCount"] for font in fonts) == 2
    assert all(font["familyName"] for font in fonts)


async def test_chromium_leaves_neither_processes_nor_files_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not tmp_path: a socket of Chromium's is in it, whose path must be short.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        before = set(descendants(os.getpid()))
        with pytest.raises(KeyError):
            await fail_with_chromium(Path(folder))
        assert set(descendants(os.getpid())) <= before
        assert not processes_naming(folder)
        assert not os.listdir(folder)


async def fail_with_chromium(folder: Path) -> None:
    async with running_chromium() as browser:
        page = await browser.new_page()
        await page.goto("data:text/html,")
        assert processes_naming(str(folder))
        raise KeyError


async def test_a_proxy_that_is_cut_ends_and_refuses_connections(browser: Browser) -> None:
    with serving("here") as site:
        async with TcpProxy(int(site.port)) as proxy, httpx.AsyncClient() as client:
            assert "here" in (await client.get(proxy.url)).text
            await proxy.cut()
            with pytest.raises(httpx.TransportError):
                await client.get(proxy.url)
            await proxy.restore()
            assert "here" in (await client.get(proxy.url)).text


GOOD = "<html lang=en><title>Good</title><main><h1>Good</h1></main>"
BAD = "<html><title></title><h1>Bad</h1><p style='color: #ccc'>pale<input>"


async def test_axe_finds_what_is_wrong_and_nothing_where_all_is_right(page: Page) -> None:
    with serving(GOOD) as site:
        await page.goto(site.url)
        assert await axe_violations(page) == []
    with serving(BAD, "default-src 'none'; img-src data:; style-src 'unsafe-inline'") as site:
        await page.goto(site.url)
        violated = {each.partition(":")[0] for each in await axe_violations(page)}
    assert {"html-has-lang", "document-title", "color-contrast", "label", "region"} <= violated


async def test_lighthouse_rates_a_good_page_above_a_bad_one() -> None:
    port = free_port()
    async with running_chromium(f"--remote-debugging-port={port}"):
        with serving(GOOD) as site:
            good = await lighthouse_accessibility(port, site.url)
        with serving(BAD, "style-src 'unsafe-inline'") as site:
            bad = await lighthouse_accessibility(port, site.url)
    assert (good.score, good.failing) == (100, [])
    assert bad.score < 95
    assert {"html-has-lang", "document-title", "color-contrast", "label"} <= {
        each.partition(":")[0] for each in bad.failing
    }
