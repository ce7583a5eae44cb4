"""Pages of a test, in contexts of their own."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError

from tests.waiting import DEADLINE_S

_LOCAL: Final = {"127.0.0.1", None}
"""None: no host at all, as of data:."""
_REPORT_VIOLATIONS: Final = """
addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy violated: ${event.violatedDirective}: ${event.blockedURI}`));
"""
_LEFT: Final = "net::ERR_ABORTED"
"""The page itself gave the request up, or was left."""


class PageErrors:
    """Console errors and warnings, exceptions, failed or foreign requests, policy violations."""

    def __init__(self) -> None:
        self._observed: list[str] = []
        self._allowed: list[str] = []

    async def watch(self, context: BrowserContext) -> None:
        await context.add_init_script(_REPORT_VIOLATIONS)
        context.on("console", self._on_console)
        context.on("weberror", self._on_exception)
        context.on("request", self._on_request)
        context.on("requestfailed", self._on_failed_request)

    def allow(self, pattern: str) -> None:
        self._allowed.append(pattern)

    @property
    def unexpected(self) -> list[str]:
        return [
            error
            for error in self._observed
            if not any(re.search(pattern, error) for pattern in self._allowed)
        ]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._observed.append(f"console: {message.text} ({message.location.get('url')})")

    def _on_exception(self, error: WebError) -> None:
        self._observed.append(f"exception: {error.error}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).hostname not in _LOCAL:
            self._observed.append(f"request to another host: {request.url}")

    def _on_failed_request(self, request: Request) -> None:
        if request.failure != _LEFT:
            self._observed.append(f"request failed: {request.url}: {request.failure}")


PHONE: Final = {"width": 390, "height": 844}
"""The size of its viewport."""


class Pages:
    def __init__(self, browser: Browser) -> None:
        self.errors = PageErrors()
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    async def open(self, **options: Any) -> Page:
        context = await self._browser.new_context(**options)
        self._contexts.append(context)
        context.set_default_timeout(DEADLINE_S * 1000)
        await self.errors.watch(context)
        return await context.new_page()

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()
