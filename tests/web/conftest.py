"""A real browser, and pages that must not complain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.debian_packages import ProgramsMissing
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S
from tests.web.chromium import running_chromium
from tests.web.pages import Pages
from tests.web.service import ServiceProcess, service_process

expect.set_options(timeout=DEADLINE_S * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for a file of tests, which share its event loop: `asyncio(loop_scope="module")`."""
    try:
        async with running_chromium() as browser:
            yield browser
    except ProgramsMissing as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest_asyncio.fixture(loop_scope="module")
async def pages(browser: Browser) -> AsyncIterator[Pages]:
    """Fails a test whose pages had errors that it does not allow."""
    pages = Pages(browser)
    try:
        yield pages
    finally:
        await pages.close()
    assert not pages.errors.unexpected


@pytest_asyncio.fixture(loop_scope="module")
async def page(pages: Pages) -> Page:
    return await pages.open()


@pytest.fixture(scope="module")
def service(
    kafka: LocalKafka, second_client: SecondClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    with service_process(kafka, second_client, folder) as running:
        yield running
