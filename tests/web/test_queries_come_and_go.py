"""The page of all queries follows them, with a real service and a real broker."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.second_client import SecondClient
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually
from tests.web.fleet_page import FleetPage
from tests.web.pages import Pages
from tests.web.reported_query import ReportedQuery
from tests.web.service import ServiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.packaging, pytest.mark.asyncio(loop_scope="module")]

CUT = (
    r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED"
    r"|ERR_SOCKET_NOT_CONNECTED"
)
"""Errors of requests to a service that is away."""


@pytest.fixture
def topic(second_client: SecondClient, topic_name: str) -> str:
    second_client.create(topic_name)
    second_client.produce(topic_name, [b"x"] * 10)
    return topic_name


async def test_a_query_appears_lags_stalls_stops_and_is_forgotten(
    page: Page, service: ServiceProcess, second_client: SecondClient, topic: str
) -> None:
    fleet = FleetPage(page, service.url)
    await fleet.open()
    query = service.query(topic, topic)
    query.complete_batch(10)
    await expect(fleet.cell(topic, "Status")).to_contain_text("OK")
    await expect(fleet.cell(topic, "Lag")).to_have_text("0")
    query.complete_batch(10)

    second_client.produce(topic, [b"x"] * 1_230)
    await expect(fleet.cell(topic, "Lag")).to_have_text("1,230")

    await runs_until(query, fleet, "STALL")
    await expect(fleet.row(topic)).to_contain_text("lag is 1,230 records")

    query.complete_batch(1_240)
    await expect(fleet.cell(topic, "Lag")).to_have_text("0")
    query.stop()
    await expect(fleet.cell(topic, "Status")).to_contain_text("FINISHED")

    await service.forget(query)
    await expect(fleet.row(topic)).to_have_count(0)


async def runs_until(query: ReportedQuery, fleet: FleetPage, status: str) -> None:
    async def is_shown() -> bool:
        query.refresh()
        return status in await fleet.cell(query.name, "Status").inner_text()

    await eventually(is_shown, f"it is {status}")


async def test_a_failed_query_reports_why(page: Page, service: ServiceProcess, topic: str) -> None:
    fleet = FleetPage(page, service.url)
    query = service.query(topic, topic)
    query.complete_batch(4)
    query.stop(exception="the disk is full\nat line 1")
    await fleet.open(f"?filter={topic}")
    await expect(fleet.cell(topic, "Status")).to_contain_text("FAILED")
    await expect(fleet.cell(topic, "Lag")).to_have_text("6")
    await expect(fleet.row(topic)).to_contain_text("the query failed: the disk is full")


async def test_a_stream_that_is_cut_reports_so_and_loses_nothing(
    pages: Pages, page: Page, service: ServiceProcess, topic: str
) -> None:
    pages.errors.allow(CUT)
    stays, leaves = (service.query(topic, f"{each}-{topic}") for each in ("stays", "leaves"))
    comes = service.query(topic, f"comes-{topic}")
    for query in (stays, leaves):
        query.complete_batch(3)
    with TcpProxy(service.port) as proxy:
        fleet = FleetPage(page, proxy.url)
        await fleet.open(f"?filter={topic}")
        for query in (stays, leaves):
            await expect(fleet.cell(query.name, "Lag")).to_have_text("7")

        proxy.cut()
        await expect(fleet.stream).to_contain_text("stream down, showing data")
        await expect(fleet.stream).to_contain_text("old, reconnecting")
        await expect(fleet.cell(stays.name, "Lag")).to_have_text("7")
        stays.complete_batch(8)
        comes.complete_batch(9)
        leaves.stop()
        await eventually(lambda: service.has_ended(leaves), "it has ended")
        await service.forget(leaves)

        proxy.restore()
        await expect(fleet.stream).to_contain_text("live")
        await expect(fleet.cell(stays.name, "Lag")).to_have_text("2")
        await expect(fleet.cell(comes.name, "Lag")).to_have_text("1")
        await expect(fleet.row(leaves.name)).to_have_count(0)
