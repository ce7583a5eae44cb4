"""The page of all queries as a reader uses it: with a keyboard, on a phone, from a shared link."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from sparklag_jobs.broker.child_process import free_port
from sparklag_schemas.text.printable import printable
from tests.second_client import SecondClient
from tests.service.test_hostile_names import HOSTILE
from tests.waiting import eventually
from tests.web.audits import axe_violations, lighthouse_failures
from tests.web.chromium import running_chromium
from tests.web.fleet_page import FleetPage
from tests.web.pages import PHONE, Pages
from tests.web.service import ServiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]

QUERIES = 40
LOOKS = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": PHONE},
    "dark phone": {"viewport": PHONE, "color_scheme": "dark"},
}
_WIDER_THAN_THE_PAGE = """() => {
    const width = document.documentElement.scrollWidth;
    if (width <= innerWidth) return [];
    const wide = [...document.body.querySelectorAll("*")]
        .filter((element) => element.getBoundingClientRect().right > innerWidth)
        .map((element) => element.outerHTML.slice(0, 200));
    return [`${width} px`, ...wide];
}"""


@pytest.fixture(scope="module")
def topics(second_client: SecondClient, service: ServiceProcess) -> list[str]:
    """Query N of the first is N behind. Of two that have read the second, one failed."""
    unique = service.port
    many, few = f"many-{unique}", f"few-{unique}"
    for topic in (many, few):
        second_client.create(topic)
        second_client.produce(topic, [b"x"] * QUERIES)
    for number in range(QUERIES):
        service.query(many, f"query-{number:02}").complete_batch(QUERIES - number)
    for name in ("all-done", "broken"):
        query = service.query(few, name)
        query.complete_batch(QUERIES)
        query.stop(exception="out of memory" if name == "broken" else None)
    return [many, few]


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(page: Page, service: ServiceProcess, topics: list[str]) -> FleetPage:
    return FleetPage(page, service.url)


async def test_a_link_keeps_filter_and_order(
    fleet: FleetPage, pages: Pages, service: ServiceProcess, topics: list[str]
) -> None:
    many, _ = topics
    await fleet.open()
    await fleet.search.fill("query-1")
    await fleet.page.get_by_role("combobox", name="Topic").select_option(many)
    await (
        fleet.page.get_by_role("columnheader", name="Lag", exact=True).get_by_role("button").click()
    )
    shown = [f"query-{number}" for number in range(19, 9, -1)]
    await expect(fleet.names).to_have_text(shown)
    address = urlsplit(fleet.page.url)
    assert parse_qs(address.query) == {"filter": ["query-1"], "topic": [many], "sort": ["lag:desc"]}

    another = FleetPage(await pages.open(), service.url)
    await another.open(f"?{address.query}")
    await expect(another.names).to_have_text(shown)
    await expect(another.search).to_have_value("query-1")
    await expect(another.page.get_by_role("combobox", name="Topic")).to_have_value(many)
    await expect(another.header("Lag")).to_have_attribute("aria-sort", "descending")


async def test_a_status_is_filtered_and_no_match_is_reported(fleet: FleetPage) -> None:
    await fleet.open()
    status = fleet.page.get_by_role("combobox", name="Status")
    await status.select_option("FAILED")
    await expect(fleet.names).to_have_text(["broken"])
    await fleet.search.fill("nothing like it")
    await expect(fleet.page.get_by_text("No query fits the filter")).to_be_visible()
    await fleet.page.get_by_role("button", name="Show all").click()
    await expect(fleet.search).to_have_value("")
    await expect(fleet.table).to_have_attribute("aria-rowcount", str(QUERIES + 3))


async def test_the_worst_is_the_first_row(fleet: FleetPage, topics: list[str]) -> None:
    # Those of the other topic get worse with time: nobody reports them any more.
    await fleet.open(f"?topic={topics[1]}")
    await expect(fleet.names).to_have_text(["broken", "all-done"])


async def test_a_row_draws_the_lag_of_the_last_half_hour(fleet: FleetPage) -> None:
    await fleet.open()
    name = await fleet.names.first.inner_text()
    line = fleet.cell(name, "Trend").get_by_role("img", name=f"Lag of {name}")
    await expect(line).to_be_visible()
    await expect(line).not_to_have_accessible_name(re.compile("unknown"))


async def test_a_keyboard_is_enough(fleet: FleetPage, service: ServiceProcess) -> None:
    page = fleet.page
    await fleet.open("?sort=query:asc&filter=query-")
    await expect(fleet.names.first).to_be_visible()
    await page.keyboard.press("j")
    await expect(fleet.link("query-00")).to_be_focused()
    await page.keyboard.press("/")
    await expect(fleet.search).to_be_focused()
    await page.keyboard.type("0")
    await expect(fleet.names).to_have_text([f"query-0{number}" for number in range(10)])
    for key in ("Enter", "ArrowDown", "j", "k", "Enter"):
        await page.keyboard.press(key)
    await expect(page.get_by_role("heading", level=1)).to_have_text("query-01")
    await expect(
        page.get_by_role("region", name="History").get_by_role("figure").first
    ).to_be_visible()
    await page.keyboard.press("+")
    await expect(page).to_have_url(re.compile(r"\?since=\d{13}&until=\d{13}$"))
    await page.keyboard.press("0")
    await expect(page).to_have_url(re.compile(r"/q/[^?]*$"))
    await page.keyboard.press("Escape")
    await expect(fleet.link("query-01")).to_be_focused()
    await expect(fleet.search).to_have_value("query-0")
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(f"{service.url}/?sort=query%3Aasc")
    lag = fleet.header("Lag").get_by_role("button")
    await lag.focus()
    definition = await lag.evaluate("(its) => getComputedStyle(its, '::after').content")
    assert "Records in Kafka that the query has not processed yet." in definition
    await page.keyboard.press("Enter")
    await expect(fleet.header("Lag")).to_have_attribute("aria-sort", "descending")


async def test_columns_without_a_value_are_left_out(fleet: FleetPage) -> None:
    await fleet.page.set_viewport_size({"width": 1440, "height": 900})
    await fleet.open()
    await expect(fleet.names.first).to_be_visible()
    await expect(fleet.header("Last measured")).to_be_visible()
    await expect(fleet.header("Running batch")).to_have_count(0)


async def test_queries_are_grouped_by_application(
    fleet: FleetPage, service: ServiceProcess, topics: list[str]
) -> None:
    for application in ("app-1", "app-2"):
        query = service.query(topics[0], "twice")
        query.complete_batch(QUERIES, application=application)
    await fleet.open("?filter=twice")
    await fleet.page.get_by_role("checkbox", name="By application").check()
    headings = fleet.table.get_by_role("rowheader")
    await expect(headings).to_have_count(2)
    assert sorted(await headings.all_inner_texts()) == [
        "Application app-1 1",
        "Application app-2 1",
    ]
    # Of one name, each shows its id.
    await expect(fleet.table.locator(".identity")).to_have_count(2)
    another = FleetPage(fleet.page, service.url)
    await another.open(f"?{urlsplit(fleet.page.url).query}&application=app-2")
    await expect(another.names).to_have_count(1)


async def test_the_dead_of_a_filter_are_forgotten_together(
    fleet: FleetPage, pages: Pages, service: ServiceProcess, topics: list[str]
) -> None:
    pages.errors.allow("status of 404")
    dead = [service.query(topics[0], f"gone-{number}") for number in range(3)]
    for query in dead:
        query.complete_batch(QUERIES)
        query.stop()
    lives = service.query(topics[0], "gone-not")
    lives.complete_batch(QUERIES)
    await fleet.open("?filter=gone-")
    await fleet.page.get_by_role("button", name="Forget 3 dead").focus()
    dialog = fleet.page.get_by_role("dialog", name="Forget these 3 queries?")
    for _ in range(3):  # the key repeats while it is held down
        await fleet.page.keyboard.down("Enter")
    await expect(dialog).to_contain_text("Cancel")
    await expect(dialog).to_contain_text("FINISHED gone-2")
    await fleet.page.request.delete(f"{service.url}/lag/{dead[0].id}")
    await expect(fleet.names).to_have_count(3)
    await dialog.get_by_role("button", name="Forget").click()
    await expect(fleet.names).to_have_text(["gone-not"])


async def test_a_bulk_forget_ends_where_it_is_stopped(
    fleet: FleetPage, service: ServiceProcess, topics: list[str]
) -> None:
    for number in range(2):
        query = service.query(topics[0], f"halted-{number}")
        query.complete_batch(QUERIES)
        query.stop()
    held: asyncio.Queue[Route] = asyncio.Queue()

    async def hold(route: Route) -> None:
        await (held.put(route) if route.request.method == "DELETE" else route.continue_())

    await fleet.page.route("**/lag/*", hold)
    await fleet.open("?filter=halted-")
    await fleet.page.get_by_role("button", name="Forget 2 dead").click()
    dialog = fleet.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Forget").click()
    first = await held.get()
    await dialog.get_by_role("button", name="Stop").click()
    await first.continue_()
    await expect(fleet.names).to_have_count(1)
    await expect(fleet.page.get_by_role("button", name="Forget 1 dead")).to_be_visible()
    assert held.empty()


async def test_topics_and_instances_are_listed(
    page: Page, service: ServiceProcess, topics: list[str]
) -> None:
    await page.goto(f"{service.url}/topics?filter={topics[1]}")
    row = page.get_by_role("region", name="Topics").get_by_role("row").nth(1)
    await expect(row).to_contain_text("FAILED")
    await expect(row.locator("td.readers")).to_have_text("2 ")
    await page.get_by_role("searchbox").press("Escape")
    await expect(page).to_have_url(f"{service.url}/topics")
    await page.get_by_role("link", name="Service").click()
    row = page.get_by_role("region", name="Instances").get_by_role("row").nth(1)
    await expect(row).to_contain_text(re.compile(r"measures .+:\d+100 %\s+\d+ s ago"))
    await expect(page.get_by_label("This instance")).to_contain_text("ready")


@pytest.mark.slow
async def test_arrow_keys_reach_rows_that_are_out_of_sight(fleet: FleetPage) -> None:
    await fleet.open("?sort=query:asc&filter=query-")
    await fleet.link("query-00").focus()
    for number in range(1, QUERIES):
        await fleet.page.keyboard.press("ArrowDown")
        await expect(fleet.link(f"query-{number:02}")).to_be_focused()
    scrolled = await fleet.page.evaluate("scrollY")
    await fleet.page.keyboard.press("Enter")
    await expect(fleet.page).to_have_url(re.compile("/q/"))
    await fleet.page.keyboard.press("Escape")
    await expect(fleet.link(f"query-{number}")).to_be_focused()
    assert await fleet.page.evaluate("scrollY") == scrolled > 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=key, marks=[] if key == "a tag" else pytest.mark.slow)
        for key, name in HOSTILE.items()
    ],
)
async def test_a_hostile_name_is_shown_as_text(
    fleet: FleetPage, service: ServiceProcess, topics: list[str], name: str
) -> None:
    query = service.query(topics[0], name)
    query.complete_batch(1)
    query.stop(exception=name)
    await fleet.open(f"?filter={query.id}")
    shown = printable(name, len(name))
    await expect(fleet.link(shown)).to_be_visible()
    await expect(fleet.cell(shown, "Status")).to_contain_text("FAILED")
    await fits(fleet.page)

    await fleet.link(shown).click()
    await expect(fleet.page.get_by_role("heading", level=1)).to_have_text(shown)
    await expect(fleet.page.get_by_role("status").first).to_contain_text("live")
    await fits(fleet.page)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_topic_is_shown_as_text(
    fleet: FleetPage, service: ServiceProcess, name: str
) -> None:
    topic = name[:200]
    query = service.query(topic, None)
    query.complete_batch(1)
    await eventually(lambda: service.knows(query), "it is known")
    await fleet.page.goto(f"{service.url}/q/{query.id}")
    shown = fleet.page.get_by_role("link", name=printable(topic), exact=True).first
    await expect(shown).to_be_visible()
    await fits(fleet.page)
    if "\0" in topic:
        return  # no route takes it
    await shown.click()
    heading = fleet.page.get_by_role("heading", level=1)
    await expect(heading).to_have_text(f"Topic {printable(topic)}")
    await expect(fleet.page.get_by_role("link", name=query.id, exact=True)).to_be_visible()
    await fits(fleet.page)


@pytest.mark.slow
async def test_on_a_phone_the_page_does_not_scroll_sideways(
    pages: Pages, service: ServiceProcess, topics: list[str]
) -> None:
    fleet = FleetPage(await pages.open(viewport=PHONE), service.url)
    await fleet.open()
    await expect(fleet.names.first).to_be_visible()
    await fits(fleet.page)


async def fits(page: Page) -> None:
    assert await page.evaluate(_WIDER_THAN_THE_PAGE) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_it_has_the_colours_of_the_system(
    pages: Pages, service: ServiceProcess, topics: list[str], scheme: str
) -> None:
    fleet = FleetPage(await pages.open(color_scheme=scheme), service.url)
    await fleet.open()
    colour = await fleet.page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert (brightness < 3 * 128) == (scheme == "dark")


@pytest.mark.slow
async def test_a_chosen_theme_is_kept(fleet: FleetPage) -> None:
    page = fleet.page
    await fleet.open()
    await page.get_by_role("combobox", name="Theme").select_option("Theme: dark")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
async def test_axe_finds_nothing(
    pages: Pages, service: ServiceProcess, topics: list[str], look: dict[str, object]
) -> None:
    page = await pages.open(**look)
    fleet = FleetPage(page, service.url)
    await fleet.open()
    await expect(fleet.names.first).to_be_visible()
    assert await axe_violations(page) == []
    for path in ("q/query-30", f"t/{topics[0]}", "q/nobody", "topics", "service"):
        pages.errors.allow("404 .*nobody")
        await page.goto(f"{service.url}/{path}")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path != "q/nobody":
            await expect(page.get_by_role("status").first).to_contain_text("live")
        assert await axe_violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "q/query-30", "topics", "service"])
async def test_lighthouse_finds_nothing(
    service: ServiceProcess, topics: list[str], path: str
) -> None:
    port = free_port()
    async with running_chromium(f"--remote-debugging-port={port}"):
        assert await lighthouse_failures(port, f"{service.url}/{path}") == []
