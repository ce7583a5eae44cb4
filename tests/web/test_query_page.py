"""The pages of one query and of one topic."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.second_client import SecondClient
from tests.waiting import eventually
from tests.web.pages import Pages
from tests.web.service import ServiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture
def topic(second_client: SecondClient, topic_name: str) -> str:
    second_client.create(topic_name, 3)
    for partition in range(3):
        second_client.produce(topic_name, [b"x"] * 10, partition=partition)
    return topic_name


async def test_it_follows_each_partition(
    page: Page, service: ServiceProcess, second_client: SecondClient, topic: str
) -> None:
    query = await service.known_query(topic, 10, 4, 0)
    await page.goto(f"{service.url}/q/{topic}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(topic)
    rows = page.get_by_role("table", name=f"Partitions of {topic}").get_by_role("row")
    for number, lag in enumerate(("0", "6", "10")):
        cells = rows.nth(number + 1).get_by_role("cell")
        await expect(cells.nth(0)).to_have_text(str(number))
        await expect(cells.nth(2)).to_have_text(lag)
    query.complete_batch(10, 10, 10)
    second_client.produce(topic, [b"x"] * 2_000, partition=1)
    await expect(rows.nth(2).get_by_role("cell").nth(2)).to_have_text("2,000")
    await expect(rows.nth(3).get_by_role("cell").nth(2)).to_have_text("0")
    chart = page.get_by_role("figure", name="Lag", exact=True)
    await expect(chart.get_by_role("table")).to_contain_text("2,000")


async def test_a_link_keeps_the_range_of_time(
    page: Page, pages: Pages, service: ServiceProcess, topic: str
) -> None:
    query = await service.known_query(topic, 0, 0, 0)
    await page.goto(f"{service.url}/q/{query.id}")
    await page.get_by_role("button", name="6h").click()
    address = urlsplit(page.url)
    assert parse_qs(address.query) == {"since": ["6h"]}

    another = await pages.open()
    async with another.expect_request("**/history?since=6h"):
        await another.goto(page.url)
    chosen = another.get_by_role("group", name="Time range").get_by_role("button", pressed=True)
    await expect(chosen).to_have_text("6h")

    await another.goto(f"{service.url}/q/{query.id}?since=1790000000000&until=1790000600000")
    await another.get_by_role("button", name="Back to now").click()
    await expect(chosen).to_have_text("1h")
    assert urlsplit(another.url).query == ""
    await another.goto(f"{service.url}/q/{query.id}?since=1h&until=1790000600000")
    await expect(chosen).to_have_text("1h")

    for no_range in ("since=1h&until=1790000600000", f"since=1h&until={10**16}"):
        await another.goto(f"{service.url}/q/{query.id}?{no_range}")
        await expect(chosen).to_have_text("1h")


@pytest.mark.slow
async def test_dragging_zooms_into_a_chart(page: Page, service: ServiceProcess, topic: str) -> None:
    query = await service.known_query(topic, 0, 0, 0)
    await page.goto(f"{service.url}/q/{query.id}")
    chart = page.get_by_role("img", name=re.compile("^Lag, "))
    box = await chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 3
    await page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=5)
    await page.mouse.up()
    await expect(page).to_have_url(re.compile(r"\?since=\d{13}&until=\d{13}$"))
    await page.get_by_role("button", name="Back to now").click()
    await expect(page).to_have_url(f"{service.url}/q/{query.id}")


@pytest.mark.slow
async def test_it_copies_offsets_for_spark_and_requests_for_curl(
    pages: Pages, service: ServiceProcess, topic: str
) -> None:
    page = await pages.open(permissions=["clipboard-read", "clipboard-write"])
    query = await service.known_query(topic, 10, 4, 0)
    await page.goto(f"{service.url}/q/{query.id}?since=6h")
    for_spark = page.get_by_role("button", name="Copy startingOffsets")
    await for_spark.click()
    status_after = page.locator("+ [role=status]")
    await expect(for_spark.locator(status_after)).to_have_text("copied")
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    assert json.loads(copied) == {topic: {"0": 10, "1": 4, "2": 0}}
    for_curl = page.get_by_role("button", name="Copy curl")
    await for_curl.click()
    await expect(for_curl.locator(status_after)).to_have_text("copied")
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    path = f"{service.url}/lag/{query.id}"
    assert copied == f"curl -s '{path}'\ncurl -s '{path}/history?since=6h'"


async def test_each_change_is_listed_at_its_second(
    pages: Pages, service: ServiceProcess, topic: str
) -> None:
    query = await service.known_query(topic, 10, 10, 0)
    query.complete_batch(10, 10, 0)

    async def history() -> list[dict[str, Any]]:
        async with httpx.AsyncClient() as client:
            changes = (await client.get(f"{service.url}/lag/{query.id}/history")).json()["changes"]
        return list(changes)

    async def is_stalled() -> bool:
        query.refresh()
        return bool((await history())[-1]["status"] == "STALL")

    await eventually(is_stalled, "it stalls")
    query.complete_batch(10, 10, 10)

    async def is_recovered() -> bool:
        return bool((await history())[-1]["status"] == "OK")

    await eventually(is_recovered, "it recovers")
    stalled, recovered = (await history())[-2:]
    page = await pages.open(timezone_id="UTC", locale="en-GB")
    await page.goto(f"{service.url}/q/{query.id}")
    events = page.get_by_role("list", name="Events").get_by_role("listitem")
    texts = [
        f"{datetime.fromtimestamp(change['at'] / 1000, timezone.utc):%H:%M:%S} {text}"
        for change, text in ((recovered, "recovered from STALL"), (stalled, "stalled"))
    ]
    await expect(events.nth(0)).to_contain_text(texts[0])
    await expect(events.nth(1)).to_contain_text(texts[1])


@pytest.mark.slow
async def test_of_two_queries_of_one_name_it_has_both(
    pages: Pages, page: Page, service: ServiceProcess, topic: str
) -> None:
    pages.errors.allow("409 ")
    both = [await service.known_query(topic, 0, 0, 0) for _ in range(2)]
    await page.goto(f"{service.url}/q/{topic}")
    for query in both:
        await expect(page.get_by_role("link", name=query.id)).to_be_visible()
    await page.get_by_role("link", name=both[1].id).click()
    await expect(page.get_by_label("Identity")).to_contain_text(both[1].id)


@pytest.mark.slow
async def test_an_unknown_query_is_named_and_those_like_it(
    pages: Pages, page: Page, service: ServiceProcess, topic: str
) -> None:
    pages.errors.allow("404 ")
    query = await service.known_query(topic, 0, 0, 0)
    await page.goto(f"{service.url}/q/{query.name}x")
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"No such query: {query.name}x")
    await expect(page.get_by_role("status").first).to_contain_text("asking again")
    await page.get_by_role("link", name=query.name, exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(query.name)


@pytest.mark.slow
async def test_a_query_forgotten_meanwhile_is_shown_as_forgotten(
    pages: Pages, page: Page, service: ServiceProcess, topic: str
) -> None:
    pages.errors.allow("404 ")
    query = service.query(topic, topic)
    query.complete_batch(0, 0, 0)
    query.stop()
    await eventually(lambda: service.has_ended(query), "it has ended")
    await page.goto(f"{service.url}/q/{query.id}")
    await expect(page.get_by_label("Identity")).to_contain_text(query.id)
    await service.forget(query)
    await expect(page.get_by_role("alert")).to_contain_text("the query was forgotten")


async def test_a_topic_lists_who_reads_it(page: Page, service: ServiceProcess, topic: str) -> None:
    behind, ahead = (service.query(topic, f"{each}-{topic}") for each in ("behind", "ahead"))
    behind.complete_batch(0, 0, 0)
    ahead.complete_batch(9, 9, 9)
    await page.goto(f"{service.url}/t/{topic}")
    for query, lag in ((behind, "30"), (ahead, "3")):
        link = page.get_by_role("link", name=query.name, exact=True)
        row = page.get_by_role("region", name="Readers").get_by_role("row").filter(has=link)
        await expect(row.get_by_role("cell", name=lag, exact=True)).to_be_visible()
    await page.get_by_role("link", name=behind.name, exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(behind.name)
