"""The login of the page in a browser: the form, the cookie, and pages of others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from werkzeug import Response

from sparklag_service.access.token_file import create_token, revoke_token
from tests.http_server import HttpServer
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import eventually
from tests.web.audits import axe_violations
from tests.web.pages import Pages
from tests.web.reported_query import ReportedQuery
from tests.web.service import ServiceProcess, service_process

pytestmark = [pytest.mark.kafka, pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]

EVIL = "<img src=x onerror=alert(1)>'\"/&"
FOREIGN = """
(url) => Promise.all([
    fetch(url + "/lag/QUERY", { method: "DELETE", credentials: "include" }),
    fetch(url + "/login", { method: "POST", headers: { authorization: "Bearer x" } }),
    fetch(url + "/lag", { credentials: "include", mode: "no-cors" }),
].map((response) => response.then(() => "answered", () => "refused")))
"""
POST = "(url) => { document.forms[0].action = url; document.forms[0].submit() }"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By name; and `file`, where they are."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    scopes = {"ann": ["lag"], "bob": ["lag"], "all": ["lag", "admin"], "narrow": ["metrics"]}
    created = {name: create_token(path, name, each, [], [], None) for name, each in scopes.items()}
    return {**created, "file": str(path)}


@pytest.fixture(scope="module")
def service(
    kafka: LocalKafka, second_client: SecondClient, tokens: dict[str, str]
) -> Iterator[ServiceProcess]:
    file = Path(tokens["file"])
    added = f'[http_tokens]\nfile = "{file}"\n'
    with service_process(kafka, second_client, file.parent, tokens["all"], added) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def query(service: ServiceProcess, second_client: SecondClient) -> ReportedQuery:
    query = service.query(second_client.create(f"orders-{uuid.uuid4()}"), EVIL)
    query.complete_batch(0)
    query.stop()
    await eventually(lambda: service.has_ended(query), "it has ended")
    return query


async def log_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.keyboard.press("Enter")


async def test_a_token_logs_in_until_logout(
    pages: Pages, page: Page, service: ServiceProcess, tokens: dict[str, str], query: ReportedQuery
) -> None:
    pages.errors.allow("status of 40[13]")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    await page.goto(f"{service.url}/q/{query.id}?x=1")
    await expect(page.get_by_label("Token")).to_be_focused()
    wrong = {tokens["ann"] + "x": "not valid", tokens["narrow"]: "scope lag", "ключ": "not valid"}
    wrong |= {"x" * 4083: "too long", "x" * 4082: "not valid"}
    for token, reason in wrong.items():
        await log_in(page, token)
        await expect(page.get_by_role("alert")).to_contain_text(reason)
    assert await axe_violations(page) == []

    await log_in(page, tokens["ann"])
    await expect(page.get_by_role("heading", name=EVIL)).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("Logged in as ann")).to_be_visible()
    assert await axe_violations(page) == []
    assert (page.url[-4:], await page.evaluate("document.cookie")) == ("?x=1", "")
    log = Path(tokens["file"]).with_name("service.log").read_text()
    assert not any(text in log + "".join(urls) for text in wrong | {tokens["ann"]: ""})

    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.context.cookies() == []


async def test_a_page_that_is_open_when_its_token_is_revoked_shows_the_form(
    pages: Pages, page: Page, service: ServiceProcess, tokens: dict[str, str]
) -> None:
    pages.errors.allow("status of 401")
    loads: list[str] = []
    page.on("framenavigated", lambda frame: loads.append(frame.url))
    await page.goto(service.url)
    await log_in(page, tokens["bob"])
    await expect(page.get_by_role("status").first).to_contain_text("live")
    revoke_token(Path(tokens["file"]), "bob")
    await expect(page.get_by_label("Token")).to_be_visible()
    assert len(loads) == 3

    # Where a proxy refuses the stream alone, the page does not reload without end.
    await page.route("**/stream?*", lambda route: route.fulfill(status=401))
    await log_in(page, tokens["ann"])
    await expect(page.get_by_role("status").first).to_contain_text("HTTP 401")
    assert len(loads) == 4


async def test_a_page_of_another_origin_changes_nothing_with_the_cookie(
    pages: Pages, page: Page, service: ServiceProcess, tokens: dict[str, str], query: ReportedQuery
) -> None:
    pages.errors.allow("")
    await page.goto(service.url)
    await log_in(page, tokens["all"])
    await expect(page.get_by_text("Logged in as")).to_be_visible()
    # Another port is another origin, but the same site: the browser sends the cookie.
    with HttpServer(lambda _: Response("<form method=post>", content_type="text/html")) as other:
        foreign = await page.context.new_page()
        await foreign.goto(other.url)
        outcomes = await foreign.evaluate(FOREIGN.replace("QUERY", query.id), service.url)
        assert outcomes == ["refused"] * 3
        async with foreign.expect_navigation() as navigation:
            await foreign.evaluate(POST, f"{service.url}/logout")
        assert (await navigation.value).status == 403
    await page.reload()
    await expect(page.get_by_text("Logged in as")).to_be_visible()
    assert await service.knows(query)
    delete = f"fetch('lag/{query.id}', {{ method: 'DELETE' }}).then((response) => response.status)"
    assert await page.evaluate(delete) == 204
