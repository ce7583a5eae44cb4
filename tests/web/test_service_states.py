"""What the page shows of the service itself: that it knows no query, that it does not work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.web.audits import axe_violations
from tests.web.fleet_page import FleetPage
from tests.web.pages import Pages
from tests.web.service import ServiceProcess, service_process

pytestmark = [pytest.mark.kafka, pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]


async def test_without_queries_it_reports_how_to_begin_and_shows_the_first_by_itself(
    page: Page, service: ServiceProcess, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name)
    fleet = FleetPage(page, service.url)
    await fleet.open()
    await expect(page.get_by_role("heading", name="No query has been observed yet")).to_be_visible()
    await expect(page.get_by_text("handle = observe(spark)")).to_be_visible()
    await expect(fleet.table).to_have_count(0)
    assert await axe_violations(page) == []

    service.query(topic_name, "first").complete_batch(0)
    await expect(fleet.link("first")).to_be_visible()


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def own_service(own_kafka: LocalKafka, tmp_path: Path) -> Iterator[ServiceProcess]:
    client = SecondClient(own_kafka.bootstrap_servers)
    client.produce(client.create("orders"), [b"x"] * 12)
    with service_process(own_kafka, client, tmp_path) as service:
        service.query("orders", "orders").complete_batch(4)
        yield service


async def test_a_service_that_fails_reports_so_in_red_and_shows_what_it_knows(
    own_kafka: LocalKafka, own_service: ServiceProcess, pages: Pages, page: Page
) -> None:
    pages.errors.allow("503 .*/health/ready")
    fleet = FleetPage(page, own_service.url)
    await fleet.open()
    await expect(fleet.cell("orders", "Lag")).to_have_text("8")
    alert = page.get_by_role("alert")
    await expect(alert).to_have_count(0)

    own_kafka.freeze()
    await expect(alert).to_contain_text("This service does not work")
    await expect(alert).to_contain_text("kafka")
    colour = await alert.evaluate("(element) => getComputedStyle(element).color")
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    assert red > 2 * max(green, blue)
    await expect(fleet.link("orders")).to_be_visible()
    assert await axe_violations(page) == []

    own_kafka.thaw()
    await expect(alert).to_have_count(0)
