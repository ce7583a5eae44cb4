"""The login of the page in a browser: the form, the cookie, and pages of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from werkzeug import Response

from sparklag_schemas.settings import HttpTokenSettings
from sparklag_service.access.token_file import create_token, revoke_token
from tests.http_server import HttpServer
from tests.service.live.live_server import LiveServer, live_server
from tests.web.audits import axe_violations
from tests.web.pages import Pages

pytestmark = [pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]

FOREIGN = """
(url) => Promise.all([
    fetch(url + "/lag/x", { method: "DELETE", credentials: "include" }),
    fetch(url + "/login", { method: "POST", headers: { authorization: "Bearer x" } }),
    fetch(url + "/lag", { credentials: "include", mode: "no-cors" }),
].map((response) => response.then(() => "answered", () => "refused")))
"""
POST = "(url) => { document.forms[0].action = url; document.forms[0].submit() }"
DELETE = "fetch('lag/x', { method: 'DELETE' }).then((response) => response.status)"


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    scopes = {"ann": ["lag"], "all": ["lag", "admin"], "narrow": ["metrics"]}
    path = tmp_path / "tokens.json"
    return {name: create_token(path, name, each, [], [], None) for name, each in scopes.items()}


@pytest_asyncio.fixture(loop_scope="module")
async def live(tmp_path: Path, tokens: dict[str, str]) -> AsyncIterator[LiveServer]:
    http_tokens = HttpTokenSettings(file=str(tmp_path / "tokens.json"))
    async with live_server(http_tokens=http_tokens) as live:
        yield live


async def log_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.keyboard.press("Enter")


async def test_a_token_logs_in_until_logout(
    pages: Pages, page: Page, live: LiveServer, tokens: dict[str, str]
) -> None:
    pages.errors.allow("status of (401|403|503)")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    await page.goto(f"{live.url}/?x=1")
    await expect(page.get_by_label("Token")).to_be_focused()
    wrong = {tokens["ann"] + "x": "not valid", tokens["narrow"]: "scope lag", "ключ": "not valid"}
    wrong |= {"x" * 4083: "too long", "x" * 4082: "not valid"}
    for token, reason in wrong.items():
        await log_in(page, token)
        await expect(page.get_by_role("alert")).to_contain_text(reason)
    assert await axe_violations(page) == []

    await log_in(page, tokens["ann"])
    await expect(page.get_by_text("Logged in as ann")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("Logged in as ann")).to_be_visible()
    assert await axe_violations(page) == []
    assert (page.url[-4:], await page.evaluate("document.cookie")) == ("?x=1", "")
    assert not any(token in "".join(urls) for token in [*wrong, tokens["ann"]])

    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.context.cookies() == []


async def test_a_page_that_is_open_when_its_token_is_revoked_shows_the_form(
    pages: Pages, page: Page, live: LiveServer, tokens: dict[str, str], tmp_path: Path
) -> None:
    pages.errors.allow("status of (401|503)")
    live.hub.keep_alive_s = 0.1
    loads: list[str] = []
    page.on("framenavigated", lambda frame: loads.append(frame.url))
    await page.goto(live.url)
    await log_in(page, tokens["ann"])
    await expect(page.get_by_role("status").first).to_contain_text("live")
    revoke_token(tmp_path / "tokens.json", "ann")
    await expect(page.get_by_label("Token")).to_be_visible()
    assert len(loads) == 3

    # Where a proxy refuses the stream alone, the page does not reload without end.
    await page.route("**/stream?*", lambda route: route.fulfill(status=401))
    await log_in(page, tokens["all"])
    await expect(page.get_by_role("status").first).to_contain_text("HTTP 401")
    assert len(loads) == 4


async def test_a_page_of_another_origin_changes_nothing_with_the_cookie(
    pages: Pages, page: Page, live: LiveServer, tokens: dict[str, str]
) -> None:
    pages.errors.allow("")
    await page.goto(live.url)
    await log_in(page, tokens["all"])
    await expect(page.get_by_text("Logged in as")).to_be_visible()
    # Another port is another origin, but the same site: the browser sends the cookie.
    with HttpServer(lambda _: Response("<form method=post>", content_type="text/html")) as other:
        foreign = await page.context.new_page()
        await foreign.goto(other.url)
        assert await foreign.evaluate(FOREIGN, live.url) == ["refused"] * 3
        async with foreign.expect_navigation() as navigation:
            await foreign.evaluate(POST, f"{live.url}/logout")
        assert (await navigation.value).status == 403
    await page.reload()
    await expect(page.get_by_text("Logged in as")).to_be_visible()
    # The page's own request is let in: 404, there is no such query.
    assert await page.evaluate(DELETE) == 404
