"""The page of all queries, by the roles and names that a screen reader has."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Locator, Page, expect

_CELLS: Final = {"Status": ".severity", "Lag": ".lag", "Time lag": ".age", "Trend": ".trend"}
_NAME: Final = ".named > a"
"""Beside it are links to topics, which may be called as the query is."""


class FleetPage:
    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url
        self.table = page.get_by_role("table", name="Queries")
        self.stream = page.get_by_role("banner").get_by_role("status").first
        self.names = self.table.locator(_NAME)
        self.search = page.get_by_role("searchbox", name="Filter queries")

    async def open(self, parameters: str = "") -> None:
        await self.page.goto(f"{self._url}/{parameters}")
        await expect(self.stream).to_contain_text("live")

    def header(self, column: str) -> Locator:
        return self.table.get_by_role("columnheader", name=column, exact=True)

    def link(self, name: str) -> Locator:
        return self.names.and_(self.page.get_by_role("link", name=name, exact=True))

    def row(self, name: str) -> Locator:
        named = self.page.get_by_role("link", name=name, exact=True)
        return self.table.get_by_role("row").filter(has=self.page.locator(_NAME).and_(named))

    def cell(self, name: str, column: str) -> Locator:
        return self.row(name).locator(_CELLS[column])
