"""Pages of a test, in contexts of their own."""

from __future__ import annotations

from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, Page

from tests.waiting import DEADLINE_S
from tests.web.page_errors import PageErrors

PHONE: Final = {"width": 390, "height": 844}
"""The size of its viewport."""


class Pages:
    def __init__(self, browser: Browser) -> None:
        self.errors = PageErrors()
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    async def open(self, **options: Any) -> Page:
        """An empty page in a new context; `options` are those of a context."""
        context = await self._browser.new_context(**options)
        self._contexts.append(context)
        context.set_default_timeout(DEADLINE_S * 1000)
        await self.errors.watch(context)
        return await context.new_page()

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()
